package cluster

import (
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

// Trigger asks the replicas for a run, and returns at once; [Operator.AwaitStart] waits for the answer. It refuses a request that no replica would accept.
func (o *Operator) Trigger(ctx context.Context, req TriggerRequest) (journal.Request, error) {
	r := journal.Request{ID: "request-" + strings.ToLower(rand.Text()[:16]), Job: req.Job, Tick: req.Tick, By: req.By}
	if err := req.requesterFault(); err != nil {
		return r, err
	}
	if req.ID != "" {
		switch earlier, asked, err := o.journal.Asked(ctx, req.requestKey()); {
		case errors.Is(err, ErrTooMany):
			return r, err
		case err != nil:
			return r, unavailableError("look for an earlier request", err)
		case asked:
			return earlier, nil
		}
	}
	if err := o.mayTrigger(ctx, req.Job, req.Tick); err != nil {
		return r, err
	}
	act := journal.Act{Kind: journal.ActTrigger, Jobs: []string{req.Job}}
	if !req.Tick.IsZero() {
		act.Tick = &req.Tick
	}
	entry, err := o.auditAct(ctx, req.Requester, act, 0, notDone(act.Kind))
	if err != nil {
		return r, err
	}
	if req.Follow { // before the run can start, so that no output is missed
		if err := o.journal.Follow(ctx, req.Job); err != nil {
			return r, unavailableError("ask for a run of job "+req.Job, err)
		}
	}
	r, err = o.writeRequest(ctx, r, req)
	switch {
	case errors.Is(err, ErrTooMany):
		o.markUnchanged(ctx, entry)
		return r, err
	case err != nil:
		return r, unavailableError("ask", err)
	}
	r.Tick = req.Tick // keeps the time zone that the caller used
	return r, nil
}

// writeRequest publishes the request. Requests with the same id of the caller are published once.
func (o *Operator) writeRequest(ctx context.Context, r journal.Request, req TriggerRequest) (journal.Request, error) {
	if req.ID == "" {
		return o.journal.Ask(ctx, r, requestLife)
	}
	return o.journal.AskOnce(ctx, req.requestKey(), r, requestLife)
}

// requestKey returns a key that is the same for all requests of a user with the same id, job and tick.
func (r TriggerRequest) requestKey() string {
	sum := sha256.Sum256([]byte(strings.Join([]string{r.By, r.Job, r.Tick.UTC().Format(time.RFC3339), r.ID}, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// mayTrigger returns an error for a request that no replica would accept.
func (o *Operator) mayTrigger(ctx context.Context, job string, tick time.Time) error {
	infos, err := o.describedJobs(ctx)
	if err != nil {
		return err
	}
	info, described := findJob(infos, job)
	if !described {
		if err := o.mustKnow(ctx, job); err != nil {
			return err
		}
		return refusalError(ErrNoReplica, "job %s: no replica has it", job)
	}
	if !info.Enabled {
		return refusalError(ErrDisabled, "job %s is not enabled, so no replica has it", job)
	}
	if err := mustBeTick(o.Zones(), info, tick); err != nil {
		return err
	}
	replicas, err := o.journal.Replicas(ctx)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return unavailableError("list the replicas of namespace "+o.cfg.Namespace, err)
	}
	if !slices.ContainsFunc(replicas, func(r journal.Replica) bool {
		return !r.Draining && scheduler.Labels(r.Labels).Include(info.Where) && (info.On == "" || info.On == r.Name)
	}) {
		return refusalError(ErrNoReplica, "job %s: no replica is there that could run it", job)
	}
	return nil
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
