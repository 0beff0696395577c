package scheduler

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/scheduler/internal/agenda"
	"github.com/cronclave/cronclave/scheduler/internal/failpoint"
	"github.com/cronclave/cronclave/scheduler/run"
)

type inspectionBatch struct {
	tasks     []*task
	requests  []election.InspectRequest
	states    []election.State
	undeleted []error
}

func (b *inspectionBatch) add(t *task, q election.InspectRequest) {
	b.tasks, b.requests = append(b.tasks, t), append(b.requests, q)
}

func (s *Scheduler) inspectDue(ctx context.Context, now time.Time) {
	if s.inspections.busy {
		return
	}
	tasks := s.inspections.due.Take(now, maxInspections)
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
		case t.Behind != "": // settle the ticks regardless of their deadlines, because no replica keeps so many open ticks
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
	s.inspections.sendBatch(b, func(b *inspectionBatch) {
		b.states, b.undeleted = s.inspector.inspectJobs(context.WithoutCancel(ctx), b.requests)
	})
}

func (s *Scheduler) settleInspections(b inspectionBatch) {
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
		if through := b.requests[i].SettleThrough; !through.IsZero() && !t.unknown { // unknown: a reload replaced the schedule
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
func (s *Scheduler) beginSchedules(ctx context.Context) error {
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
		if err := announce.states[i].Err; err != nil { // a later inspection announces the job again, and its ticks begin then
			s.logDamage(t, err, now)
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
func (s *Scheduler) inspectUntilAnswered(ctx context.Context, b *inspectionBatch, retry *backoff.Backoff) error {
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

// openPastTicks opens the undecided ticks of the past whose deadline has not passed. It returns a request that settles the earlier ticks as missed.
func (s *Scheduler) openPastTicks(t *task, st election.State, now time.Time) election.InspectRequest {
	settle := election.InspectRequest{Lock: election.JobLock(t.Name), SettleOutcome: missedBecause(s.cfg.missedReason(t, run.ReasonDown)), SettleSchedule: t.scheduleDigest()}
	var open []time.Time
	t.NewRules = st.RulesSince
	singly := 0 // the number of late ticks that are still opened, to be settled one by one
	if t.PerTick > 1 {
		singly = maxMissed // a tick with some of its runs was not missed, and only its own claim finds this out
	}
	for at := t.Spec.Prev(now.Add(time.Nanosecond)); t.Spec.ID(at).After(st.Decided); at = t.Spec.Prev(at) {
		deadline := t.Extended(at, t.Deadline(at, t.Spec.Next(at)), len(open) == 0)
		late := deadline.Before(st.Now)
		if late && singly == 0 || len(open) == agenda.MaxOpen {
			settle.SettleThrough = t.Spec.ID(at)
			if late { // otherwise too many ticks are open, and the deadline does not matter
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

// recordMissed records gaps that are not recorded yet. The replica that settled a gap may have died before it recorded the gap. The records of a gap
// are the same on every replica, so duplicates do no harm.
func (s *Scheduler) recordMissed(t *task, st election.State, now time.Time) {
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

// An unacked has the receipts for the records of one settlement that this replica has not acknowledged to Redis yet. Redis keeps a settlement until
// it is acknowledged, because the replica that settled the tick may have died before it recorded the settlement.
type unacked struct {
	tick    time.Time
	written []*run.Receipt
}

// ackDelay is the time for which acknowledgements are collected before they are sent.
const ackDelay = 10 * time.Second

// maxUnacked is the number of settlements of a job that Redis keeps. If there are more, Redis drops the oldest.
const maxUnacked = 100

// isSettled reports whether this replica has queued the records of the settlement that ends with a tick.
func (t *task) isSettled(tick time.Time) bool {
	return slices.ContainsFunc(t.unacked, func(u unacked) bool { return u.tick.Equal(tick) })
}

// ackableTicks returns the ticks of the settlements whose records are all written.
func (t *task) ackableTicks() (ticks []time.Time) {
	for _, u := range t.unacked {
		if !slices.ContainsFunc(u.written, func(r *run.Receipt) bool { return !r.Succeeded() }) {
			ticks = append(ticks, u.tick)
		}
	}
	return ticks
}

// maxMissed is the maximum number of ticks of a gap with a record each, because the history keeps no more records. One more record stands for all
// earlier ticks.
const maxMissed = 100

// maxCounted is the maximum to which the earlier ticks of a gap are counted, because counting takes time: a job that runs every second has 600,000
// ticks in a week.
const maxCounted = 10_000

// A gap is a range of ticks of a job that were settled together, because no replica decided them in time.
type gap struct {
	election.Settlement
	pause election.Pause
}

// isGap reports whether a settlement stands for a range of ticks.
func isGap(of election.Settlement) bool { return !of.After.IsZero() }

// missedBecause returns the verdict on missed ticks, as Redis stores it.
func missedBecause(reason run.Reason) string {
	return run.Verdict{Outcome: run.Missed, Reason: reason}.String()
}

// verdictAt returns the verdict on one tick of the gap. A tick in a pause has the verdict of the pause, because it was not missed.
func (g gap) verdictAt(at time.Time) run.Verdict {
	if g.pause.Covers(at) {
		return run.ParseVerdict(g.pause.Outcome)
	}
	return run.ParseVerdict(g.Outcome)
}

// missedBefore records a gap of a former schedule of the job. This replica cannot compute the ticks of that schedule, so there is one record for all.
func (in *inspector) missedBefore(t *task, of election.Settlement) *run.Receipt {
	r := tickRecord(t.Name, named{of.Tick, of.Tick}, run.ParseVerdict(of.Outcome), in.replica, of.At)
	r.Output = fmt.Appendf(nil, "one record for the ticks after %s and up to this one, of a schedule that was edited since", of.After.UTC().Format(time.RFC3339))
	written := in.recorder.Add(r)
	return written
}

// recordGap writes one record for each of the newest ticks of a gap, and one record for all earlier ticks.
func (in *inspector) recordGap(t *task, g gap) (written []*run.Receipt) {
	failpoint.Reach("gap", t.Name, g.Tick)
	n, paused, at, rest := 0, 0, t.Spec.UpTo(g.Tick), ""
	for ; t.Spec.ID(at).After(g.After) && n < maxMissed; at = t.Spec.Prev(at) {
		if g.pause.Covers(at) {
			paused++
		}
		w := in.recorder.Add(tickRecord(t.Name, named{t.Spec.ID(at), at}, g.verdictAt(at), in.replica, g.At))
		written = append(written, w)
		n++
	}
	if t.Spec.ID(at).After(g.After) {
		var w *run.Receipt
		w, rest = in.recordSummary(t, g, at)
		written = append(written, w)
	}
	if paused == n {
		in.log.Info("ticks not run, as the job was paused", "job", t.Name, "after", g.After, "through", g.Tick, "recorded", n, "together", rest)
		return written
	}
	in.log.Warn("ticks missed", "job", t.Name, "after", g.After, "through", g.Tick, "outcome", g.Outcome, "recorded", n, "paused", paused, "together", rest)
	return written
}

// recordSummary writes one record for the ticks of a gap up to newest. The record has the id of the first tick, so that it is the same on every
// replica and stays the same while the gap grows. Its output has the number of ticks.
func (in *inspector) recordSummary(t *task, g gap, newest time.Time) (written *run.Receipt, summary string) {
	n := 0
	for at := newest; t.Spec.ID(at).After(g.After) && n < maxCounted; at = t.Spec.Prev(at) {
		n++
	}
	more := ""
	if n == maxCounted {
		more = "at least "
	}
	first := t.Spec.After(g.After)
	r := tickRecord(t.Name, named{t.Spec.ID(first), first}, g.verdictAt(newest), in.replica, g.At)
	summary = fmt.Sprintf("%s%d ticks, from %s to %s", more, n, first.UTC().Format(time.RFC3339), newest.UTC().Format(time.RFC3339))
	if n > 1 {
		r.Ticks = n
		r.Output = []byte("one record for " + summary)
	}
	written = in.recorder.Add(r)
	return written, summary
}
