package election

import (
	"context"
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/lease/engine"
)

// InspectRequest asks for the state of a job.
type InspectRequest struct {
	Job string
	// Schedule, if set, announces the schedule of a replica that starts: a schedule that is new to the cluster begins now.
	Schedule string
	// Behind is how many seconds the names of its ticks are behind their instants now, and ZoneRules identifies the zone data by which they are due; both
	// zero where the ticks are instants.
	Behind    int64
	ZoneRules string
	// SettleThrough, if set, settles the undecided ticks up to it, once the server's clock is past SettleDeadline; those in [State.Open]
	// that were decided before are claimed one by one.
	SettleThrough, SettleDeadline time.Time
	// SettleOutcome is their outcome, as ticks of the schedule SettleSchedule. The cluster keeps it for them together, until a replica has
	// acknowledged its record: see [State.Settled].
	SettleOutcome, SettleSchedule string
	// Follower, if set, is a job that runs after this one, and asks for the ticks that have ended well. Used is the tick up to which it needs no outcome any more.
	Follower string
	Used     time.Time
	// Acked are ticks of [State.Settled] whose outcome was recorded.
	Acked []time.Time
	// Abandon are orphans that are to be recorded as abandoned: from then on their claimants can't open their ticks again. See [Run.Abandoned].
	Abandon []string
}

// State is the state of a job in the cluster. Times are by the server's clock.
type State struct {
	Now     time.Time
	Decided time.Time   // every tick up to it is decided, but for those in Open
	Open    []time.Time // ticks that were granted, and returned before their start, oldest first
	Before  time.Time   // the same, before SettleThrough
	Closed  time.Time   // until then nothing is granted, since the server lost the lock's data; zero or past otherwise
	Pause   Pause       // the newest
	Running []Run
	Orphans []Run        // runs whose holder died, until [Elector.DeleteOrphans]
	Through time.Time    // to a follower: every tick up to it has ended, whatever its outcome
	Ended   []Ended      // and these of them, oldest first, have ended well
	Settled []Settlement // ticks that were settled by claims with KeepOutcome, or by an inspection with a SettleOutcome, until they are in Acked
	// RulesSince is since when the cluster has used the announced ZoneRules, if it has used others before; else zero.
	RulesSince time.Time
	Err        error // the state is unknown
}

// Settlement is a tick that was settled without a run: when, and with which outcome. With an After it is all that were undecided between that and the tick.
type Settlement = engine.Settlement

// Ended is a tick whose runs have all ended well, since Due together with all ticks before it.
type Ended = engine.Ended

// Run is a granted run as other replicas see it.
type Run struct {
	ID, Holder string
	Slot       int
	Token      int64
	Tick       time.Time // as in [Claim]; zero outside the schedule
	At         time.Time // the instant of the tick, by the replica that was granted it first
	Attempt    int
	Trigger    string
	Expires    time.Time // zero for an orphan
	EndedWell  bool      // an orphan's work had ended well when its holder died: see [Term.EndedWell]
	Stopped    string    // why the holder of an orphan was to stop; "" if it was not
	Abandoned  bool      // an orphan was abandoned: see [InspectRequest.Abandon]
	// Claimant is the identity of the replica that has claimed the run, and Deadline until when it might start, while it is possible that it never heard of
	// the grant: it may withdraw the claim then. Both are zero once the run was renewed, and for a recovery.
	Claimant string
	Deadline time.Time
}

// Inspect returns the state of many jobs in one round trip. A claimant with the verdict [Held] inspects the job just after
// Until, so every replica that is left notices a dead holder.
func (e *Elector) Inspect(ctx context.Context, inspections []InspectRequest) []State {
	requests := make([]engine.InspectRequest, len(inspections))
	for i, q := range inspections {
		requests[i] = engine.InspectRequest{Lock: lockOf(q.Job), Permanent: true, Schedule: q.Schedule, Behind: q.Behind, ZoneRules: q.ZoneRules,
			SettleThrough: q.SettleThrough, SettleDeadline: q.SettleDeadline, SettleOutcome: q.SettleOutcome, SettleSchedule: q.SettleSchedule,
			Follower: q.Follower, Used: q.Used, Acked: q.Acked, Abandon: q.Abandon}
	}
	states := make([]State, len(inspections))
	for i, s := range e.locks.Inspect(ctx, requests) {
		states[i] = State{Now: s.Now, Decided: s.Decided, Open: s.Open, Before: s.Before, Closed: s.Closed, Pause: s.Pause, Running: runs(s.Rows), Orphans: runs(s.Orphans),
			Through: s.Through, Ended: s.Ended, Settled: s.Settled, RulesSince: s.RulesSince, Err: Plain(s.Err)}
	}
	return states
}

func runs(rows []engine.Row) []Run {
	out := make([]Run, len(rows))
	for i, r := range rows {
		claimant, deadline, at := readMemo(r.Memo)
		out[i] = Run{ID: r.ID, Holder: r.Owner, Slot: r.Slot, Token: int64(r.Token), Tick: r.Tick, At: orTick(at, r.Tick),
			Attempt: r.Attempt, Trigger: r.Trigger, Expires: r.Expiry, EndedWell: r.EndedWell, Stopped: r.Stopped, Abandoned: r.Abandoned}
		if r.Attempt == 1 && !r.Renewed {
			out[i].Claimant, out[i].Deadline = claimant, deadline
		}
	}
	return out
}

// DeleteOrphans deletes orphans of a job whose outcome was recorded.
func (e *Elector) DeleteOrphans(ctx context.Context, job string, ids ...string) error {
	if err := e.locks.DeleteOrphans(ctx, lockOf(job), ids...); err != nil {
		return fmt.Errorf("delete orphans of job %s: %w", job, Plain(err))
	}
	return nil
}

// Forget removes the data of jobs that no replica has any more from the server, and returns the jobs that it removed. A job stays if it runs, has
// orphans, is paused, or was used after an instant of the server's clock. A removed job that comes back is new: it begins then.
func (e *Elector) Forget(ctx context.Context, jobs []string, unusedSince time.Time) (forgotten []string, err error) {
	locks := make([]string, len(jobs))
	for i, job := range jobs {
		locks[i] = lockOf(job)
	}
	removed, err := e.locks.Remove(ctx, locks, unusedSince)
	for i, gone := range removed {
		if gone {
			forgotten = append(forgotten, jobs[i])
		}
	}
	if err != nil {
		return forgotten, fmt.Errorf("remove the locks of removed jobs: %w", Plain(err))
	}
	return forgotten, nil
}
