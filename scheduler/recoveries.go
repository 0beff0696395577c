package scheduler

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler/internal/agenda"
	"github.com/cronclave/cronclave/scheduler/run"
)

// Recoveries: a tick whose run was interrupted runs again, on any replica.
//
// A run is interrupted when its replica dies or drains, or when its lease is lost. It leaves an orphan in the job's lock. Each replica that sees the
// orphan claims the recovery, and one replica wins it. The recovery is attempt n+1, with a greater token and a new run id. A run is not recovered if
// it had succeeded, was canceled or replaced, was outside the schedule, or has used up its attempts.

// A recovery is an orphan that this replica may recover. It is kept until a replica has recovered or deleted the orphan.
type recovery struct {
	task    *task
	rules   *agenda.Rules // the settings of the job at the time of the claim
	id      string        // the id of the claim, and of the run
	of      election.Run
	placed  bool // it occupies a place, because its claim is under way or has an unknown result
	doubted bool // a claim was not answered
	queued  agenda.Entry[*recovery]
}

// recoveries sends claims for the orphans that this replica has seen, in batches.
type recoveries struct {
	*core
	lane[*recovery, recoveryBatch]
	starts    *starts
	inspector *inspector
	known     map[string]map[string]*recovery // by job, and by the run id of the orphan; jobs without orphans are absent
	swept     chan []string                   // jobs in which a sweep found orphans or unrecorded ticks; if the channel is full, a send drops the jobs
}

type recoveryBatch struct {
	orphans []*recovery
	results []election.Result
}

// enqueueOrphans queues the recoverable orphans of a job for claims. It does nothing if this replica must not run the job.
func (r *recoveries) enqueueOrphans(t *task, st election.State, now time.Time) {
	if t.Elsewhere || t.dismissed || r.leaving || len(st.Orphans) == 0 {
		return
	}
	unrecoverable := r.inspector.unrecoverableIDs(t.Name, st)
	for _, o := range st.Orphans {
		if r.known[t.Name][o.ID] != nil || unrecoverable[o.ID] || !isDecided(o) {
			continue
		}
		h := &recovery{task: t, rules: t.Rules, id: newRunID(), of: o}
		h.queued.Value = h
		if r.known[t.Name] == nil {
			r.known[t.Name] = map[string]*recovery{}
		}
		r.known[t.Name][o.ID] = h
		r.due.Set(&h.queued, now.Add(r.cfg.turnDelay(t, o.Tick)))
	}
}

// claimDue claims all orphans that are due, in one batch. It postpones the claim of an orphan if this replica has no free place, and another replica may
// recover the orphan first.
func (r *recoveries) claimDue(ctx context.Context, now time.Time) {
	if r.busy {
		return
	}
	var b recoveryBatch
	var claims []election.Claim
	for _, h := range r.due.Take(now, maxClaims) {
		switch t := h.task; {
		case t.Elsewhere || t.dismissed || !r.inspector.awaitsRecovery(t.Name, h.of):
			r.dropOrphan(h)
			r.inspectAt(t, now) // the inspection records and deletes the orphan
			continue
		case !h.placed && (r.places.free() <= 0 || t.Running >= t.PerReplica):
			r.due.Set(&h.queued, now.Add(heldPause))
			continue
		case !h.placed && !h.doubted:
			h.rules = t.Rules // a reload may have changed the configuration
		}
		if !h.placed {
			h.placed = true
			r.places.takePlace(h.task)
		}
		b.orphans, claims = append(b.orphans, h), append(claims, h.asClaim())
	}
	if len(claims) == 0 {
		return
	}
	r.sendBatch(b, func(b *recoveryBatch) {
		b.results = r.cfg.Claimer.Claim(context.WithoutCancel(ctx), claims)
	})
}

// asClaim returns the claim of the recovery. Each call returns the same claim, so that Redis repeats its answer if the answer was lost.
func (h *recovery) asClaim() election.Claim {
	return election.Claim{Lock: election.JobLock(h.rules.Name), ID: h.id, Trigger: run.Recovered, Adopt: h.of.ID, Slots: h.rules.Parallel, Lease: h.rules.Runs.Lease,
		Memo: election.Memo("", time.Time{}, instantOfName(h.of.Tick, h.of.Instant()))}
}

func (r *recoveries) settleRecoveries(b recoveryBatch) {
	r.busy = false
	now := r.now()
	changed := make([]*task, len(b.orphans))
	for i, h := range b.orphans {
		changed[i] = h.task
		r.settleOne(h, b.results[i], now)
	}
	r.wakeParked(now, changed...)
}

func (r *recoveries) settleOne(h *recovery, result election.Result, now time.Time) {
	again := now.Add(heldPause)
	switch {
	case result.Verdict == election.Granted:
		r.startRun(h, election.TermOf(result))
		return
	case r.leaving:
		h.doubted = h.doubted || result.Verdict == election.CannotTell
		r.dropOrphan(h)
		return
	case result.Verdict == election.CannotTell && errors.Is(result.Err, election.ErrUnknown): // the recovery keeps its place, because its claim may have been granted
		h.doubted = true
	case result.Verdict == election.Held:
		r.unplaceRecovery(h)
		r.inspectAt(h.task, result.Until)
	case result.Verdict == election.Closed:
		r.unplaceRecovery(h)
		if result.Until.After(again) {
			again = result.Until
		}
	default: // another replica has recovered or deleted the orphan; an inspection finds a new orphan if that replica dies, too
		if result.Err != nil {
			r.log.Error("recovery refused", "job", h.task.Name, "run_id", h.of.ID, "error", result.Err)
		}
		r.dropOrphan(h)
		r.inspectAt(h.task, now)
		return
	}
	r.due.Set(&h.queued, again)
}

// startRun starts a granted recovery. In a drain it gives the grant back instead, and the orphan waits for another recovery.
func (r *recoveries) startRun(h *recovery, term *election.Term) {
	r.forgetOrphan(h)
	h.placed = false // from here on the run holds the place
	g := &grant{task: h.task, rules: h.rules, of: named{h.of.Tick, h.of.Instant()}, trigger: run.Recovered}
	if r.leaving {
		r.starts.giveBack(g, term)
		return
	}
	r.log.Info("recovering", "job", h.task.Name, "tick", h.of.Instant().Format(time.RFC3339), "of_run", h.of.ID, "of_replica", h.of.Holder,
		"run_id", term.ID(), "attempt", term.Attempt())
	g.term = term
	r.starts.startGrant(g)
}

func (r *recoveries) forgetOrphan(h *recovery) {
	of := r.known[h.task.Name]
	if delete(of, h.of.ID); len(of) == 0 {
		delete(r.known, h.task.Name)
	}
}

// wakeOf makes the waiting claims of a job's orphans due now, and reports whether there are any. It is called when a slot becomes free, before the
// job's waiting ticks are woken: otherwise these ticks would always take the slot.
func (r *recoveries) wakeOf(t *task, now time.Time) (any bool) {
	for _, h := range r.known[t.Name] {
		if _, waiting := h.queued.When(); waiting {
			r.due.Set(&h.queued, now)
			any = true
		}
	}
	return any
}

func (r *recoveries) unplaceRecovery(h *recovery) {
	if h.placed {
		h.placed = false
		r.places.releasePlace(h.task)
	}
}

// dropOrphan forgets an orphan, and withdraws its claim if the claim may have been granted.
func (r *recoveries) dropOrphan(h *recovery) {
	r.forgetOrphan(h)
	r.due.Remove(&h.queued)
	if h.doubted {
		r.cfg.Claimer.Withdraw(h.asClaim())
	}
	r.unplaceRecovery(h)
}

// dropAll forgets the orphans whose claims are not under way. It is called in a drain.
func (r *recoveries) dropAll() {
	for _, of := range r.known {
		for _, h := range of {
			if _, waiting := h.queued.When(); waiting {
				r.dropOrphan(h)
			}
		}
	}
}

// reportSwept asks the loop to inspect the jobs in which a sweep found orphans that await a recovery, or unrecorded gaps.
func (r *recoveries) reportSwept(requests []election.InspectRequest, states []election.State) {
	var jobs []string
	for i, st := range states {
		job := jobOf(requests[i])
		if len(st.Orphans) > len(r.inspector.unrecoverableIDs(job, st)) || slices.ContainsFunc(st.Settled, isGap) {
			jobs = append(jobs, job)
		}
	}
	if len(jobs) == 0 {
		return
	}
	select {
	case r.swept <- jobs:
	default: // the loop has not received the previous jobs yet; the next sweep finds these jobs again
	}
}

func (r *recoveries) handleSwept(jobs []string, now time.Time) {
	for _, job := range jobs {
		if t := r.tasks[job]; t != nil {
			r.inspectAt(t, now)
		}
	}
}

// roomFor wakes ticks that wait for the end of a run: on this replica at once, on other replicas by an event. rules are the settings with which the
// run began.
func (r *recoveries) roomFor(t *task, rules *agenda.Rules, term *election.Term, now time.Time) {
	r.checkAfter(t, now)
	if !r.leaving {
		r.wakeOf(t, now)
		r.agenda.WakeContending(&t.line, now)
	}
	if term != nil && (rules.Overlap != agenda.Skip || len(t.children) > 0) {
		r.published.ended = append(r.published.ended, term)
	}
}

// wakeWaiting schedules claims for a job after a slot became free: first for its orphans, and then for its waiting ticks, each with the delay of this
// replica's rank for the tick.
func (r *recoveries) wakeWaiting(t *task, now time.Time) {
	from := now
	if r.wakeOf(t, now) {
		from = now.Add(rankStep)
	}
	r.agenda.WakeWaiting(&t.line, from, now)
}
