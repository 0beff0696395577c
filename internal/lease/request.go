package lease

import (
	"cmp"
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
	// ID is the lease id. Asking again with the same id gives the same grant, which is how an unknown outcome gets resolved. If the
	// lease has ended meanwhile, the answer is [Unheard]. Defaults to a random one.
	ID string
	// Slots is the number of rows. Defaults to 1; at most 1,000.
	Slots int
	// Lease is how long a grant lasts without renewal. Defaults to 30s; at least 10ms, at most [MaxLease].
	Lease time.Duration
	// Trigger, if set, makes the lease a run that is accounted for: if it ends without a release, it is an orphan
	// until it is deleted, or until a lock that is not Permanent is forgotten. Memo goes with it, for the replica
	// that finds it.
	Trigger, Memo string
	// Permanent keeps the lock's state when it is idle.
	Permanent bool
	// AnyLimit accepts a lock that is in use with another number of slots; this request's own number counts.
	AnyLimit bool
	// Abstain lets the request settle its tick or learn its holder, but never be granted.
	Abstain bool
	// Adopt is the lease id of an orphan whose tick this lease carries on, as the next attempt.
	Adopt string
	// Delay keeps a row shut for so long after its lease ended without a release: for resources that can't check tokens, so
	// that what a dead holder has sent can arrive first (the lock-delay of Chubby, Burrows 2006). The last grant's counts.
	Delay time.Duration
	// Tick, if not nil, is granted at most PerTick times, ever.
	Tick *Tick

	// FirstTry says that ID was sent to no server yet.
	FirstTry bool
	// Channel, if set, is where the server publishes a grant: the request waits in the lock's queue.
	Channel string
}

// Tick is a tick of a schedule, to be entered in the lock's ledger by the grant.
type Tick struct {
	// At is the identity of the tick on every client, a whole second: its instant, or a name for it on a scale of its own that is never ahead of it.
	At       time.Time
	Instant  time.Time // at which the tick is due; zero if that is At
	Previous time.Time // the tick before it by the schedule, as At has it; zero if there is none
	// Schedule identifies the schedule. Ticks before its first announcement to the lock are decided.
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
	// KeepOutcome has the lock keep how the tick was settled, if this request does so, until a replica has recorded
	// it: see [State.Settled]. The replica that asked may die before that.
	KeepOutcome bool
}

// Verdict is the answer to a request.
type Verdict string

// The verdicts.
const (
	Granted Verdict = "granted" // Lease is set
	Held    Verdict = "held"    // all rows are held, the first until Until, by Holder; or those that are free are for a crowd in line
	Early   Verdict = "early"   // ask again at Until
	Closed  Verdict = "closed"  // the server lost the lock's data: no grants until Until
	Settled Verdict = "settled" // by this request, with Outcome
	Decided Verdict = "decided" // before this request; Outcome has the result, if it is still known
	Unheard Verdict = "unheard" // granted under this id, and the lease has ended: withdraw it, and ask with another id
	Unknown Verdict = "unknown" // Err has the reason; ask again with the same id
)

// WithDefaults fills in the fields that were left out.
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

// Behind is how many seconds the name of a tick is behind its instant.
func (t *Tick) Behind() int64 {
	if t == nil || t.Instant.IsZero() {
		return 0
	}
	return t.Instant.Unix() - t.At.Unix()
}

// ZoneOf returns the zone whose local times name the ticks of a schedule, as its digest has it before a dot; "" if instants do. Decisions on ticks
// in one zone say nothing of those in another.
func ZoneOf(digest string) string {
	zone, _, named := strings.Cut(digest, ".")
	if !named {
		return ""
	}
	return zone
}

// Accounted reports whether it matters later that the request was granted: it has a tick, or its run is an
// orphan if it dies.
func (r Request) Accounted() bool { return r.Tick != nil || r.Trigger != "" || r.Adopt != "" }

// PerTick is how many grants the tick has; 1 without one.
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

// Previous is the tick before, in seconds since 1970; 0 where there is none.
func (r Request) Previous() int64 {
	if r.Tick == nil {
		return 0
	}
	return max(r.Tick.Previous.Unix(), 0)
}
