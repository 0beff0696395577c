package dashboard

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
)

// A story explains what happened to a job at an instant.
type story struct {
	Job, JobHref, At, Fate, Href string
	Mark                         mark
	Lines                        []string
	Records                      records
}

func storyOf(now time.Time, s *cluster.Story) *story {
	t := &story{Job: cleanText(s.Job), JobHref: jobPath(s.Job), At: s.At.Format(stamp), Fate: string(s.Fate), Href: whyPath(s.Job, s.At), Mark: fateMarks[s.Fate], Records: recordsOf(now, "Records of the tick", s.Runs)}
	if t.Mark == (mark{}) {
		t.Mark = markAdvice
	}
	if s.Fate == cluster.Over && len(s.Runs) > 0 {
		t.Mark = markOf(s.Runs[len(s.Runs)-1].Outcome)
	}
	for _, l := range s.Lines {
		t.Lines = append(t.Lines, cleanText(l))
	}
	return t
}

var fateMarks = map[cluster.Fate]mark{cluster.Due: markComing, cluster.Open: markWarning, cluster.Running: markRunning}

// showWhy shows the story of a job at the instant that the form contains.
func (h *handler) showWhy(r *http.Request) (*page, error) {
	now, err := h.operator.Now(r.Context())
	if err != nil {
		return nil, err
	}
	s, err := h.operator.Why(r.Context(), r.PathValue("job"), strings.TrimSpace(r.URL.Query().Get("at")))
	if err != nil {
		return nil, err
	}
	st, err := h.readStatus(r.Context())
	if err != nil {
		return nil, err
	}
	p := pageOf("why", fmt.Sprintf("%s at %s", cleanText(s.Job), s.At.Format(stamp)), st)
	p.Now, p.Body = now, storyOf(now, s)
	if slices.Contains([]cluster.Fate{cluster.Due, cluster.Open, cluster.Running}, s.Fate) {
		p.Every = renewMS
	}
	return p, nil
}
