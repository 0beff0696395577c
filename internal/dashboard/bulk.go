package dashboard

import (
	"fmt"
	"net/http"

	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/operator"
)

// mostNamed is the maximum number of jobs in a form. With the longest names it still fits into mostForm.
const mostNamed = 1000

// A bulk lists the jobs that an action will affect. The form sends these names, so that it affects exactly the jobs that were shown.
type bulk struct {
	Verb, Action, Back string
	Pausing            bool
	Rows               []row
	Same               int // number that are already paused, or already not paused
	More               int // number that match, and are not in the form
}

func (h *handler) previewPause(r *http.Request) (*page, error) {
	return h.previewBulk(r, "Pause", true)
}
func (h *handler) previewResume(r *http.Request) (*page, error) {
	return h.previewBulk(r, "Resume", false)
}

// previewBulk lists the jobs of a filter.
func (h *handler) previewBulk(r *http.Request, verb string, pausing bool) (*page, error) {
	st, err := h.readStatus(r.Context())
	if err != nil {
		return nil, err
	}
	f := filterOf(r.URL.Query())
	return bulkOf(st, f, &bulk{Verb: verb, Action: r.URL.Path, Back: f.linkTo("/"), Pausing: pausing}), nil
}

// bulkOf adds the jobs to b and returns its page.
func bulkOf(st *operator.Status, f filter, b *bulk) *page {
	bad := failingJobs(st)
	for _, j := range f.chooseJobs(st) {
		affected := b.Pausing || j.Paused // a job that is already paused gets another end and reason
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
	p := pageOf("bulk", fmt.Sprintf("%s %s?", b.Verb, console.Count(len(b.Rows), "job")), st)
	p.Here, p.Body = "overview", b
	return p
}

// namedJobs returns the jobs that a form lists.
func namedJobs(r *http.Request) ([]string, error) {
	jobs := r.PostForm["job"]
	if len(jobs) == 0 {
		return nil, fmt.Errorf("%w: no jobs are selected", operator.ErrInvalid)
	}
	return jobs, nil
}

func (h *handler) pauseMany(r *http.Request) (string, error) {
	jobs, err := namedJobs(r)
	if err != nil {
		return "", err
	}
	return pathSaying("/", "paused"), h.pauseJobs(r, jobs)
}

func (h *handler) resumeMany(r *http.Request) (string, error) {
	jobs, err := namedJobs(r)
	if err != nil {
		return "", err
	}
	_, err = h.operator.Resume(r.Context(), operator.ResumeRequest{Selection: operator.Selection{Jobs: jobs}, Requester: h.requesterOf(r)})
	return pathSaying("/", "resumed"), err
}
