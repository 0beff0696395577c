// Package election decides which replica of a cluster runs a tick of a job ([Elector.Claim]), and elects the leader ([Leadership]). It builds both on
// the locks of package locking, and knows nothing of schedules or commands.
//
// A claim asks for one grant of one tick. Exactly one of these statements is true afterwards:
//
//   - The claim was granted, and there is a [Term].
//   - Another claim had decided the tick.
//   - This claim settled the tick without a run (skipped, missed).
//   - The tick is still open, and the result has the instant at which to ask again.
//   - The claim was granted, but its claimant learns of that only after the term has ended: it withdraws the claim, and
//     asks again with another id.
//   - The decision is unknown, and asking again with the same id finds out.
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

// ErrCorrupt means that the job's lock holds data that no client has written. A person has to repair it. It comes with ErrUnknown.
var ErrCorrupt = engine.ErrCorrupt

// ErrUnknown means that the server did not answer in time: it may or may not have executed the request.
var ErrUnknown = engine.ErrUnknown

// A Claim asks for one grant of a tick of a job, or with a zero Tick for a slot outside the schedule.
type Claim struct {
	Job string
	// ID is the id of the run that a grant starts. Required. Asking again with the same id gives the same grant.
	ID string
	// Trigger is the trigger of the run: schedule, manual, catch_up or recovery. Required.
	Trigger string
	// Adopt, if set, is the id of an orphan that this run recovers: it has the orphan's tick and the next attempt. The following fields about ticks
	// are then ignored.
	Adopt string
	// Tick is the identity of the tick on every replica: its instant, or a name for it, see [cronspec.Schedule.ID]. Previous is the identity of the
	// tick before it; Schedule identifies the schedule.
	Tick, Previous time.Time
	Schedule       string
	// At is the instant of the tick, if Tick is a name. A recovery keeps it.
	At time.Time
	// NotBefore and Deadline bound the grant by the server's clock: the tick after its jitter, and the latest start.
	NotBefore, Deadline time.Time
	// Slots is the maximum number of runs of the job at once, PerTick the number of grants of a tick.
	Slots, PerTick int
	// Lease is the length of the term, which is renewed until it is released.
	Lease time.Duration
	// Abstain asks only for the decision of other claims. This claim is never granted, but may settle the tick. Full replicas use it.
	Abstain bool
	// IfHeld settles the tick with this outcome if all slots are held ("" leaves it open). IfLate settles it past its deadline.
	IfHeld, IfLate string
	// KeepFirst leaves the tick open, in spite of IfHeld, if all ticks before it are decided: it then waits for a slot.
	KeepFirst bool
	// KeepOutcome keeps the outcome with which this claim settles the tick until a replica has acknowledged its record: see [State.Settled].
	KeepOutcome bool
	// Claimant, if set, is the identity of the claiming replica. It is kept with Deadline until the term is renewed, for replicas that find the
	// orphan of the run: see [Run.Claimant].
	Claimant string
	// Replace stops the oldest run that began before the tick, one at a time, while all slots are held: see [engine.StopRequest]. The tick stays open
	// meanwhile.
	Replace bool
}

// A Verdict is the decision on a claim.
type Verdict string

// The verdicts.
const (
	Granted    Verdict = "granted"     // this replica runs it: Term is set
	Taken      Verdict = "taken"       // granted before, as often as it may; By and Until describe a run that has not ended
	Settled    Verdict = "settled"     // decided by this claim without a run: Outcome
	Before     Verdict = "before"      // decided before without a run: Outcome, if it is still known
	Held       Verdict = "held"        // open: all slots are held, the first until Until by By
	Early      Verdict = "early"       // open: ask again at Until
	Closed     Verdict = "closed"      // open: the server lost the lock's data, no grants until Until
	Unheard    Verdict = "unheard"     // granted under this id, and the term has ended: see [Elector.AwaitWithdrawal]
	CannotTell Verdict = "cannot tell" // unknown because of Err: ask again with the same id
)

// A Result is the answer to a [Claim]. Until is by the server's clock.
type Result struct {
	Verdict Verdict
	Term    *Term
	Until   time.Time
	By      string
	Outcome string
	Orphans int // the number of orphaned runs of the job whose outcome is not recorded yet: see [Elector.Inspect]
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

// lockOf returns the name of a job's lock. The job is the hash tag, which all its keys share.
func lockOf(job string) string { return "{" + job + "}:job" }

// JobOf returns the job of a lock. ok is false if the lock is not the lock of a job.
func JobOf(lock string) (job string, ok bool) {
	rest, tagged := strings.CutPrefix(lock, "{")
	job, ofJob := strings.CutSuffix(rest, "}:job")
	return job, tagged && ofJob
}

// Claim makes many claims in one round trip. It returns a result for each, in order.
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

// Withdraw gives back the grant, if there is one, of a claim whose decision is unknown and that is not repeated. It returns at once and goes on in
// the background.
func (e *Elector) Withdraw(c Claim) { e.locks.Withdraw(c.lockRequest(), c.ID) }

// AwaitWithdrawal withdraws for good a claim whose run has not begun. From then on no late reply to it counts, and its tick is open again, unless the
// run was recovered or abandoned meanwhile. It returns when the cluster has acknowledged the withdrawal, or with an error when ctx ends.
func (e *Elector) AwaitWithdrawal(ctx context.Context, c Claim) error {
	if err := e.locks.AwaitWithdrawal(ctx, c.lockRequest()); err != nil {
		return fmt.Errorf("withdraw a claim: %w", Plain(err))
	}
	return nil
}

// noClaimant stands in a memo for the claimant of a run whose claim cannot be withdrawn.
const noClaimant = "-"

// encodeMemo returns the text that is kept with a run for replicas that inspect it: "claimant deadline", and the instant of its tick if the tick has a
// name, so that they need no zone data.
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

// readMemo returns the claimant and the start deadline of a run, and the instant of its tick if the memo has one. A missing or damaged part is zero.
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

// orTick returns the instant of a tick: at if a memo had it, otherwise its identity.
func orTick(at, tick time.Time) time.Time {
	if at.IsZero() {
		return tick
	}
	return at
}

// A GrantEvent reports that a tick was granted to By, until Until unless the term is renewed. With a zero Tick it reports that a term of the job has
// ended.
type GrantEvent struct {
	Job         string
	Tick, Until time.Time
	By          string
}

// Publish publishes terms that were granted for ticks and have begun, so that other replicas need not ask, and terms that have ended, so that
// replicas that wait for a slot ask at once. A lost event costs only a request, or a pause.
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

// Subscribe calls f with the events of all electors, including its own, until ctx ends. f is called from one goroutine.
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

// Now returns the server's clock, estimated from its replies. ok is false before the first one.
func (e *Elector) Now() (now time.Time, ok bool) { return e.locks.EstimatedTime() }

// A Term is the right to run a tick, or to lead, while its lease lasts. It is safe for concurrent use.
type Term struct {
	lease *engine.Lease
	slot  *Term            // the slot of a pool, or nil: see [Term.With]
	both  *engine.LeaseSet // both leases; nil without a slot
}

// ID returns the id of the claim.
func (t *Term) ID() string { return t.lease.ID() }

// Slot returns the slot that was won, from 0.
func (t *Term) Slot() int { return t.lease.Slot() }

// Token returns the fencing token: of two terms of one job or leadership, the later has the greater one.
func (t *Term) Token() int64 { return int64(t.lease.Token()) }

// Attempt returns the attempt: 1, or more if the run is a recovery or was tried again.
func (t *Term) Attempt() int { return engine.RunOf(t.lease).Attempt() }

// Context returns a context that ends before the lease does, or with the term. context.Cause returns the reason.
func (t *Term) Context() context.Context { return t.leaseSpan().Context() }

// Endangered returns a channel that is closed when a third of the lease is left, because renewals have failed.
func (t *Term) Endangered() <-chan struct{} { return t.leaseSpan().Endangered() }

// Confirmed returns a channel that is closed when the term has its whole length: at once, unless the reply to its grant came late, see
// [engine.Lease.Confirmed].
func (t *Term) Confirmed() <-chan struct{} { return t.lease.Confirmed() }

// Remaining returns the time until the term ends unless it is renewed.
func (t *Term) Remaining() time.Duration { return t.leaseSpan().Remaining() }

// Length returns the length of the term without renewal.
func (t *Term) Length() time.Duration { return t.leaseSpan().Length() }

// Deadline returns the instant at which the term ends unless it is renewed: see [engine.Lease.Deadline] for the clock.
func (t *Term) Deadline() time.Duration { return t.leaseSpan().Deadline() }

// OnExtend calls f with the new deadline after each renewal, until stop is called. f must return at once.
func (t *Term) OnExtend(f func(deadline time.Duration)) (stop func()) {
	return t.leaseSpan().OnExtend(f)
}

// End releases the term. Call it when the work is over, not before: another run may start at once. ErrLost of package locking means that the term had
// ended before.
func (t *Term) End(ctx context.Context) error {
	slot := t.endSlot(ctx)
	return joinEndErrors("end", slot, t.lease.Release(ctx))
}

// NextAttempt counts another attempt of the run, and returns its number once the cluster has acknowledged it. The attempt must not begin before that,
// because a recovery could get the same number. It tries until ctx ends, or the lease of the term does: see [engine.Run.NextAttempt].
func (t *Term) NextAttempt(ctx context.Context) (int, error) {
	n, err := engine.RunOf(t.lease).NextAttempt(ctx)
	if err != nil {
		return 0, fmt.Errorf("next attempt: %w", Plain(err))
	}
	return n, nil
}

// ReleaseWith is [Term.End] for a run that others follow: well, which is kept for them, is true if the run succeeded. See [InspectRequest.Follower].
func (t *Term) ReleaseWith(ctx context.Context, well bool) error {
	slot := t.endSlot(ctx)
	return joinEndErrors("end", slot, engine.RunOf(t.lease).ReleaseWith(ctx, well))
}

// MarkSucceeded marks the run as succeeded in the cluster, before it is recorded and the term ends. If the holder dies in between, the replica that finds
// the orphan records a success, and does not run it again. followed is true for jobs that others follow.
func (t *Term) MarkSucceeded(ctx context.Context, followed bool) error {
	if err := engine.RunOf(t.lease).MarkSucceeded(ctx, followed); err != nil {
		return fmt.Errorf("end of a run: %w", Plain(err))
	}
	return nil
}

// HandOver ends the term of a run that another replica is to recover: the run is an orphan at once. attempt is the last one that has begun. Call it when
// the work is over, as for [Term.End].
func (t *Term) HandOver(ctx context.Context, attempt int) error {
	slot := t.endSlot(ctx)
	return joinEndErrors("leave", slot, engine.RunOf(t.lease).HandOver(ctx, attempt))
}

// Undo gives back a term whose work never began: its tick is open again, or the orphan that it has adopted waits for another recovery.
func (t *Term) Undo(ctx context.Context) error {
	slot := t.endSlot(ctx)
	return joinEndErrors("return", slot, engine.RunOf(t.lease).Undo(ctx))
}
