package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler/internal/failpoint"
	"github.com/cronclave/cronclave/scheduler/run"
)

// An inspector reads the states of jobs from Redis, and records the outcomes of ticks and runs that no replica has recorded yet. It is safe for
// concurrent use.
type inspector struct {
	claimer   Claimer
	recorder  *run.Recorder
	log       hclog.Logger
	replica   string
	gone      func(identity string) bool
	rules     atomic.Pointer[map[string]recoverRules] // by job; jobs without Recover are absent
	abandoned abandonedRecords
}

// inspectJobs reads the states of jobs, and records orphans and settled ticks. undeleted has an entry for each request: the error if the orphans of the job
// could not be recorded and deleted.
func (in *inspector) inspectJobs(ctx context.Context, requests []election.InspectRequest) (states []election.State, undeleted []error) {
	for part := range slices.Chunk(requests, maxInspections) {
		states = append(states, in.claimer.Inspect(ctx, part)...)
	}
	in.abandonOrphans(ctx, requests, states)
	written := make([][]*run.Receipt, len(states))
	for i, st := range states {
		written[i] = in.recordAbandoned(jobOf(requests[i]), st)
	}
	limit, cancel := context.WithTimeout(ctx, run.RecordTimeout)
	defer cancel()
	undeleted = make([]error, len(states))
	for i, st := range states {
		undeleted[i] = in.deleteOrphans(ctx, limit, jobOf(requests[i]), st, written[i])
	}
	in.recordSettled(ctx, limit, requests, states)
	return states, undeleted
}

func jobOf(q election.InspectRequest) string {
	job, _ := election.JobOf(q.Lock)
	return job
}

// abandonOrphans marks orphans as abandoned in Redis before they are recorded, so that their claimants can no longer withdraw their claims. It
// updates the states with the result.
func (in *inspector) abandonOrphans(ctx context.Context, requests []election.InspectRequest, states []election.State) {
	var asked []election.InspectRequest
	var places []int
	for i, st := range states {
		newestFirst(st.Orphans)
		q := election.InspectRequest{Lock: requests[i].Lock}
		for _, o := range st.Orphans {
			if !isDecided(o) && (!in.mayWithdraw(o, st.Now) || in.awaitsRecovery(jobOf(q), o)) {
				q.Abandon = append(q.Abandon, o.ID)
			}
		}
		if len(q.Abandon) > 0 {
			asked, places = append(asked, q), append(places, i)
		}
	}
	if len(asked) == 0 {
		return
	}
	for n, after := range in.claimer.Inspect(ctx, asked) {
		st := &states[places[n]]
		if after.Err != nil { // the orphans stay undecided, so this inspection does not record them
			in.log.Debug("runs not abandoned; trying again", "job", jobOf(asked[n]), "error", after.Err)
			continue
		}
		newestFirst(after.Orphans)
		st.Orphans, st.Running, st.Open = after.Orphans, after.Running, after.Open
	}
}

// isDecided reports whether the claimant of an orphan can no longer withdraw its claim, so that the tick stays decided.
func isDecided(o election.Run) bool { return o.Abandoned || o.EndedWell || o.Stopped != "" }

// mayWithdraw reports whether the claimant of an orphan is alive, may not have received the grant, and may still withdraw its claim.
func (in *inspector) mayWithdraw(o election.Run, now time.Time) bool {
	claimant, deadline := o.Claimant()
	return claimant != "" && now.Before(deadline) && in.gone != nil && !in.gone(claimant)
}

// lookAgain returns the time of the next inspection of a job with undecided orphans, whose claimants may still withdraw their claims. It returns the
// zero time if there is no such orphan.
func lookAgain(st election.State, now time.Time) (at time.Time) {
	for _, o := range st.Orphans {
		if isDecided(o) {
			continue
		}
		next := now.Add(longestPause)
		if _, deadline := o.Claimant(); deadline.After(st.Now) && deadline.Before(next) {
			next = deadline
		}
		if at.IsZero() || next.Before(at) {
			at = next
		}
	}
	return at
}

// recordSettled records settled ticks that are not recorded yet, and acknowledges them to Redis when the records are written. The replica that settled a
// tick may have died before it recorded the tick. The loop records gaps (settlements of several ticks), because only the loop has the schedules.
func (in *inspector) recordSettled(ctx, limit context.Context, requests []election.InspectRequest, states []election.State) {
	var told []election.InspectRequest
	for i, st := range states {
		q := election.InspectRequest{Lock: requests[i].Lock}
		var written []*run.Receipt
		single := slices.DeleteFunc(slices.Clone(st.Settled), isGap)
		for _, tick := range single {
			r := in.recorder.Add(tickRecord(jobOf(q), named{tick.Tick, tick.Instant}, run.ParseVerdict(tick.Outcome), in.replica, tick.At))
			written = append(written, r)
		}
		for n, r := range written {
			if r.Wait(limit) == nil {
				q.Acked = append(q.Acked, single[n].Tick)
			}
		}
		if len(q.Acked) > 0 {
			told = append(told, q)
		}
	}
	if len(told) > 0 {
		in.claimer.Inspect(ctx, told) // if the acknowledgement is lost, the next inspection sends it again
	}
}

// recordAbandoned records decided orphans: as ok if the run had succeeded, otherwise as abandoned, with the reason if the run was asked to stop.
// Every replica that sees an orphan records it once. The records are equal, and the journal keeps the first. written has one entry per orphan, nil
// for an undecided one.
func (in *inspector) recordAbandoned(job string, st election.State) (written []*run.Receipt) {
	lost := in.unrecoverableIDs(job, st)
	for _, o := range st.Orphans {
		if !isDecided(o) {
			written = append(written, nil)
			continue
		}
		if r := in.abandoned.receiptOf(job, o.ID); r != nil {
			written = append(written, r)
			continue
		}
		outcome, reason := run.Abandoned, run.Reason(o.Stopped)
		if o.EndedWell {
			outcome, reason = run.OK, ""
		}
		if !in.recorder.HasJournal() && outcome == run.Abandoned { // with a journal, only the replica whose record of the run is stored first logs the run
			in.log.Error("run abandoned: its holder is gone", "job", job, "run_id", o.ID, "token", o.Token, "replica", o.Holder)
		}
		written = append(written, in.recorder.Add(run.Record{RunID: o.ID, Job: job, Tick: o.Instant(), TickLocal: run.LocalText(named{o.Tick, o.Instant()}.localTime()), Trigger: o.Trigger, Slot: new(o.Slot), Attempt: o.Attempt,
			Token: int64(o.Token), Replica: o.Holder, Outcome: outcome, Reason: reason, Finished: st.Now, Recovers: !lost[o.ID]}))
	}
	return written
}

// deleteOrphans deletes the orphans that no replica will recover. It waits until their records are written, so that no record is lost if this replica
// dies in between.
func (in *inspector) deleteOrphans(ctx, limit context.Context, job string, st election.State, written []*run.Receipt) error {
	var ids []string
	var unwritten error
	unrecoverable, kept := in.unrecoverableIDs(job, st), map[string]*run.Receipt{}
	for i, w := range written {
		if w == nil {
			continue
		}
		if id := st.Orphans[i].ID; !unrecoverable[id] {
			kept[id] = w
			continue
		}
		if err := w.Wait(limit); err != nil {
			unwritten = fmt.Errorf("record an abandoned run of job %s: %w", job, err)
			continue
		}
		ids = append(ids, st.Orphans[i].ID)
	}
	if st.Err == nil {
		in.abandoned.replaceReceipts(job, kept)
	}
	if len(ids) == 0 {
		return unwritten
	}
	return errors.Join(unwritten, in.claimer.DeleteOrphans(ctx, job, ids...))
}

// awaitsRecovery reports whether a replica is to recover an orphan. It returns false if the run had succeeded, was canceled or replaced, or has used
// up its attempts. It is safe for concurrent use.
func (in *inspector) awaitsRecovery(job string, o election.Run) bool {
	return !o.EndedWell && o.Stopped == "" && (*in.rules.Load())[job].allowsAttempt(o.Tick, o.Attempt)
}

// unrecoverableIDs returns the ids of the orphans that no replica will recover. The orphans must be sorted newest first, because only the first
// maxRecoveries are recovered.
func (in *inspector) unrecoverableIDs(job string, st election.State) (ids map[string]bool) {
	ids = map[string]bool{}
	for i, o := range st.Orphans {
		if i >= maxRecoveries || !in.awaitsRecovery(job, o) || (*in.rules.Load())[job].isDisplaced(o, st.Running) {
			ids[o.ID] = true
		}
	}
	return ids
}

// maxRecoveries is the maximum number of orphans of a job that wait for a recovery. If there are more, the orphans of the oldest ticks are abandoned.
const maxRecoveries = 100

func newestFirst(orphans []election.Run) {
	slices.SortFunc(orphans, func(x, y election.Run) int { return cmp.Or(y.Tick.Compare(x.Tick), cmp.Compare(x.ID, y.ID)) })
}

// An abandonedRecords holds the receipts for the records of orphans that await a recovery. Each inspection finds these orphans again, and only the
// first inspection records them.
type abandonedRecords struct {
	mu    sync.Mutex
	byJob map[string]map[string]*run.Receipt // by job and run id
}

// receiptOf returns the receipt for the record of an orphan, or nil if the orphan must be recorded.
func (m *abandonedRecords) receiptOf(job, id string) *run.Receipt {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.byJob[job][id]; r != nil && !r.Failed() {
		return r
	}
	return nil
}

// replaceReceipts replaces the receipts of a job, so that the receipts of former orphans are forgotten.
func (m *abandonedRecords) replaceReceipts(job string, receipts map[string]*run.Receipt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(receipts) == 0 {
		delete(m.byJob, job)
		return
	}
	if m.byJob == nil {
		m.byJob = map[string]map[string]*run.Receipt{}
	}
	m.byJob[job] = receipts
}

// maxMissed is the maximum number of ticks of a gap with a record each. One more record stands for all earlier ticks. The history of a job keeps 50 records by
// default: with more for a gap, it would lose all runs before the gap, and the record of the earlier ticks.
const maxMissed = 20

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

// verdictAt returns the verdict on one tick of the gap. A tick in a pause was not missed: its verdict is the outcome that is stored with the pause.
func (g gap) verdictAt(at time.Time) run.Verdict {
	if g.pause.Covers(at) {
		return run.ParseVerdict(g.pause.Outcome)
	}
	return run.ParseVerdict(g.Outcome)
}

// missedBefore records a gap of a former schedule of the job. This replica cannot compute the ticks of that schedule, so there is one record for all.
func (in *inspector) missedBefore(t *task, of election.Settlement) *run.Receipt {
	r := tickRecord(t.Name, named{of.Tick, of.Tick}, run.ParseVerdict(of.Outcome), in.replica, of.At)
	r.Output = new(fmt.Sprintf("one record for the ticks after %s and up to this one, of a schedule that was edited since", of.After.UTC().Format(time.RFC3339)))
	return in.recorder.Add(r)
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

// recordSummary writes one record for the ticks of a gap up to newest. The id of the record comes from the first tick, so that every replica writes the same
// id, even if the gap grows. The output of the record has the number of ticks.
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
		r.Output = new("one record for " + summary)
	}
	written = in.recorder.Add(r)
	return written, summary
}
