package lease

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"
)

// A Request asks for one row of a lock.
type Request struct {
	// Lock is the name of the lock. A name with a part in braces, as in "{orders}:archive", is on the same node of a Cluster as other keys with that
	// hash tag. Without braces, the whole name is the tag.
	Lock string
	// ID is the lease id. Asking again with the same id gives the same grant, so that an unknown outcome can be resolved. If the lease has ended
	// meanwhile, the answer is [Unheard]. Defaults to a random one.
	ID string
	// Slots is the number of rows. Defaults to 1; at most 1,000.
	Slots int
	// Lease is the length of a grant without renewal. Defaults to 30s; at least 10ms, at most [MaxLease].
	Lease time.Duration
	// Trigger, if set, makes the lease a run that is accounted for: if it ends without a release, it is an orphan until it is deleted, or until a
	// lock that is not Permanent is forgotten. Memo is kept with it, for the replica that finds it.
	Trigger, Memo string
	// Permanent keeps the lock's state when it is idle.
	Permanent bool
	// AnyLimit accepts a lock that is in use with another number of slots. The number of this request counts.
	AnyLimit bool
	// Abstain lets the request settle its tick or find its holder, but never be granted.
	Abstain bool
	// Adopt is the lease id of an orphan. This lease has the orphan's tick, and the next attempt.
	Adopt string
	// Delay keeps a row shut for so long after its lease ended without a release. It is for resources that can't check tokens: writes of a dead
	// holder that are still on their way arrive first (the lock-delay of Chubby, Burrows 2006). The Delay of the last grant counts.
	Delay time.Duration
	// Tick, if not nil, is granted at most PerTick times, ever.
	Tick *Tick

	// FirstTry is true if ID was not sent to any server yet.
	FirstTry bool
	// Channel, if set, is the channel to which the server publishes a grant: the request waits in the lock's queue.
	Channel string
}

// A Tick is a tick of a schedule. The grant enters it in the lock's ledger.
type Tick struct {
	// At is the identity of the tick on every client, a whole second: its instant, or a name for it on a scale of its own that is never ahead of the
	// instant.
	At       time.Time
	Instant  time.Time // the instant at which the tick is due; zero if that is At
	Previous time.Time // the identity of the tick before it in the schedule; zero if there is none
	// Schedule identifies the schedule. Ticks before its first announcement to the lock are decided.
	Schedule string
	PerTick  int // defaults to 1
	// NotBefore and Deadline bound the grant by the server's clock. NotBefore is at least At; Deadline defaults to none.
	NotBefore, Deadline time.Time
	// IfHeld and IfLate are the outcomes that settle the tick if all rows are held, and past the deadline. With an empty IfHeld the tick stays open
	// if all rows are held. IfLate is required with a deadline.
	IfHeld, IfLate string
	// KeepFirst leaves a tick open, in spite of IfHeld, if all ticks before it are decided: it is the first that waits for a row.
	KeepFirst bool
	// KeepOutcome keeps the outcome in the lock, if this request settles the tick, until a replica has recorded it: see [State.Settled]. The replica
	// that asked may die before that.
	KeepOutcome bool
}

// A Verdict is the answer to a request.
type Verdict string

// The verdicts.
const (
	Granted Verdict = "granted" // Lease is set
	// Held: all rows are held, the first until Until, by Holder. Or the free rows are reserved for waiters in line.
	Held    Verdict = "held"
	Early   Verdict = "early"   // ask again at Until
	Closed  Verdict = "closed"  // the server lost the lock's data: no grants until Until
	Settled Verdict = "settled" // by this request, with Outcome
	Decided Verdict = "decided" // before this request; Outcome has the result, if it is still known
	Unheard Verdict = "unheard" // granted under this id, and the lease has ended: withdraw it, and ask with another id
	Unknown Verdict = "unknown" // Err has the reason; ask again with the same id
)

// WithDefaults returns the request with defaults for the fields that are not set.
func (r Request) WithDefaults() Request {
	if r.ID == "" {
		r.ID, r.FirstTry = rand.Text(), true
	}
	r.Slots = cmp.Or(r.Slots, 1)
	r.Lease = cmp.Or(r.Lease, 30*time.Second)
	if r.Tick != nil {
		t := *r.Tick
		t.PerTick = cmp.Or(t.PerTick, 1)
		t.NotBefore = cmp.Or(t.NotBefore, t.Instant, t.At)
		r.Tick = &t
	}
	return r
}

// Validate returns an error if the request can't be valid.
func (r Request) Validate() error {
	switch {
	case strings.ContainsAny(r.ID+r.Trigger, "\n"):
		return errors.New("a lease id or trigger contains a line break")
	case r.Slots < 1 || r.Slots > MaxSlots:
		return fmt.Errorf("slots is %d: it must be from 1 to %d", max(r.Slots, 0), MaxSlots)
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
	case !t.Instant.IsZero() && (t.Instant.Nanosecond() != 0 || t.Behind() < 0 || t.Behind() > maxBehind):
		return fmt.Errorf("tick %v: it is due at %v: that must be a whole second, and at most two days later", t.At, t.Instant)
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

const maxBehind = 2 * 86400

// Behind returns the number of seconds by which the name of a tick is behind its instant.
func (t *Tick) Behind() int64 {
	if t == nil || t.Instant.IsZero() {
		return 0
	}
	return t.Instant.Unix() - t.At.Unix()
}

// ZoneOf returns the zone whose local times name the ticks of a schedule, which its digest has before a dot; "" if ticks are named by instants.
// Decisions on ticks in one zone say nothing about ticks in another.
func ZoneOf(digest string) string {
	zone, _, named := strings.Cut(digest, ".")
	if !named {
		return ""
	}
	return zone
}

// Accounted reports whether the grant matters later: the request has a tick, or its run becomes an orphan if its holder dies.
func (r Request) Accounted() bool { return r.Tick != nil || r.Trigger != "" || r.Adopt != "" }

// PerTick returns the number of grants that the tick has; 1 without a tick.
func (r Request) PerTick() int {
	if r.Tick == nil {
		return 1
	}
	return r.Tick.PerTick
}

// Zone returns the zone of the tick: see [ZoneOf].
func (r Request) Zone() string {
	if r.Tick == nil {
		return ""
	}
	return ZoneOf(r.Tick.Schedule)
}

// Previous returns the tick before, in seconds since 1970; 0 if there is none.
func (r Request) Previous() int64 {
	if r.Tick == nil {
		return 0
	}
	return max(r.Tick.Previous.Unix(), 0)
}
