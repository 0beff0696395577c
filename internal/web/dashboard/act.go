package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
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

// actionHandler returns a handler that performs an action. It refuses users without the right to act.
func (h *handler) actionHandler(act action) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, may := h.actor(r); !may {
			h.renderPage(w, r, failedPage(errMayNotAct))
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, mostForm)
		if err := r.ParseForm(); err != nil {
			h.renderPage(w, r, failedPage(fmt.Errorf("read the form: %w: %w", cluster.ErrInvalid, err)))
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

// requesterOf returns the user of a request, and the reason that the user entered in the form.
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
	answer, err := h.operator.AwaitStart(ctx, asked, nil)
	switch {
	case errors.Is(err, cluster.ErrNotStarted):
		return pathSaying(jobPath(job), "asked"), nil
	case err != nil:
		return "", err
	case answer.Started():
		return pathSaying(runPath(journal.Record{Job: job, RunID: answer.RunID, Started: time.Now()}), "started"), nil
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
	return pathSaying(jobPath(job), said), nil
}

func (h *handler) pauseOne(r *http.Request) (string, error) {
	job := r.PathValue("job")
	return pathSaying(jobPath(job), "paused"), h.pauseJobs(r, []string{job})
}

func (h *handler) resumeOne(r *http.Request) (string, error) {
	job := r.PathValue("job")
	_, err := h.operator.Resume(r.Context(), cluster.ResumeRequest{Selection: cluster.Selection{Jobs: []string{job}}, Requester: h.requesterOf(r)})
	return pathSaying(jobPath(job), "resumed"), err
}

// pauseJobs pauses jobs, with the duration and the reason from the form.
func (h *handler) pauseJobs(r *http.Request, jobs []string) error {
	req := cluster.PauseRequest{Selection: cluster.Selection{Jobs: jobs}, Requester: h.requesterOf(r)}
	if text := strings.TrimSpace(r.PostForm.Get("for")); text != "" {
		d, err := units.ParseDuration(text)
		if err != nil || d <= 0 {
			return fmt.Errorf("%w: for how long: write a duration such as 30m, 2h or 1d, or leave it empty", cluster.ErrInvalid)
		}
		req.For = d
	}
	_, err := h.operator.Pause(r.Context(), req)
	return err
}
