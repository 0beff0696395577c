package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

const (
	// requestLife is the time that a replica has to start the run of a request.
	requestLife = time.Minute
	// answerEvery is the interval at which AwaitStart checks for an answer. noticeAfter is the time after which AwaitStart calls waiting.
	answerEvery = 100 * time.Millisecond
	noticeAfter = 3 * time.Second
)

// A TriggerRequest is a request for a run of a job outside its schedule.
type TriggerRequest struct {
	Requester
	Job string `json:"-"`
	// Tick is a past tick of the schedule, which becomes the tick of the run; zero for none.
	Tick time.Time `json:"tick,omitzero" doc:"a past tick of the schedule, which the run gets as its own"`
	// ID is the caller's own id for the request; "" for none. Requests of one user with the same id, job and tick within ten minutes count as one.
	ID string `json:"id,omitempty" maxLength:"128" doc:"your own id: requests of a user with the same id, job and tick within ten minutes are one"`
	// Follow makes the replicas publish the run's output from its beginning, for [Operator.AwaitEnd].
	Follow bool `json:"-"`
}

// Triggered is the result of a trigger request. Its JSON is part of the contract with users.
type Triggered struct {
	Request string    `json:"request"`
	Job     string    `json:"job"`
	Tick    time.Time `json:"tick,omitzero"`
	// Outcome is running once the run has started, and the outcome of the run once it has ended. If the run will never start, it is skipped, missed or failed,
	// with a Reason.
	Outcome journal.Outcome `json:"outcome"`
	Reason  journal.Reason  `json:"reason,omitempty"`
	Replica string          `json:"replica,omitempty"`
	RunID   string          `json:"run_id,omitempty"`
	// Run is the record of the run after it has ended.
	Run *journal.Record `json:"run,omitempty"`
}

// Started reports whether a replica has started the run.
func (t *Triggered) Started() bool { return t.Outcome == journal.OutcomeRunning || t.Run != nil }

// An Asked is a request for a run of a job. If Err is not nil, the request was not made, and only its Job is valid.
type Asked struct {
	journal.Request
	Err error
}

// Trigger asks the replicas for a run of a job. For a job with per_tick = "all" it asks for a run of each described instance whose replica can run it. Trigger
// returns at once; [Operator.AwaitStart] waits for the answers. It refuses a request that no replica would accept. If only some of several requests fail, it
// returns all of them, sorted by their jobs; if all fail, it returns the first error.
func (o *Operator) Trigger(ctx context.Context, req TriggerRequest) ([]Asked, error) {
	if err := req.requesterFault(); err != nil {
		return nil, err
	}
	infos, err := o.describedJobs(ctx)
	if err != nil {
		return nil, err
	}
	candidates := instancesOf(infos, req.Job)
	if _, described := findJob(infos, req.Job); described || len(candidates) == 0 {
		candidates = []string{req.Job}
	}
	asked, left := o.askedEarlier(ctx, req, candidates)
	if len(left) > 0 {
		more, err := o.triggerNew(ctx, req, infos, left)
		if err != nil && (len(asked) == 0 || !errors.Is(err, ErrNoReplica)) {
			return nil, err
		}
		asked = append(asked, more...)
	}
	slices.SortFunc(asked, func(a, b Asked) int { return cmp.Compare(a.Job, b.Job) })
	if err := asked[0].Err; err != nil && !slices.ContainsFunc(asked, func(a Asked) bool { return a.Err == nil }) {
		return nil, err
	}
	return asked, nil
}

// askedEarlier returns the earlier requests for the jobs with the id of a request, also those that cannot be read, and the jobs that are left.
func (o *Operator) askedEarlier(ctx context.Context, req TriggerRequest, jobs []string) (asked []Asked, left []string) {
	if req.ID == "" {
		return nil, jobs
	}
	for _, job := range jobs {
		earlier, found, err := o.journal.Asked(ctx, req.keyFor(job))
		if err != nil && !errors.Is(err, ErrTooMany) {
			err = unavailableError("look for an earlier request", err)
		}
		if earlier.Job = job; found || err != nil {
			asked = append(asked, Asked{earlier, err})
		} else {
			left = append(left, job)
		}
	}
	return asked, left
}

// triggerNew asks for a run of each of the jobs that a replica can run now: a job, or the instances of a job. All runs are one act.
func (o *Operator) triggerNew(ctx context.Context, req TriggerRequest, infos []journal.JobInfo, jobs []string) ([]Asked, error) {
	jobs, err := o.jobsToTrigger(ctx, req, infos, jobs)
	if err != nil {
		return nil, err
	}
	act := journal.Act{Kind: journal.ActTrigger, Jobs: sortedUnion([]string{req.Job}, jobs)}
	if !req.Tick.IsZero() {
		act.Tick = &req.Tick
	}
	entry, err := o.auditAct(ctx, req.Requester, act, 0, notDone(act.Kind))
	if err != nil {
		return nil, err
	}
	var asked []Asked
	for _, job := range jobs {
		r, err := o.ask(ctx, req, job)
		asked = append(asked, Asked{r, err})
	}
	if !slices.ContainsFunc(asked, func(a Asked) bool { return !errors.Is(a.Err, ErrTooMany) }) {
		o.markUnchanged(ctx, entry)
	}
	return asked, nil
}

// ask publishes the request for a run of one job.
func (o *Operator) ask(ctx context.Context, req TriggerRequest, job string) (journal.Request, error) {
	r := journal.Request{ID: "request-" + strings.ToLower(rand.Text()[:16]), Job: job, Tick: req.Tick, By: req.By}
	if req.Follow { // before the run can start, so that no output is missed
		if err := o.journal.Follow(ctx, job); err != nil {
			return r, unavailableError("ask for a run of job "+job, err)
		}
	}
	r, err := o.writeRequest(ctx, r, req)
	if err != nil && !errors.Is(err, ErrTooMany) {
		err = unavailableError("ask", err)
	}
	r.Tick = req.Tick // keeps the time zone that the caller used
	return r, err
}

// writeRequest publishes the request. Requests with the same id of the caller are published once.
func (o *Operator) writeRequest(ctx context.Context, r journal.Request, req TriggerRequest) (journal.Request, error) {
	if req.ID == "" {
		return o.journal.Ask(ctx, r, requestLife)
	}
	return o.journal.AskOnce(ctx, req.keyFor(r.Job), r, requestLife)
}

// keyFor returns a key that is the same for all requests of a user with the same id and tick for a run of the job.
func (r TriggerRequest) keyFor(job string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{r.By, job, r.Tick.UTC().Format(time.RFC3339), r.ID}, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// jobsToTrigger returns the jobs that a replica can run now. It returns an error if there is no such job, or if no replica would accept the request.
func (o *Operator) jobsToTrigger(ctx context.Context, req TriggerRequest, infos []journal.JobInfo, jobs []string) (runnable []string, err error) {
	replicas, err := o.journal.Replicas(ctx)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return nil, unavailableError("list the replicas of namespace "+o.cfg.Namespace, err)
	}
	for _, job := range jobs {
		info, described := findJob(infos, job)
		if !described {
			var unknown *UnknownJobError
			if err := o.mustKnow(ctx, job); err != nil && !(errors.As(err, &unknown) && unknown.Everywhere) {
				return nil, err
			}
			return nil, refusalError(ErrNoReplica, "job %s: no replica has it", job)
		}
		if !info.Enabled {
			return nil, refusalError(ErrDisabled, "job %s is not enabled, so no replica has it", req.Job)
		}
		if err := mustBeTick(o.Zones(), info, req.Tick); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(replicas, func(r journal.Replica) bool {
			return !info.Everywhere && !r.Draining && scheduler.Labels(r.Labels).Include(info.Where) && (info.On == "" || info.On == r.Name)
		}) {
			runnable = append(runnable, job)
		}
	}
	switch {
	case len(runnable) == 0:
		return nil, refusalError(ErrNoReplica, "job %s: no replica is there that could run it", req.Job)
	case len(runnable) > 1 && req.Follow:
		return nil, refusalError(ErrInvalid, "the output of one run can be followed, and job %s runs on every replica: name one of %s", req.Job, strings.Join(runnable, ", "))
	}
	return runnable, nil
}

// mustBeTick returns an error if an instant is not a tick of the described schedule. If the schedule cannot be parsed, it returns nil, and the replicas check
// the tick.
func mustBeTick(zones *cronspec.Zones, info journal.JobInfo, tick time.Time) error {
	spec, zone, err := scheduleOf(zones, info)
	if tick.IsZero() || err != nil {
		return nil //nolint:nilerr // the replicas refuse a wrong tick
	}
	switch before := spec.Prev(tick); {
	case isTick(spec, tick):
		return nil
	case before.IsZero():
		return refusalError(ErrNotATick, "%s is no tick of job %s", tick.Format(time.RFC3339), info.Name)
	default:
		return refusalError(ErrNotATick, "%s is no tick of job %s; the last one before it is %s", tick.Format(time.RFC3339), info.Name,
			before.In(zone).Format(time.RFC3339))
	}
}

// AwaitStart waits until a replica has started the run of a request, or has refused the request. After three seconds it calls waiting once, unless waiting is
// nil. The argument of waiting is the replica that has taken the request, or "".
func (o *Operator) AwaitStart(ctx context.Context, r journal.Request, waiting func(replica string)) (*Triggered, error) {
	end := time.NewTimer(requestLife + noticeAfter)
	defer end.Stop()
	notice := time.After(noticeAfter)
	timer := time.NewTimer(0)
	defer timer.Stop()
	var answer journal.Answer
	var err error
	for {
		select {
		case <-ctx.Done():
			return nil, refusalError(ErrNotStarted, "job %s: not started: %w; the request is dropped a minute after it was made", r.Job, context.Cause(ctx))
		case <-end.C:
			if err != nil {
				return nil, unavailableError("wait for a replica", err)
			}
			return triggeredOf(r, journal.Answer{Request: r.ID, Outcome: journal.OutcomeMissed, Reason: "no replica has started it"}), nil
		case <-notice:
			if waiting != nil {
				waiting(answer.Replica)
			}
		case <-timer.C:
			var ok bool
			if answer, ok, err = o.journal.AnswerTo(ctx, r.ID); ok && answer.Outcome != "" {
				return triggeredOf(r, answer), nil
			}
			if errors.Is(err, journal.ErrCorrupt) {
				return nil, err
			}
			timer.Reset(answerEvery)
		}
	}
}

func triggeredOf(r journal.Request, a journal.Answer) *Triggered {
	return &Triggered{Request: a.Request, Job: r.Job, Tick: r.Tick, Outcome: a.Outcome, Reason: a.Reason, Replica: a.Replica, RunID: a.RunID}
}

// AwaitEnd passes the output of a run to v until the run has ended, and adds its outcome to t.
func (o *Operator) AwaitEnd(ctx context.Context, t *Triggered, v Viewer) error {
	record, err := newFollower(o.journal, t.Job, v).followRun(ctx, t.RunID)
	if err != nil {
		return err
	}
	t.Outcome, t.Reason, t.Run = record.Outcome, record.Reason, &record
	return nil
}
