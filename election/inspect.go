package election

import (
	"context"
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/lease/engine"
)

// An InspectRequest asks for the state of a job.
type InspectRequest struct {
	Job string
	// Schedule, if set, announces the schedule of a replica that starts. A schedule that is new to the cluster begins now.
	Schedule string
	// Behind is the number of seconds by which the names of the ticks are behind their instants now. ZoneRules identifies the zone data by which they
	// are due. Both are zero if the ticks are instants.
	Behind    int64
	ZoneRules string
	// SettleThrough, if set, settles the undecided ticks up to it, once the server's clock is past SettleDeadline. Ticks in [State.Open], which were
	// decided before, are claimed one by one.
	SettleThrough, SettleDeadline time.Time
	// SettleOutcome is the outcome of these ticks, as ticks of the schedule SettleSchedule. The cluster keeps it for all of them together until a
	// replica has acknowledged its record: see [State.Settled].
	SettleOutcome, SettleSchedule string
	// Follower, if set, is the name of a job that runs after this one, and asks for the ticks that ended well. It needs no outcome of ticks up to
	// Used any more.
	Follower string
	Used     time.Time
	// Acked has ticks of [State.Settled] whose outcome was recorded.
	Acked []time.Time
	// Abandon has the ids of orphans that are to be recorded as abandoned. From then on their claimants cannot open their ticks again. See
	// [Run.Abandoned].
	Abandon []string
}

// A State is the state of a job in the cluster. Times are by the server's clock.
type State struct {
	Now     time.Time
	Decided time.Time   // every tick up to it is decided, except the ticks in Open
	Open    []time.Time // ticks that were granted, and given back before their start, oldest first
	Before  time.Time   // Decided before SettleThrough was applied
	Closed  time.Time   // until then nothing is granted, because the server lost the lock's data; zero or past otherwise
	Pause   Pause       // the newest pause
	Running []Run
	Orphans []Run        // runs whose holder died, until [Elector.DeleteOrphans]
	Through time.Time    // for a follower: every tick up to it has ended, whatever its outcome
	Ended   []Ended      // for a follower: the ticks up to Through that ended well, oldest first
	Settled []Settlement // ticks that were settled by claims with KeepOutcome, or by an inspection with a SettleOutcome, until they are in Acked
	// RulesSince is the time since which the cluster has used the announced ZoneRules, if it used others before; otherwise zero.
	RulesSince time.Time
	Err        error // the state is unknown
}

// A Settlement is a tick that was settled without a run, with its outcome and the time. With an After it stands for all ticks between After and the
// tick that were undecided.
type Settlement = engine.Settlement

// An Ended is a tick whose runs have all ended well. Due is the time since when this is so, for it and all ticks before it.
type Ended = engine.Ended

// A Run is a granted run as other replicas see it.
type Run struct {
	ID, Holder string
	Slot       int
	Token      int64
	Tick       time.Time // see [Claim]; zero outside the schedule
	At         time.Time // the instant of the tick, by the replica that was granted it first
	Attempt    int
	Trigger    string
	Expires    time.Time // zero for an orphan
	EndedWell  bool      // the work of the orphan had ended well when its holder died: see [Term.MarkSucceeded]
	Stopped    string    // the reason for which the holder of an orphan was asked to stop; "" if it was not
	Abandoned  bool      // the orphan was abandoned: see [InspectRequest.Abandon]
	// Claimant is the identity of the replica that claimed the run, and Deadline its latest start, as long as the replica may never have received the
	// grant: it may then withdraw the claim. Both are zero once the run was renewed, and for a recovery.
	Claimant string
	Deadline time.Time
}

// Inspect returns the states of many jobs in one round trip. A claimant with the verdict [Held] inspects the job just after Until, so that every
// living replica notices a dead holder.
func (e *Elector) Inspect(ctx context.Context, inspections []InspectRequest) []State {
	requests := make([]engine.InspectRequest, len(inspections))
	for i, q := range inspections {
		requests[i] = engine.InspectRequest{Lock: lockOf(q.Job), Permanent: true, Schedule: q.Schedule, Behind: q.Behind, ZoneRules: q.ZoneRules,
			SettleThrough: q.SettleThrough, SettleDeadline: q.SettleDeadline, SettleOutcome: q.SettleOutcome, SettleSchedule: q.SettleSchedule,
			Follower: q.Follower, Used: q.Used, Acked: q.Acked, Abandon: q.Abandon}
	}
	states := make([]State, len(inspections))
	for i, s := range e.locks.Inspect(ctx, requests) {
		states[i] = State{Now: s.Now, Decided: s.Decided, Open: s.Open, Before: s.Before, Closed: s.Closed, Pause: s.Pause, Running: runsOf(s.Rows), Orphans: runsOf(s.Orphans),
			Through: s.Through, Ended: s.Ended, Settled: s.Settled, RulesSince: s.RulesSince, Err: Plain(s.Err)}
	}
	return states
}

func runsOf(rows []engine.Row) []Run {
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
// orphans, is paused, or was used after unusedSince, by the server's clock. A removed job that comes back is new: its schedule begins then.
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
