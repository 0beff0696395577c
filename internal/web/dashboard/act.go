package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/units"
)

const (
	// mostForm is the size limit of a form in bytes, equal to the limit of the HTTP server around the pages. A form with the names of mostNamed jobs fits.
	mostForm = 256 << 10
	// awaitStart is the maximum time that the answer to a trigger waits for the run to start.
	awaitStart = 2 * time.Second
)

// An action does what a form requests. It returns the path to which the browser is redirected afterwards.
type action func(*http.Request) (to string, err error)

// actionHandler refuses users without the right to act, before it reads the form, and forms of a page that was opened by another user.
func (h *handler) actionHandler(act action) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, may := h.actor(r)
		if !may {
			h.renderPage(w, r, failedPage(errMayNotAct))
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, mostForm)
		if err := r.ParseForm(); err != nil {
			h.renderPage(w, r, failedPage(fmt.Errorf("read the form: %w: %w", cluster.ErrInvalid, err)))
			return
		}
		if opened, named := r.PostForm["user"]; named && opened[0] != user { // programs need not name one
			h.renderPage(w, r, failedPage(fmt.Errorf("%w %.100s, and you are logged in as %s", errOpenedByOther, opened[0], user)))
			return
		}
		to, err := act(r)
		if err != nil {
			h.renderPage(w, r, failedPage(err))
			return
		}
		http.Redirect(w, r, to, http.StatusSeeOther)
	})
}

func (h *handler) requesterOf(r *http.Request) cluster.Requester {
	name, _ := h.actor(r)
	return cluster.Requester{By: name, Reason: strings.TrimSpace(r.PostForm.Get("reason"))}
}

func (h *handler) triggerJob(r *http.Request) (string, error) {
	job := r.PathValue("job")
	req := cluster.TriggerRequest{Requester: h.requesterOf(r), Job: job}
	if text := strings.TrimSpace(r.PostForm.Get("tick")); text != "" {
		tick, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return "", fmt.Errorf("%w: tick: %w", cluster.ErrInvalid, err)
		}
		req.Tick = tick
	}
	asked, err := h.operator.Trigger(r.Context(), req)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(r.Context(), awaitStart)
	defer cancel()
	answer, err := h.operator.AwaitStart(ctx, asked[0].Request, nil)
	switch {
	case errors.Is(err, cluster.ErrNotStarted):
		return withNotice(jobPath(job), "asked"), nil
	case err != nil:
		return "", err
	case answer.Started():
		return withNotice(runIDPath(job, answer.RunID), "started"), nil
	}
	return "", fmt.Errorf("%w: job %s: %s %s", cluster.ErrNoReplica, job, answer.Outcome, answer.Reason)
}

// cancelRuns stops the runs whose ids are in the form: exactly the runs that the user saw.
func (h *handler) cancelRuns(r *http.Request) (string, error) {
	job, listed := r.PathValue("job"), r.PostForm["run"]
	if len(listed) == 0 || slices.Contains(listed, "") { // an empty id would stop all runs of the job
		return "", fmt.Errorf("%w: no runs are selected", cluster.ErrInvalid)
	}
	said := "idle"
	for _, run := range listed {
		_, err := h.operator.Cancel(r.Context(), cluster.CancelRequest{Requester: h.requesterOf(r), Job: job, Run: run})
		switch {
		case errors.Is(err, cluster.ErrUnknownRun): // the run has ended since the page was loaded
		case err != nil:
			return "", err
		default:
			said = "stopping"
		}
	}
	return withNotice(jobPath(job), said), nil
}

// selectedJobs returns the job in the path of a request or, if there is none, the jobs in its form. back is the path to which the browser is redirected afterwards.
func selectedJobs(r *http.Request) (s cluster.Selection, back string, err error) {
	if job := r.PathValue("job"); job != "" {
		return cluster.Selection{Jobs: []string{job}}, jobPath(job), nil
	}
	if s.Jobs = r.PostForm["job"]; len(s.Jobs) == 0 {
		return s, "", fmt.Errorf("%w: no jobs are selected", cluster.ErrInvalid)
	}
	return s, "/", nil
}

func (h *handler) pauseJobs(r *http.Request) (string, error) {
	selected, back, err := selectedJobs(r)
	if err != nil {
		return "", err
	}
	req := cluster.PauseRequest{Selection: selected, Requester: h.requesterOf(r)}
	if text := strings.TrimSpace(r.PostForm.Get("for")); text != "" {
		d, err := units.ParseDuration(text)
		if err != nil || d <= 0 {
			return "", fmt.Errorf("%w: for how long: write a duration such as 30m, 2h or 1d, or leave it empty", cluster.ErrInvalid)
		}
		req.For = d
	}
	_, err = h.operator.Pause(r.Context(), req)
	return withNotice(back, "paused"), err
}

func (h *handler) resumeJobs(r *http.Request) (string, error) {
	selected, back, err := selectedJobs(r)
	if err != nil {
		return "", err
	}
	_, err = h.operator.Resume(r.Context(), cluster.ResumeRequest{Selection: selected, Requester: h.requesterOf(r)})
	return withNotice(back, "resumed"), err
}

// mostNamed is the maximum number of jobs in a form. Even with the longest names, such a form is smaller than mostForm.
const mostNamed = 1000

// A bulk is the preview of an action on many jobs. The form sends the names in the preview, so the action affects exactly the jobs that the user saw.
type bulk struct {
	Verb, Action, Back string
	Pausing            bool
	Rows               []row
	Same               int // number of jobs that are already in the wanted state
	More               int // number of matching jobs that do not fit into the form
}

func (h *handler) previewBulk(verb string, pausing bool) view {
	return func(r *http.Request) (*page, error) {
		st, err := h.readStatus(r.Context())
		if err != nil {
			return nil, err
		}
		f := filterOf(r.URL.Query())
		return bulkOf(st, f, &bulk{Verb: verb, Action: r.URL.Path, Back: f.linkTo("/"), Pausing: pausing}), nil
	}
}

func bulkOf(st *cluster.Status, f filter, b *bulk) *page {
	bad := failingJobs(st)
	for _, j := range f.chooseJobs(st) {
		affected := b.Pausing || j.Paused // pausing a paused job changes the end and the reason of the pause
		if affected && len(b.Rows) == mostNamed {
			b.More++
			continue
		}
		if j.Paused == b.Pausing {
			b.Same++
		}
		if affected {
			b.Rows = append(b.Rows, rowOf(st.Now, j, bad[j.Name] > 0))
		}
	}
	p := pageOf("bulk", fmt.Sprintf("%s %s?", b.Verb, units.Count(len(b.Rows), "job")), st)
	p.Here, p.Body = "overview", b
	return p
}

func withNotice(path, key string) string { return path + "?said=" + key }

const (
	// actsShown is the maximum number of audit entries on the page of the cluster.
	actsShown = 20
	// actsOfAPage is the number of entries per page of the audit log.
	actsOfAPage = 100
)

type auditPage struct {
	Acts  []act
	Lost  string // describes entries that are missing
	Pages []link
}

type act struct {
	When             moment
	By, Kind, Reason string
	Note             string // detail of the act, such as the end of a pause, or the tick that was triggered again
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
	at, _ := strconv.Atoi(r.URL.Query().Get("page")) // any other text selects the first page
	acts, pages := paginate(acts, actsOfAPage, at, func(n string) string { return "/audit?page=" + n })
	p.Body = &auditPage{Lost: cleanText(lost), Acts: actsOf(st.Now, acts), Pages: pages}
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
		shown.Jobs = append(shown.Jobs, jobLink(name))
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
		shown.Run = link{"run " + fmt.Sprintf("%.8s", cleanText(a.RunID)), runIDPath(a.Jobs[0], a.RunID)}
	}
	return shown
}
