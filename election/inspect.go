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
	// Schedule, if set, announces the schedule of a starting replica. If the cluster does not have this schedule yet, its ticks begin now.
	Schedule string
	// Behind is the number of seconds by which the name of a tick that is due now is behind its instant. ZoneRules identifies the zone data from which
	// the instants are computed. Both are zero if ticks are identified by their instants.
	Behind    int64
	ZoneRules string
	// SettleThrough, if set, settles all undecided ticks up to this tick, if the server's clock is past SettleDeadline. The ticks in [State.Open] are
	// not settled: they must be claimed one by one.
	SettleThrough, SettleDeadline time.Time
	// SettleOutcome is the outcome of the settled ticks, and SettleSchedule is their schedule. The server keeps one settlement for all of these ticks
	// until a replica has acknowledged that they are recorded: see [State.Settled].
	SettleOutcome, SettleSchedule string
	// Follower, if set, is the name of a job that runs after this job, and requests the ticks that ended well. The follower no longer needs the outcomes
	// of ticks up to Used.
	Follower string
	Used     time.Time
	// Acked has the ticks of [State.Settled] whose outcomes are recorded. The server forgets them.
	Acked []time.Time
	// Abandon has the ids of orphans that are about to be recorded as abandoned. From then on their claimants can no longer withdraw the claims: see
	// [Run.Abandoned].
	Abandon []string
}

// A State is the state of a job in the cluster. Times are by the server's clock.
type State struct {
	Now     time.Time
	Decided time.Time   // every tick up to Decided is decided, except the ticks in Open
	Open    []time.Time // ticks whose grant was given back before the run began, oldest first
	Before  time.Time   // Decided before SettleThrough was applied
	Closed  time.Time   // the server lost the lock's data, and grants nothing before this time; otherwise zero or past
	Pause   Pause       // the newest pause
	Running []Run
	Orphans []Run        // runs whose holder died or handed them over, until [Elector.DeleteOrphans]
	Through time.Time    // for a follower: the runs of every tick up to Through have ended
	Ended   []Ended      // for a follower: the ticks up to Through that ended well, oldest first
	Settled []Settlement // ticks settled by a claim with KeepOutcome, or by an inspection with SettleOutcome, and not yet in Acked
	// RulesSince is the time since which the cluster has used the announced ZoneRules. It is zero if the cluster used no other rules before.
	RulesSince time.Time
	Err        error // if not nil, the state is unknown
}

// A Settlement is a tick that was settled without a run, with its outcome and the time. If After is set, the Settlement stands for all undecided
// ticks after After, up to the tick.
type Settlement = engine.Settlement

// An Ended is a tick whose runs have all ended well. Due is the time since which this tick and all earlier ticks are decided and have no runs left.
type Ended = engine.Ended

// A Run is a granted run, as the server shows it to all replicas.
type Run struct {
	ID, Holder string
	Slot       int
	Token      int64
	Tick       time.Time // see [Claim]; zero outside the schedule
	At         time.Time // the instant of the tick, from the replica that first won it
	Attempt    int
	Trigger    string
	Expires    time.Time // zero for an orphan
	EndedWell  bool      // the holder of the orphan died after the work had succeeded: see [Term.MarkSucceeded]
	Stopped    string    // the reason for which the holder of an orphan was asked to stop; "" if it was not
	Abandoned  bool      // the orphan was abandoned: see [InspectRequest.Abandon]
	// Claimant is the identity of the replica that claimed the run, and Deadline the latest start of the run. Both are set only for a first attempt that
	// was never renewed: its claimant may not have received the grant, and may still withdraw the claim.
	Claimant string
	Deadline time.Time
}

// Inspect returns the states of many jobs in one round trip. A claimant with the verdict [Held] should inspect the job just after Until, to notice a
// dead holder.
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

// DeleteOrphans deletes orphans of a job after their outcomes are recorded.
func (e *Elector) DeleteOrphans(ctx context.Context, job string, ids ...string) error {
	if err := e.locks.DeleteOrphans(ctx, lockOf(job), ids...); err != nil {
		return fmt.Errorf("delete orphans of job %s: %w", job, Plain(err))
	}
	return nil
}

// Forget deletes the data of jobs that are no longer configured on any replica from the server, and returns the deleted jobs. It keeps a job that is
// running, has orphans, is paused, or was used after unusedSince by the server's clock. If a deleted job is configured again, its schedule begins
// anew.
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
