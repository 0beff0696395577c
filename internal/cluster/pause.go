package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler"
)

// maxPaused is the maximum number of jobs that one round trip pauses.
const maxPaused = 500

// A Selection selects jobs: by name, by one of several tags, or all.
type Selection struct {
	Jobs, Tags []string
	All        bool
}

// A PauseRequest selects the jobs to pause.
type PauseRequest struct {
	Selection
	Requester
	// For is the length of the pause, by the clock of Redis. 0 means until the jobs are resumed.
	For time.Duration
}

// A ResumeRequest selects the jobs to resume.
type ResumeRequest struct {
	Selection
	Requester
}

// A PausedJob is a job after a pause or resume. Its JSON is part of the contract with users.
type PausedJob struct {
	Job       string     `json:"job"`
	Paused    bool       `json:"paused"`
	WasPaused bool       `json:"was_paused"`
	Since     *time.Time `json:"since,omitempty"`
	Until     *time.Time `json:"until,omitempty"` // nil if the pause lasts until the job is resumed
	Reason    string     `json:"reason,omitempty"`
	By        string     `json:"by,omitempty"` // the user who paused it
}

// Pause pauses jobs: their ticks are skipped. A job that is already paused gets the new end and reason. The list is nil if Pause failed before it tried to
// pause a job. Otherwise, the list has the jobs that were paused, even with an error.
func (o *Operator) Pause(ctx context.Context, req PauseRequest) ([]PausedJob, error) {
	if err := req.Requester.requesterFault(); err != nil {
		return nil, err
	}
	order := election.PauseOrder{For: req.For, Outcome: scheduler.SkippedPaused, Reason: req.Reason, By: req.By}
	if err := order.Validate(); err != nil {
		return nil, &refusal{ErrInvalid, err}
	}
	return o.pauseOrResume(ctx, req.Selection, req.Requester, journal.Act{Kind: journal.ActPause}, req.For, func(jobs []string) []election.Paused {
		return o.elector.Pause(ctx, jobs, order)
	})
}

// Resume ends the pauses of jobs. Its results have the same meaning as the results of [Operator.Pause].
func (o *Operator) Resume(ctx context.Context, req ResumeRequest) ([]PausedJob, error) {
	return o.pauseOrResume(ctx, req.Selection, req.Requester, journal.Act{Kind: journal.ActResume}, 0, func(jobs []string) []election.Paused {
		return o.elector.Resume(ctx, jobs)
	})
}

// pauseOrResume pauses or resumes jobs. It returns the error of the first job that failed.
func (o *Operator) pauseOrResume(ctx context.Context, s Selection, by Requester, act journal.Act, lasting time.Duration, do func([]string) []election.Paused) ([]PausedJob, error) {
	if err := by.requesterFault(); err != nil {
		return nil, err
	}
	jobs, err := o.selectedJobs(ctx, s)
	if err != nil {
		return nil, err
	}
	act.Jobs = jobs
	entry, err := o.auditAct(ctx, by, act, lasting)
	if err != nil {
		return nil, err
	}
	done, changed := []PausedJob{}, false
	var fault error
	for some := range slices.Chunk(jobs, maxPaused) {
		for _, p := range do(some) {
			switch {
			case p.Err == nil:
				done = append(done, pausedJob(p))
				changed = changed || isChange(p)
			case fault == nil:
				fault = p.Err
			}
		}
	}
	if !changed && fault == nil {
		o.markUnchanged(ctx, entry)
	}
	return done, pauseError(fault, len(jobs)-len(done))
}

// isChange reports whether a pause or resume has changed the pause of a job: whether it is on, its end, its reason or its user.
func isChange(p election.Paused) bool {
	before, after := p.Before.On(p.Now), p.After.On(p.Now)
	return before != after || after && (!p.Before.Until.Equal(p.After.Until) || p.Before.Reason != p.After.Reason || p.Before.By != p.After.By)
}

func pausedJob(p election.Paused) PausedJob {
	j := PausedJob{Job: p.Job, Paused: p.After.On(p.Now), WasPaused: p.Before.On(p.Now)}
	if j.Paused {
		j.Since, j.Until, j.Reason, j.By = &p.After.From, untilOf(p.After), p.After.Reason, p.After.By
	}
	return j
}

// untilOf returns the end of a pause; nil if it has none.
func untilOf(p election.Pause) *time.Time {
	if p.Until.IsZero() {
		return nil
	}
	return &p.Until
}

// pauseError returns the error for jobs that failed.
func pauseError(err error, jobs int) error {
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, election.ErrUnknown):
		return &refusal{ErrInvalid, err}
	}
	return unavailableError(fmt.Sprintf("no answer from Redis for %d of the jobs, so the result is unknown; run the command again", jobs), err)
}

// selectedJobs returns the names of the selected jobs, among those in the local configuration and those that replicas have described.
func (o *Operator) selectedJobs(ctx context.Context, s Selection) ([]string, error) {
	if len(s.Jobs) == 0 && len(s.Tags) == 0 && !s.All {
		return nil, refusalError(ErrInvalid, "no jobs are selected")
	}
	tags, err := o.tagsByJob(ctx)
	if err != nil {
		return nil, err
	}
	var names, known []string
	for name, has := range tags {
		known = append(known, has...)
		if s.All || slices.Contains(s.Jobs, name) || slices.ContainsFunc(has, func(tag string) bool { return slices.Contains(s.Tags, tag) }) {
			names = append(names, name)
		}
	}
	for _, name := range s.Jobs {
		if slices.Contains(names, name) {
			continue
		}
		if err := o.mustKnow(ctx, name); err != nil {
			return nil, err
		}
		names = append(names, name) // a replica has just described it
	}
	for _, tag := range s.Tags {
		if !slices.Contains(known, tag) {
			return nil, unknownTag(tag, known)
		}
	}
	if len(names) == 0 {
		return nil, refusalError(ErrNoJobs, "no job is known in namespace %s: neither the configuration nor a replica has one", o.cfg.Namespace)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// tagsByJob returns the tags of each known job, by its name.
func (o *Operator) tagsByJob(ctx context.Context) (map[string][]string, error) {
	infos, err := o.describedJobs(ctx)
	if err != nil {
		return nil, err
	}
	tags := map[string][]string{}
	for _, j := range o.cfg.Jobs {
		tags[j.Name] = j.Tags
	}
	for _, info := range infos {
		tags[info.Name] = slices.Concat(tags[info.Name], info.Tags)
	}
	return tags, nil
}

func unknownTag(tag string, known []string) error {
	if near := Nearest(tag, known); near != "" {
		return refusalError(ErrUnknownTag, "no job has the tag %q; did you mean %q?", tag, near)
	}
	return refusalError(ErrUnknownTag, "no job has the tag %q", tag)
}
