package dashboard

import (
	"fmt"
	"net/http"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/console"
)

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

func (h *handler) previewPause(r *http.Request) (*page, error) {
	return h.previewBulk(r, "Pause", true)
}
func (h *handler) previewResume(r *http.Request) (*page, error) {
	return h.previewBulk(r, "Resume", false)
}

// previewBulk returns the preview for the jobs that match the filter of a request.
func (h *handler) previewBulk(r *http.Request, verb string, pausing bool) (*page, error) {
	st, err := h.readStatus(r.Context())
	if err != nil {
		return nil, err
	}
	f := filterOf(r.URL.Query())
	return bulkOf(st, f, &bulk{Verb: verb, Action: r.URL.Path, Back: f.linkTo("/"), Pausing: pausing}), nil
}

// bulkOf adds the jobs that match the filter to b, and returns its page.
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
	p := pageOf("bulk", fmt.Sprintf("%s %s?", b.Verb, console.Count(len(b.Rows), "job")), st)
	p.Here, p.Body = "overview", b
	return p
}

// namedJobs returns the names of jobs in a form.
func namedJobs(r *http.Request) ([]string, error) {
	jobs := r.PostForm["job"]
	if len(jobs) == 0 {
		return nil, fmt.Errorf("%w: no jobs are selected", cluster.ErrInvalid)
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
	_, err = h.operator.Resume(r.Context(), cluster.ResumeRequest{Selection: cluster.Selection{Jobs: jobs}, Requester: h.requesterOf(r)})
	return pathSaying("/", "resumed"), err
}
