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
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/locking"
)

// MaxLease is the maximum length of a lease without renewal.
const MaxLease = lease.MaxLease

// ErrCorrupt means that the job's lock holds data that no client has written. No tick of the job is granted until a person has repaired or deleted
// the data; other jobs are not affected. An error that wraps ErrCorrupt also wraps ErrUnknown.
var ErrCorrupt = lease.ErrCorrupt

// ErrUnknown means that Redis did not answer in time, and may or may not have executed the request.
var ErrUnknown = lease.ErrUnknown

// A Claim asks for one grant of a tick of a job, or, without a Tick, for a run outside the schedule. Its Lock is the [JobLock] of the job. ID,
// Trigger, Slots and Lease are required. Memo is a text from [Memo], which other replicas read if the holder dies. The elector sets Permanent and
// AnyLimit.
type Claim = lease.Request

// A Tick is the tick that a [Claim] asks for.
type Tick = lease.Tick

// A Verdict is the decision on a claim.
type Verdict = lease.Verdict

// The verdicts.
const (
	Granted    = lease.Granted // this replica runs the tick: see [TermOf]
	Taken      = lease.Taken   // the tick has had all its grants; Holder and Until describe a grant whose run has not ended
	Settled    = lease.Settled // this claim decided the tick without a run, with Outcome
	Before     = lease.Before  // the tick was already decided without a run; Outcome is set if it is still known
	Held       = lease.Held    // undecided: all slots are held; Holder holds the slot whose lease ends first, at Until
	Early      = lease.Early   // undecided: claim again at Until
	Closed     = lease.Closed  // undecided: the server lost the lock's data, and grants nothing until Until
	Unheard    = lease.Unheard // granted under this id, but the term has ended: see [Elector.AwaitWithdrawal]
	CannotTell = lease.Unknown // unknown because of Err: repeat the claim with the same id
)

// A Result is the result of a [Claim]: Verdict, Until by the server's clock, Holder, Outcome, Orphans and Err. Use [TermOf] to get the term of a granted
// claim: the field Run is only for the packages of this module.
type Result = lease.Result

// An Elector claims ticks. It is safe for concurrent use.
type Elector struct{ locks *lease.Client }

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

// JobLock returns the name of a job's lock. The job's name is the hash tag of all keys of the job.
func JobLock(job string) string { return "{" + job + "}:job" }

// JobOf returns the job to which a lock belongs. ok is false if the lock does not belong to a job.
func JobOf(lock string) (job string, ok bool) {
	rest, tagged := strings.CutPrefix(lock, "{")
	job, ofJob := strings.CutSuffix(rest, "}:job")
	return job, tagged && ofJob
}

// Claim sends many claims in one round trip, and returns their results in the same order.
func (e *Elector) Claim(ctx context.Context, claims []Claim) []Result {
	requests := make([]lease.Request, len(claims))
	for i, c := range claims {
		requests[i] = jobRequest(c)
	}
	results := e.locks.AcquireAll(ctx, requests)
	for i := range results {
		results[i] = plainResult(results[i])
	}
	e.stopReplaced(ctx, claims, results)
	return results
}

func jobRequest(c Claim) lease.Request {
	c.Permanent, c.AnyLimit = true, true
	return c
}

// plainResult replaces the verdict lease.Decided by Taken or Before, and the lock names in the error by job names.
func plainResult(r Result) Result {
	r = r.Distinguished()
	r.Err = Plain(r.Err)
	return r
}

// Withdraw gives back the grant of a claim whose result is unknown, if the claim was granted. The claim must not be repeated. Withdraw returns at
// once and works in the background.
func (e *Elector) Withdraw(c Claim) { e.locks.Withdraw(jobRequest(c), c.ID) }

// AwaitWithdrawal withdraws a claim whose run has not begun, and waits until the server has acknowledged the withdrawal. It returns an error if ctx
// ends first. Afterwards the claim can no longer be granted, and its tick is undecided again, unless another replica recovered or abandoned the run
// first.
func (e *Elector) AwaitWithdrawal(ctx context.Context, c Claim) error {
	if err := e.locks.AwaitWithdrawal(ctx, jobRequest(c)); err != nil {
		return fmt.Errorf("withdraw a claim: %w", Plain(err))
	}
	return nil
}

// Memo returns the text that the server keeps with a run for replicas that inspect the job: the identity of the claiming replica, the latest start, and the
// instant of the tick if the tick is named by its local time. With the instant, these replicas need no zone data. Unused arguments are zero. Without a
// claimant, the deadline is ignored.
func Memo(claimant string, deadline, instant time.Time) string {
	return lease.NewMemo(claimant, deadline, instant)
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
	if err := e.locks.Publish(ctx, runsOfTerms(begun), runsOfTerms(ended)); err != nil {
		return fmt.Errorf("election: %w", Plain(err))
	}
	return nil
}

func runsOfTerms(terms []*Term) []lease.Run {
	runs := make([]lease.Run, len(terms))
	for i, t := range terms {
		runs[i] = t.lease
	}
	return runs
}

// Subscribe calls f with the events of all electors, including e itself, until ctx ends. f is called from one goroutine.
func (e *Elector) Subscribe(ctx context.Context, f func([]GrantEvent)) {
	e.locks.Subscribe(ctx, func(heard []lease.GrantEvent) {
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

// An InspectRequest asks for the state of a job. Its Lock is the [JobLock] of the job; any other lock is an error. The elector sets Permanent.
//   - Schedule announces the schedule of a starting replica. If the cluster does not have this schedule yet, its ticks begin now. Some schedules identify a tick by its
//     local time: see [Tick]. For these, Behind is the number of seconds between that time and the instant, and ZoneRules is a hash of the time zone's data.
//   - SettleThrough settles this tick and all undecided ticks before it with SettleOutcome, once the server's clock is past SettleDeadline. The ticks belong
//     to SettleSchedule. Ticks in State.Open are not settled: they must be claimed one by one.
//   - Follower names a job that runs after this job, and Used is the newest tick whose outcome the follower no longer needs.
//   - Acked has ticks of State.Settled whose outcomes are recorded: the server forgets their settlements.
//   - Abandon has ids of orphans that are about to be recorded as abandoned: a late withdrawal of their claims no longer reopens their ticks.
type InspectRequest = lease.InspectRequest

// A State is the state of a job in the cluster. If Err is set, the rest is unknown. Times are by the server's clock.
//   - Every tick up to Decided is decided, except the ticks in Open, whose grants were given back. Before is Decided before SettleThrough was applied.
//   - Closed is the time before which the server grants nothing, because it lost the lock's data.
//   - Running has the runs that hold a lease. Orphans has the runs whose holders died or handed them over, until [Elector.DeleteOrphans].
//   - Through and Ended are for a follower: every run of a tick up to Through has ended, and the ticks in Ended succeeded.
//   - Settled has the settlements that no request has acknowledged with Acked yet.
type State = lease.State

// A Run is a granted run, as the server shows it to all replicas. Its method Instant returns the instant of its tick. For a first attempt without a renewal,
// Claimant returns the claiming replica and the latest start: this replica may not have received the grant, and may withdraw its claim.
type Run = lease.Row

// A Settlement is a tick that was settled without a run, with its outcome and the time of the settlement. If After is set, the Settlement stands for all
// undecided ticks later than After, up to Tick.
type Settlement = lease.Settlement

// An Ended is a tick whose runs have all succeeded. Due is the time from which this tick and all earlier
// ticks had ended: each was decided, and had no run and no orphan left.
type Ended = lease.Ended

// Inspect returns the states of many jobs in one round trip. A claimant with the verdict [Held] should inspect the job just after Until, to notice a holder
// that has died.
func (e *Elector) Inspect(ctx context.Context, requests []InspectRequest) []State {
	requests = slices.Clone(requests)
	for i := range requests {
		if _, ok := JobOf(requests[i].Lock); !ok {
			return slices.Repeat([]State{{Err: fmt.Errorf("inspect %q: not the lock of a job; use JobLock", requests[i].Lock)}}, len(requests))
		}
		requests[i].Permanent = true
	}
	return e.inspectLocks(ctx, requests)
}

func (e *Elector) inspectLocks(ctx context.Context, requests []InspectRequest) []State {
	states := e.locks.Inspect(ctx, requests)
	for i := range states {
		states[i].Err = Plain(states[i].Err)
	}
	return states
}

// DeleteOrphans deletes orphans of a job after their outcomes are recorded.
func (e *Elector) DeleteOrphans(ctx context.Context, job string, ids ...string) error {
	if err := e.locks.DeleteOrphans(ctx, JobLock(job), ids...); err != nil {
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
		locks[i] = JobLock(job)
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

// lockName matches a quoted lock name in an error text of package locking, such as `lock "{backup}:job"`: the hash tag, then the kind of the lock. It
// does not match a Redis key, which has a prefix, so that users can search for the key in Redis.
var lockName = regexp.MustCompile(`(?:\block )?"\{([^{}"]+)\}:([a-z]+)(?::[^"]+)?"`)

type plainError struct {
	error
	text string
}

func (e plainError) Error() string { return e.text }
func (e plainError) Unwrap() error { return e.error }

// Plain replaces the lock names in an error of package locking by names that users know, such as lock "{backup}:job" by job "backup". Every error
// that leaves this package has been passed through Plain.
func Plain(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	plain := lockName.ReplaceAllString(text, `$2 "$1"`)
	if plain == text {
		return err
	}
	return plainError{err, plain}
}
