package locking

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Request asks for one row of a lock.
type Request struct {
	// Lock is its name. A name with a part in braces, as in "{orders}:archive", shares a Cluster's node with other
	// keys of that hash tag; else the whole name is the tag.
	Lock string
	// ID is the lease id. Asking again with the same id gives the same grant, which is how an unknown outcome gets resolved; it also
	// says that the work has not begun: a tick whose lease has ended meanwhile is granted again. Defaults to a random one.
	ID string
	// Slots is the number of rows. Defaults to 1; at most 1,000.
	Slots int
	// Lease is how long a grant lasts without renewal. Defaults to 30s; at least 10ms, at most [MaxLease].
	Lease time.Duration
	// Trigger, if set, makes the lease a run that is accounted for: if it ends without a release, it is an
	// [Orphan] until [Client.Bury], or until a lock that is not Permanent is forgotten. Memo goes with it, for whoever finds it.
	Trigger, Memo string
	// Permanent keeps the lock's state when it is idle.
	Permanent bool
	// AnyLimit accepts a lock that is in use with another number of slots; this request's own number counts.
	AnyLimit bool
	// Abstain lets the request settle its tick or tell who holds it, but never be granted.
	Abstain bool
	// Adopt is the lease id of an orphan whose tick this lease carries on, as the next attempt.
	Adopt string
	// Delay keeps a row shut for so long after its lease ended without a release: for resources that can't check tokens, so
	// that what a dead holder has sent can arrive first (the lock-delay of Chubby, Burrows 2006). The last grant's counts.
	Delay time.Duration
	// Tick, if not nil, is granted at most PerTick times, ever.
	Tick *Tick

	firstTry bool   // the server has not heard of its lease id
	channel  string // by which the server tells of a grant: the request waits in the queue
}

// Tick is an instant of a schedule, to be entered in the lock's ledger by the grant.
type Tick struct {
	At       time.Time // the tick, a whole second
	Previous time.Time // the tick before it by the schedule; zero if there is none
	// Schedule identifies the schedule. Ticks before the lock first heard of it are decided.
	Schedule string
	PerTick  int // defaults to 1
	// NotBefore and Deadline bound the grant by the server's clock. NotBefore is At at the earliest, Deadline
	// defaults to none.
	NotBefore, Deadline time.Time
	// IfHeld and IfLate are the outcomes that settle the tick when all rows are held, and past the deadline.
	// With an empty IfHeld a tick stays open then; IfLate is required with a deadline.
	IfHeld, IfLate string
	// KeepFirst leaves a tick open, in spite of IfHeld, if all ticks before it are decided: it is the first that waits for a row.
	KeepFirst bool
	// KeepOutcome has the lock keep how the tick was settled, if this request does so, until somebody has told of it: see [State.Settled]. Whoever asked may die
	// before that.
	KeepOutcome bool
}

// Verdict is the answer to a request.
type Verdict string

// The verdicts.
const (
	Granted Verdict = "granted" // Lease is set
	Held    Verdict = "held"    // all rows are held, the first until Until, by Holder; or those that are free are for a crowd in line
	Early   Verdict = "early"   // ask again at Until
	Closed  Verdict = "closed"  // the server had forgotten the lock: no grants until Until
	Settled Verdict = "settled" // by this request, with Outcome
	Decided Verdict = "decided" // before this request; Outcome tells how, if it is still known
	Unknown Verdict = "unknown" // Err tells why; ask again with the same id
)

// Answer is what became of a [Request].
type Answer struct {
	Verdict Verdict
	ID      string // the request's lease id
	Lease   *Lease
	Until   time.Time // by the server's clock
	Holder  string    // the owner of a row
	Outcome string    // IfHeld or IfLate of the request that settled the tick; "granted" if it was granted
	Orphans int       // runs of this lock whose outcome nobody has recorded yet: see [Client.Look]
	Err     error

	line inLine
}

// Unsure tells whether nothing is known, and asking again with the same id may tell more.
func (a Answer) Unsure() bool {
	return a.Verdict == Unknown && errors.Is(a.Err, ErrUnknown) && !errors.Is(a.Err, ErrRefused)
}

func (r Request) withDefaults() Request {
	if r.ID == "" {
		r.ID, r.firstTry = rand.Text(), true
	}
	r.Slots = orDefault(r.Slots, 1)
	r.Lease = orDefault(r.Lease, 30*time.Second)
	if r.Tick != nil {
		t := *r.Tick
		t.PerTick = orDefault(t.PerTick, 1)
		t.NotBefore = orDefault(t.NotBefore, t.At)
		r.Tick = &t
	}
	return r
}

func (r Request) validate() error {
	switch {
	case strings.ContainsAny(r.ID+r.Trigger, "\n"):
		return errors.New("a lease id or trigger contains a line break")
	case r.Slots < 1 || r.Slots > 1000:
		return fmt.Errorf("slots is %d: it must be from 1 to 1000", max(r.Slots, 0))
	case r.Lease < 10*time.Millisecond || r.Lease > MaxLease:
		return fmt.Errorf("lease is %v: it must be from 10ms to %v", r.Lease, MaxLease)
	case r.Delay < 0 || r.Delay > time.Hour:
		return fmt.Errorf("delay is %v: it must be from 0 to 1h", r.Delay)
	case r.Adopt != "" && r.Tick != nil:
		return errors.New("an adopted run brings its own tick")
	case r.Adopt != "" && r.Trigger == "":
		return errors.New("an adopted run needs a trigger, so that it is accounted for again")
	case r.Tick == nil:
		return nil
	}
	return r.Tick.validate(r.Slots)
}

func (t Tick) validate(slots int) error {
	switch {
	case t.At.Unix() <= 0 || t.At.Nanosecond() != 0:
		return fmt.Errorf("tick %v: it must be a whole second after 1970", t.At)
	case !t.Previous.Before(t.At):
		return fmt.Errorf("tick %v: the one before it is %v", t.At, t.Previous)
	case t.PerTick < 1 || t.PerTick > slots:
		return fmt.Errorf("per tick is %d: it must be from 1 to the number of slots, %d", t.PerTick, slots)
	case !t.Deadline.IsZero() && t.IfLate == "":
		return errors.New("a tick with a deadline needs the outcome IfLate")
	case strings.ContainsAny(t.IfHeld, ";\n") || strings.ContainsAny(t.IfLate, ";\n"):
		return fmt.Errorf("outcomes %q and %q: they must have neither semicolons nor line breaks", t.IfHeld, t.IfLate)
	}
	return nil
}

func (r Request) args(owner string) []any {
	args := make([]any, 0, 20)
	keepFirst, keepOutcome := r.Tick != nil && r.Tick.KeepFirst, r.Tick != nil && r.Tick.KeepOutcome
	args = append(args, owner, r.Slots, r.Lease.Microseconds(), r.Trigger, r.Memo, flag(r.Abstain), r.Adopt, flag(!r.AnyLimit))
	switch t := r.Tick; {
	case t != nil:
		args = append(args, t.At.Unix(), max(t.Previous.Unix(), 0), toMicros(t.NotBefore), toMicros(t.Deadline),
			t.PerTick, t.Schedule, t.IfHeld, t.IfLate)
	case r.channel != "" || r.Delay > 0:
		args = append(args, "", 0, 0, 0, 0, "", "", "")
	}
	if r.channel != "" || r.Delay > 0 || keepFirst || keepOutcome {
		args = append(args, r.channel, patienceInLine.Microseconds(), r.Delay.Microseconds())
	}
	if keepFirst || keepOutcome {
		args = append(args, flag(keepFirst), flag(keepOutcome))
	}
	return args
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
