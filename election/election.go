// Package election selects the replica of a cluster that runs a tick of a job ([Elector.Claim]), and elects a leader ([Leadership]). It builds both
// on the locks of package locking, and is independent of schedules and commands. "The server" is always the Redis server.
//
// A tick is one instant of a job's schedule. It is granted a limited number of times, usually once, to any of the replicas that claim it. A claim
// asks for one grant of one tick, and has exactly one of these results:
//
//   - The claim was granted, and there is a [Term].
//   - The tick was decided before, by other claims.
//   - This claim settled the tick: it is decided without a run (skipped or missed).
//   - The tick is still undecided, and the result has the instant at which to claim it again.
//   - The claim was granted, but the reply arrived only after the term had ended. The claimant withdraws the claim, and claims the tick again with a
//     new id.
//   - The result is unknown. The claimant repeats the claim with the same id.
package election

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/lease/engine"
	"github.com/cronclave/cronclave/locking"
)

// MaxLease is the maximum length of a lease without renewal.
const MaxLease = engine.MaxLease

// ErrCorrupt means that the job's lock holds data that no client has written. A person has to repair the data. ErrCorrupt is returned with
// ErrUnknown.
var ErrCorrupt = engine.ErrCorrupt

// ErrUnknown means that Redis did not answer in time, and may or may not have executed the request.
var ErrUnknown = engine.ErrUnknown

// A Claim asks for one grant of a tick of a job. With a zero Tick it asks for a slot of the job for a run outside the schedule.
type Claim struct {
	Job string
	// ID is the id of the run that starts if the claim is granted. Required. A repeated claim with the same id returns the same grant.
	ID string
	// Trigger is the trigger of the run: schedule, manual, catch_up or recovery. Required.
	Trigger string
	// Adopt, if set, is the id of an orphan that this run recovers. An orphan is a run whose holder died or handed it over. The new run has the orphan's
	// tick and the next attempt number, and the fields about ticks below are ignored.
	Adopt string
	// Tick identifies the tick on every replica: it is the instant of the tick, or a name for it, see [cronspec.Schedule.ID]. Previous identifies the
	// tick before Tick, in the same way. Schedule identifies the schedule.
	Tick, Previous time.Time
	Schedule       string
	// At is the instant of the tick, if Tick is a name. A recovery sets At, too.
	At time.Time
	// NotBefore and Deadline bound the time of the grant by the server's clock. NotBefore is the instant of the tick plus its jitter, Deadline the
	// latest start.
	NotBefore, Deadline time.Time
	// Slots is the maximum number of runs of the job at once. PerTick is the number of grants of each tick.
	Slots, PerTick int
	// Lease is the length of the term without renewal. The term is renewed until it is released.
	Lease time.Duration
	// Abstain makes a claim that is never granted. It reports the decision of other claims, and may settle the tick. Replicas without a free place use
	// it.
	Abstain bool
	// IfHeld is the outcome with which the claim settles the tick if all slots are held; "" leaves the tick undecided. IfLate is the outcome if the
	// Deadline has passed.
	IfHeld, IfLate string
	// KeepFirst leaves the tick undecided in spite of IfHeld if all earlier ticks are decided, so that it can wait for a slot.
	KeepFirst bool
	// KeepOutcome makes the server keep the outcome of a settled tick until a replica has acknowledged that the outcome is recorded: see
	// [State.Settled].
	KeepOutcome bool
	// Claimant, if set, is the identity of the claiming replica. The server keeps Claimant and Deadline until the term is renewed, for replicas that
	// find an orphan: see [Run.Claimant].
	Claimant string
	// Replace stops the oldest run that began before the tick if all slots are held, one run at a time. Until a slot is free, the tick stays undecided.
	Replace bool
}

// A Verdict is the decision on a claim.
type Verdict string

// The verdicts.
const (
	Granted    Verdict = "granted"     // this replica runs the tick: Term is set
	Taken      Verdict = "taken"       // the tick has had all its grants; By and Until describe a grant whose run has not ended
	Settled    Verdict = "settled"     // this claim decided the tick without a run, with Outcome
	Before     Verdict = "before"      // the tick was decided before without a run, with Outcome if it is still known
	Held       Verdict = "held"        // undecided: all slots are held; By holds the slot whose lease ends first, at Until
	Early      Verdict = "early"       // undecided: claim again at Until
	Closed     Verdict = "closed"      // undecided: the server lost the lock's data, and grants nothing until Until
	Unheard    Verdict = "unheard"     // granted under this id, but the term has ended: see [Elector.AwaitWithdrawal]
	CannotTell Verdict = "cannot tell" // unknown because of Err: repeat the claim with the same id
)

// A Result is the result of a [Claim]. Until is by the server's clock.
type Result struct {
	Verdict Verdict
	Term    *Term
	Until   time.Time
	By      string
	Outcome string
	Orphans int // the number of orphans of the job: see [Elector.Inspect]
	Err     error
}

// An Elector claims ticks. It is safe for concurrent use.
type Elector struct{ locks *engine.Client }

// A Config configures an [Elector].
type Config struct {
	Locks *locking.Client // required
}

// New returns an elector.
func New(cfg Config) (*Elector, error) {
	if cfg.Locks == nil {
		return nil, errors.New("election: Config.Locks is missing")
	}
	return &Elector{cfg.Locks.Engine()}, nil
}

// lockOf returns the name of a job's lock. The job's name is the hash tag of all keys of the job.
func lockOf(job string) string { return "{" + job + "}:job" }

// JobOf returns the job to which a lock belongs. ok is false if the lock does not belong to a job.
func JobOf(lock string) (job string, ok bool) {
	rest, tagged := strings.CutPrefix(lock, "{")
	job, ofJob := strings.CutSuffix(rest, "}:job")
	return job, tagged && ofJob
}

// Claim sends many claims in one round trip, and returns their results in the same order.
func (e *Elector) Claim(ctx context.Context, claims []Claim) []Result {
	requests := make([]engine.Request, len(claims))
	for i, c := range claims {
		requests[i] = c.lockRequest()
	}
	results := make([]Result, len(claims))
	for i, a := range e.locks.AcquireAll(ctx, requests) {
		results[i] = resultOf(a)
	}
	e.stopReplaced(ctx, claims, results)
	return results
}

func (c Claim) lockRequest() engine.Request {
	r := engine.Request{
		Lock: lockOf(c.Job), ID: c.ID, Slots: c.Slots, Lease: c.Lease, Trigger: c.Trigger,
		Permanent: true, AnyLimit: true, Abstain: c.Abstain, Memo: c.encodeMemo(),
	}
	if r.Adopt = c.Adopt; r.Adopt == "" && !c.Tick.IsZero() {
		r.Tick = &engine.Tick{
			At: c.Tick, Instant: c.At, Previous: c.Previous, Schedule: c.Schedule, PerTick: c.PerTick,
			NotBefore: c.NotBefore, Deadline: c.Deadline, IfHeld: c.IfHeld, IfLate: c.IfLate, KeepFirst: c.KeepFirst,
			KeepOutcome: c.KeepOutcome,
		}
	}
	return r
}

func resultOf(a engine.Answer) Result {
	r := Result{Until: a.Until, By: a.Holder, Outcome: a.Outcome, Orphans: a.Orphans, Err: Plain(a.Err)}
	switch a.Verdict {
	case engine.Granted:
		r.Verdict, r.Term = Granted, &Term{lease: a.Lease}
	case engine.Settled:
		r.Verdict = Settled
	case engine.Decided:
		r.Verdict = Before
		if a.Outcome == "granted" || a.Holder != "" {
			r.Verdict, r.Outcome = Taken, ""
		}
	case engine.Held:
		r.Verdict = Held
	case engine.Early:
		r.Verdict = Early
	case engine.Closed:
		r.Verdict = Closed
	case engine.Unheard:
		r.Verdict = Unheard
	default:
		r.Verdict = CannotTell
	}
	return r
}

// Withdraw gives back the grant of a claim whose result is unknown, if the claim was granted. The claim must not be repeated. Withdraw returns at
// once and works in the background.
func (e *Elector) Withdraw(c Claim) { e.locks.Withdraw(c.lockRequest(), c.ID) }

// AwaitWithdrawal withdraws a claim whose run has not begun, and waits until the server has acknowledged the withdrawal. It returns an error if ctx
// ends first. Afterwards the claim can no longer be granted, and its tick is undecided again, unless another replica recovered or abandoned the run
// first.
func (e *Elector) AwaitWithdrawal(ctx context.Context, c Claim) error {
	if err := e.locks.AwaitWithdrawal(ctx, c.lockRequest()); err != nil {
		return fmt.Errorf("withdraw a claim: %w", Plain(err))
	}
	return nil
}

// noClaimant replaces the claimant in the memo of a run whose claim cannot be withdrawn.
const noClaimant = "-"

// encodeMemo returns the text that the server keeps with a run for replicas that inspect the job: "claimant deadline", followed by the instant of the
// tick if the tick has a name. With the instant, these replicas need no zone data.
func (c Claim) encodeMemo() string {
	named := !c.At.IsZero() && !c.At.Equal(c.Tick)
	if c.Claimant == "" && !named {
		return ""
	}
	memo := cmp.Or(c.Claimant, noClaimant) + " " + strconv.FormatInt(max(c.Deadline.UnixMicro(), 0), 10)
	if named {
		memo += " " + strconv.FormatInt(c.At.Unix(), 10)
	}
	return memo
}

// readMemo returns the parts of a memo: the claimant and the start deadline of a run, and the instant of its tick. A missing or damaged part is zero.
func readMemo(memo string) (claimant string, deadline, at time.Time) {
	fields := strings.Split(memo, " ")
	if len(fields) == 3 {
		if unix, err := strconv.ParseInt(fields[2], 10, 64); err == nil {
			at = time.Unix(unix, 0).UTC()
		}
	}
	if len(fields) < 2 || fields[0] == noClaimant {
		return "", time.Time{}, at
	}
	n, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil || n <= 0 || n >= 1<<53 {
		return "", time.Time{}, at
	}
	return fields[0], time.UnixMicro(n).UTC(), at
}

// orTick returns at, the instant from a memo, or tick if the memo had none: then tick is an instant.
func orTick(at, tick time.Time) time.Time {
	if at.IsZero() {
		return tick
	}
	return at
}

// A GrantEvent reports that a tick was granted to the replica By, for a term that ends at Until unless it is renewed. With a zero Tick it reports
// that a term of the job has ended.
type GrantEvent struct {
	Job         string
	Tick, Until time.Time
	By          string
}

// Publish publishes the terms in begun, so that other replicas need not claim their ticks, and the terms in ended, so that replicas that wait for a
// slot claim at once. A lost event costs only an extra claim or a longer wait.
func (e *Elector) Publish(ctx context.Context, begun, ended []*Term) error {
	if err := e.locks.Publish(ctx, leasesOf(begun), leasesOf(ended)); err != nil {
		return fmt.Errorf("election: %w", Plain(err))
	}
	return nil
}

func leasesOf(terms []*Term) []*engine.Lease {
	leases := make([]*engine.Lease, len(terms))
	for i, t := range terms {
		leases[i] = t.lease
	}
	return leases
}

// Subscribe calls f with the events of all electors, including e itself, until ctx ends. f is called from one goroutine.
func (e *Elector) Subscribe(ctx context.Context, f func([]GrantEvent)) {
	e.locks.Subscribe(ctx, func(heard []engine.GrantEvent) {
		events := make([]GrantEvent, 0, len(heard))
		for _, n := range heard {
			if job, ok := JobOf(n.Lock); ok {
				events = append(events, GrantEvent{Job: job, Tick: n.Tick, Until: n.Until, By: n.Owner})
			}
		}
		f(events)
	})
}

// Now returns the time of the server's clock, estimated from its replies. ok is false before the first reply.
func (e *Elector) Now() (now time.Time, ok bool) { return e.locks.EstimatedTime() }

// A Term is a lease that gives the right to run a tick, or to be the leader. It is safe for concurrent use.
type Term struct {
	lease *engine.Lease
	slot  *Term            // the slot of a pool, or nil: see [Term.With]
	both  *engine.LeaseSet // both leases; nil without a slot
}

// ID returns the id of the claim.
func (t *Term) ID() string { return t.lease.ID() }

// Slot returns the number of the granted slot, from 0.
func (t *Term) Slot() int { return t.lease.Slot() }

// Token returns the fencing token: of two terms of one job or leadership, the later has the greater token.
func (t *Term) Token() int64 { return int64(t.lease.Token()) }

// Attempt returns the attempt number: 1 for the first attempt, and more for a recovery or a retry.
func (t *Term) Attempt() int { return engine.RunOf(t.lease).Attempt() }

// Context returns a context that ends before the lease expires, or when the term is ended. context.Cause returns the reason.
func (t *Term) Context() context.Context { return t.leaseSpan().Context() }

// Endangered returns a channel that is closed if renewals have failed and only a third of the lease is left.
func (t *Term) Endangered() <-chan struct{} { return t.leaseSpan().Endangered() }

// Confirmed returns a channel that is closed when the term has its whole length. It is closed from the start, unless the reply to the grant arrived
// late: see [locking.Lease.Confirmed].
func (t *Term) Confirmed() <-chan struct{} { return t.lease.Confirmed() }

// Remaining returns the time until the term ends unless it is renewed.
func (t *Term) Remaining() time.Duration { return t.leaseSpan().Remaining() }

// Length returns the length of the term without renewal.
func (t *Term) Length() time.Duration { return t.leaseSpan().Length() }

// Deadline returns the instant at which the term ends unless it is renewed. [locking.Lease.Deadline] describes the clock.
func (t *Term) Deadline() time.Duration { return t.leaseSpan().Deadline() }

// OnExtend calls f with the new deadline after each renewal, until stop is called. f must return at once.
func (t *Term) OnExtend(f func(deadline time.Duration)) (stop func()) {
	return t.leaseSpan().OnExtend(f)
}

// End releases the term. Call End only when the work is over, because another run may start at once. [locking.ErrLost] means that the term had
// already ended.
func (t *Term) End(ctx context.Context) error {
	slot := t.endSlot(ctx)
	return joinEndErrors("end", slot, t.lease.Release(ctx))
}

// NextAttempt increments the attempt number of the run, and returns the new number when the server has acknowledged it. The attempt must not begin
// earlier, because a recovery could get the same number. NextAttempt retries until ctx or the lease of the term ends.
func (t *Term) NextAttempt(ctx context.Context) (int, error) {
	n, err := engine.RunOf(t.lease).NextAttempt(ctx)
	if err != nil {
		return 0, fmt.Errorf("next attempt: %w", Plain(err))
	}
	return n, nil
}

// ReleaseWith is [Term.End] for a job that other jobs run after. The server keeps well, which reports whether the run succeeded, for these jobs: see
// [InspectRequest.Follower].
func (t *Term) ReleaseWith(ctx context.Context, well bool) error {
	slot := t.endSlot(ctx)
	return joinEndErrors("end", slot, engine.RunOf(t.lease).ReleaseWith(ctx, well))
}

// MarkSucceeded tells the server that the run has succeeded. It is called before the run is recorded and the term ends. If the holder dies in
// between, the replica that finds the orphan records a success and does not recover the run. followed is true if other jobs run after this job.
func (t *Term) MarkSucceeded(ctx context.Context, followed bool) error {
	if err := engine.RunOf(t.lease).MarkSucceeded(ctx, followed); err != nil {
		return fmt.Errorf("end of a run: %w", Plain(err))
	}
	return nil
}

// HandOver ends the term of a run that another replica is to recover. The run is an orphan at once. attempt is the number of the last attempt that
// has begun. Call HandOver only when the work is over, like [Term.End].
func (t *Term) HandOver(ctx context.Context, attempt int) error {
	slot := t.endSlot(ctx)
	return joinEndErrors("leave", slot, engine.RunOf(t.lease).HandOver(ctx, attempt))
}

// Undo gives back a term whose work never began. Its tick is undecided again, or its adopted orphan waits for another recovery.
func (t *Term) Undo(ctx context.Context) error {
	slot := t.endSlot(ctx)
	return joinEndErrors("return", slot, engine.RunOf(t.lease).Undo(ctx))
}
