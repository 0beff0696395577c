package scheduler

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/scheduler/internal/agenda"
	"github.com/cronclave/cronclave/scheduler/run"
)

// inspections reads the states of jobs, in batches, and opens the ticks that are undecided in Redis and that this replica does not have open.
type inspections struct {
	*core
	lane[*task, inspectionBatch]
	recoveries *recoveries
	inspector  *inspector
}

type inspectionBatch struct {
	tasks     []*task
	requests  []election.InspectRequest
	states    []election.State
	undeleted []error
}

func (b *inspectionBatch) add(t *task, q election.InspectRequest) {
	b.tasks, b.requests = append(b.tasks, t), append(b.requests, q)
}

func (s *inspections) inspectDue(ctx context.Context, now time.Time) {
	if s.busy {
		return
	}
	tasks := s.due.Take(now, maxInspections)
	if len(tasks) == 0 {
		return
	}
	var b inspectionBatch
	for _, t := range tasks {
		q := election.InspectRequest{Lock: election.JobLock(t.Name), Acked: t.ackableTicks()}
		switch {
		case t.unknown:
			q = t.announceRequest(now)
			q.Acked = t.ackableTicks()
		case t.Behind != "": // no replica keeps more than MaxOpen ticks open: settle the undecided ticks before the open ticks, even before their deadlines
			q.SettleThrough = t.Spec.ID(t.Spec.Prev(now.Add(time.Nanosecond)))
			if len(t.Open) > 0 {
				q.SettleThrough = t.Open[0].Previous
			}
			q.SettleOutcome, q.SettleSchedule = missedBecause(t.Behind), t.scheduleDigest()
			if t.Elsewhere {
				q.SettleOutcome = missedBecause(s.cfg.missedReason(t, run.ReasonDown))
			}
		}
		b.add(t, q)
	}
	s.sendBatch(b, func(b *inspectionBatch) {
		b.states, b.undeleted = s.inspector.inspectJobs(context.WithoutCancel(ctx), b.requests)
	})
}

func (s *inspections) settleInspections(b inspectionBatch) {
	s.busy = false
	now := s.now()
	for i, st := range b.states {
		t := b.tasks[i]
		if st.Err != nil || b.undeleted[i] != nil {
			s.inspectAt(t, now.Add(longestPause))
		}
		if st.Err != nil {
			continue
		}
		s.forgetAcked(t, b.requests[i].Acked, now)
		if t.unknown && !t.dismissed {
			s.startAnnounced(t, b.requests[i], st, now)
		}
		s.recordMissed(t, st, now)
		if through := b.requests[i].SettleThrough; !through.IsZero() && !t.unknown { // if t.unknown, a reload replaced the schedule during the inspection
			if len(t.Open) == 0 || !through.Before(t.Open[0].Previous) {
				t.Behind = ""
			}
			s.agenda.Wake(&t.line, s.places.free(), now)
		}
		if t.Behind != "" { // the job fell further behind during the inspection
			s.inspectAt(t, now)
		}
		s.inspectRunning(t, st)
		s.inspectAt(t, lookAgain(st, now))
		s.recoveries.enqueueOrphans(t, st, now)
		s.reopenReturned(t, st, now)
		s.checkAfter(t, now)
	}
}

// beginSchedules announces the schedules of all jobs to Redis, and handles undecided ticks of the past: it opens the ticks whose deadline has not
// passed, and settles the other ticks as missed. It retries until Redis answers.
func (s *inspections) beginSchedules(ctx context.Context) error {
	var announce, settle inspectionBatch
	retry := newBackoff()
	now := s.now()
	for _, t := range s.tasks {
		if t.isChained() {
			s.announceTask(t, time.Time{})
			continue
		}
		announce.add(t, t.announceRequest(now))
	}
	if err := s.inspectUntilAnswered(ctx, &announce, retry); err != nil {
		return err
	}
	now = s.now()
	for i, t := range announce.tasks {
		if err := announce.states[i].Err; err != nil { // the data is damaged; a later inspection announces the schedule again, and the job's ticks begin then
			s.logRefused(t, err, now)
			s.announceTask(t, now.Add(longestPause))
			continue
		}
		s.agenda.Enter(&t.line, now)
		s.inspectRunning(t, announce.states[i])
		s.inspectAt(t, lookAgain(announce.states[i], now))
		s.recoveries.enqueueOrphans(t, announce.states[i], now)
		s.recordMissed(t, announce.states[i], now)
		if q := s.openPastTicks(t, announce.states[i], now); !q.SettleThrough.IsZero() {
			settle.add(t, q)
		}
		s.reopenReturned(t, announce.states[i], now)
	}
	if err := s.inspectUntilAnswered(ctx, &settle, retry); err != nil {
		return err
	}
	for i, t := range settle.tasks {
		s.recordMissed(t, settle.states[i], now)
	}
	return nil
}

// inspectUntilAnswered repeats an inspection until Redis has returned a state for every job of a batch, or an error that the job's data is damaged.
// It fails only if ctx ends.
func (s *inspections) inspectUntilAnswered(ctx context.Context, b *inspectionBatch, retry *backoff.Backoff) error {
	b.states = make([]election.State, len(b.tasks))
	todo := make([]int, len(b.tasks))
	for i := range todo {
		todo[i] = i
	}
	for first := true; len(todo) > 0; first = false {
		var asked []election.InspectRequest
		for _, i := range todo {
			asked = append(asked, b.requests[i])
		}
		states, undeleted := s.inspector.inspectJobs(ctx, asked)
		for n, i := range todo {
			b.states[i] = states[n]
			if undeleted[n] != nil {
				s.inspectAt(b.tasks[i], s.now())
			}
		}
		todo = slices.DeleteFunc(todo, func(i int) bool { return b.states[i].Err == nil || isDamaged(b.states[i].Err) })
		if len(todo) == 0 {
			break
		}
		if first {
			s.log.Warn("cannot read job states; trying again", "error", b.states[todo[0]].Err)
		}
		if !retry.Wait(ctx) {
			return fmt.Errorf("wait for the server: %w", b.states[todo[0]].Err)
		}
	}
	return nil
}

// mostLate is the maximum number of ticks past their deadlines that are opened for a job with PerTick > 1.
const mostLate = 100

// openPastTicks opens the undecided ticks of the past whose deadline has not passed. It returns a request that settles the earlier ticks as missed.
func (s *inspections) openPastTicks(t *task, st election.State, now time.Time) election.InspectRequest {
	settle := election.InspectRequest{Lock: election.JobLock(t.Name), SettleOutcome: missedBecause(s.cfg.missedReason(t, run.ReasonDown)), SettleSchedule: t.scheduleDigest()}
	var open []time.Time
	t.NewRules = st.RulesSince
	singly := 0 // the number of late ticks that are opened nevertheless, to be settled one by one
	if t.PerTick > 1 {
		singly = mostLate // a tick that had some of its runs is not missed, and only a claim shows whether the tick had runs
	}
	for at := t.Spec.Prev(now.Add(time.Nanosecond)); t.Spec.ID(at).After(st.Decided); at = t.Spec.Prev(at) {
		deadline := t.Extended(at, t.Deadline(at, t.Spec.Next(at)), len(open) == 0)
		late := deadline.Before(st.Now)
		if late && singly == 0 || len(open) == agenda.MaxOpen {
			settle.SettleThrough = t.Spec.ID(at)
			if late { // otherwise the limit of open ticks is reached, and the earlier ticks are settled even before their deadlines
				settle.SettleDeadline = deadline
			}
			break
		}
		if late {
			singly--
		}
		open = append(open, at)
	}
	for _, tick := range slices.Backward(open) {
		k := s.agenda.Open(&t.line, agenda.InstantsOf(t.Spec, tick), now)
		k.Wait(agenda.Cause{Reason: run.ReasonDown})
	}
	return settle
}

// recordMissed records gaps that are not recorded yet. A gap is a range of ticks that were settled together. The replica that settled a gap may have
// died before it recorded the gap. The records of a gap are the same on every replica, so duplicates do no harm.
func (s *inspections) recordMissed(t *task, st election.State, now time.Time) {
	for _, of := range st.Settled {
		switch {
		case !isGap(of) || t.isSettled(of.Tick):
		case of.Schedule != t.scheduleDigest():
			s.ackWhenWritten(t, of.Tick, now, s.inspector.missedBefore(t, of))
		default:
			s.ackWhenWritten(t, of.Tick, now, s.inspector.recordGap(t, gap{of, st.Pause})...)
		}
	}
}

// announceTask schedules the announcement of a job's schedule to Redis. The job has no ticks before Redis has answered.
func (s *inspections) announceTask(t *task, now time.Time) {
	t.unknown = true
	if t.isChained() { // the check also registers the child as a follower of its parents
		s.checkAt(t, now)
		return
	}
	s.inspectAt(t, now)
}

// startAnnounced starts the ticks of a job after Redis has received its schedule, as [inspections.beginSchedules] does for all jobs.
func (s *inspections) startAnnounced(t *task, told election.InspectRequest, st election.State, now time.Time) {
	if told.Schedule != t.scheduleDigest() { // a reload changed the schedule before the answer arrived
		s.inspectAt(t, now)
		return
	}
	t.unknown = false
	if t.isChained() {
		s.checkAt(t, now)
		return
	}
	s.agenda.Enter(&t.line, now)
	if q := s.openPastTicks(t, st, now); !q.SettleThrough.IsZero() {
		t.Behind = run.ReasonDown
		s.inspectAt(t, now)
	}
}

// reopenReturned opens ticks that were granted and given back before their start. Replicas had closed these ticks because of the grants. The reopened ticks
// wait for a slot, and are not skipped.
func (s *inspections) reopenReturned(t *task, st election.State, now time.Time) {
	reason := run.ReasonLate // a guess: only the replica that gave the tick back knows the reason
	if t.Pool.Name != "" {
		reason = run.ReasonPool
	}
	if t.isChained() { // a check reopens the ticks, after a comparison with the ticks of the parents
		if len(st.Open) > 0 {
			s.checkAt(t, now)
		}
		return
	}
	if s.exec.Unable() != "" {
		reason = run.ReasonCapacity
	}
	for _, name := range st.Open {
		s.reopenTick(t, name, reason, now)
	}
}

// reopenTick opens one tick, unless this replica has it open.
func (s *inspections) reopenTick(t *task, name time.Time, reason run.Reason, now time.Time) {
	if _, open := t.Find(name); open || t.unknown || t.dismissed || len(t.Open) >= agenda.MaxOpen {
		return
	}
	at, named := t.Spec.Instant(name)
	if !named {
		return
	}
	k := s.agenda.Open(&t.line, agenda.InstantsOf(t.Spec, at), now)
	k.Wait(agenda.Cause{Reason: reason, Borrowed: k.Cause.Borrowed})
	if k.WasCaughtUp(now) {
		k.Cause.Reason = run.ReasonDown
	}
}
