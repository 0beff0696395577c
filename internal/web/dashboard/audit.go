package dashboard

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/journal"
)

const (
	// actsShown is the maximum number of audit entries on the page of the cluster.
	actsShown = 20
	// actsOfAPage is the number of entries per page of the audit log.
	actsOfAPage = 100
)

// auditPage shows the audit log, the newest entry first.
type auditPage struct {
	Acts  []act
	Lost  string // describes entries that are missing
	Pages []link
}

// An act is an entry of the audit log, which records what a user did.
type act struct {
	When             moment
	By, Kind, Reason string
	Note             string // end of a pause, or tick that was triggered again
	Run              link
	Jobs             []link
	More             int // number of further jobs, which have no link
}

func (h *handler) showAudit(r *http.Request) (*page, error) {
	st, err := h.readStatus(r.Context())
	if err != nil {
		return nil, err
	}
	acts, lost, err := h.operator.Acts(r.Context(), journal.MaxActs)
	if err != nil {
		return nil, err
	}
	p := pageOf("audit", "Audit log", st)
	p.Here = "cluster"
	count := max((len(acts)+actsOfAPage-1)/actsOfAPage, 1)
	at, _ := strconv.Atoi(r.URL.Query().Get("page")) // any other text selects the first page
	at = min(max(at, 1), count)
	body := &auditPage{Lost: lost, Acts: actsOf(st.Now, acts[(at-1)*actsOfAPage:min(at*actsOfAPage, len(acts))])}
	for n := 1; n <= count && count > 1; n++ {
		l := link{Text: strconv.Itoa(n)}
		if n != at {
			l.Href = "/audit?page=" + l.Text
		}
		body.Pages = append(body.Pages, l)
	}
	p.Body = body
	return p, nil
}

func actsOf(now time.Time, newestFirst []journal.Act) (list []act) {
	for _, a := range newestFirst {
		list = append(list, actOf(now, a))
	}
	return list
}

func actOf(now time.Time, a journal.Act) act {
	const linked = 5
	shown := act{When: momentOf(now, a.Time), By: cleanText(a.By), Kind: cleanText(a.Kind), Reason: cluster.FirstLine(cleanText(a.Reason), 200), More: a.JobCount - min(len(a.Jobs), linked)}
	for _, name := range a.Jobs[:min(len(a.Jobs), linked)] {
		shown.Jobs = append(shown.Jobs, link{cleanText(name), jobPath(name)})
	}
	switch {
	case a.Replica != "":
		shown.Note = "replica " + cleanText(a.Replica)
	case a.Until != nil:
		shown.Note = "until " + a.Until.UTC().Format(stamp)
	case a.Tick != nil:
		shown.Note = "tick " + a.Tick.UTC().Format(stamp)
	}
	if a.Unchanged > 0 {
		shown.Note = strings.TrimPrefix(shown.Note+", "+console.Unchanged(a), ", ")
	}
	if a.RunID != "" && len(a.Jobs) == 1 {
		shown.Run = link{"run " + fmt.Sprintf("%.8s", cleanText(a.RunID)), jobPath(a.Jobs[0]) + "/runs/" + url.PathEscape(a.RunID)}
	}
	return shown
}
