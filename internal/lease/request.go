package lease

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"
)

// A Request asks for a lease on one slot of a lock.
type Request struct {
	// Lock is the name of the lock. The part of a name in braces, as in "{orders}:archive", is its hash tag: a Redis Cluster keeps all keys with the
	// same hash tag on one node. Without braces, the whole name is the tag.
	Lock string
	// ID is the lease id. A repeated request with the same id gets the same grant, so a client can resolve an unknown outcome. If the request has a
	// Trigger and its lease has ended meanwhile, the verdict is [Unheard]. Defaults to a random id.
	ID string
	// Slots is the number of slots of the lock. Defaults to 1; at most 1,000.
	Slots int
	// Lease is the length of a grant without renewal. Defaults to 30s; at least 10ms, at most [MaxLease].
	Lease time.Duration
	// Trigger, if set, makes the lease a run whose end is recorded. If the lease ends without a release, the run is an orphan until a client deletes or
	// adopts it. Orphans of a lock that is not Permanent expire with the lock. Memo is stored with the run, for the replica that finds the orphan.
	Trigger, Memo string
	// Permanent keeps the state of the lock forever. Otherwise Redis deletes the state of an idle lock.
	Permanent bool
	// AnyLimit accepts a lock that is in use with another number of slots, and applies the Slots of this request.
	AnyLimit bool
	// Abstain asks for no grant: the request only settles its tick, or returns the holder.
	Abstain bool
	// Adopt is the lease id of an orphan. The granted lease takes over the orphan's tick, with the next attempt number.
	Adopt string
	// Delay is the time for which a slot stays closed after its lease ended without a release. It protects resources that can't check tokens, because
	// delayed writes of the dead holder arrive before the next grant (the lock-delay of Chubby, Burrows 2006). The Delay of the last grant applies.
	Delay time.Duration
	// Tick, if not nil, is granted at most PerTick times, ever.
	Tick *Tick

	// FirstTry is true if no request with this ID has been sent yet.
	FirstTry bool
	// Channel, if set, makes the request wait in the lock's queue. Redis publishes the grant to this channel.
	Channel string
}

// A Tick is a tick of a schedule. A grant of the tick is recorded in the lock's ledger.
type Tick struct {
	// At identifies the tick, with the same value on every client. It is a whole second: the instant of the tick, or an encoding of its local time in
	// the schedule's time zone (see cronspec.Schedule.ID). It is never later than the instant.
	At       time.Time
	Instant  time.Time // the instant of the tick; zero if it is equal to At
	Previous time.Time // the At of the previous tick of the schedule; zero if there is none
	// Schedule identifies the schedule. Ticks before the first request with this schedule count as decided.
	Schedule string
	PerTick  int // defaults to 1
	// NotBefore and Deadline bound the time of the grant, by Redis's clock. NotBefore defaults to the instant of the tick. Without a Deadline, the tick
	// may be granted at any later time.
	NotBefore, Deadline time.Time
	// IfHeld is the outcome that settles the tick if all slots are held. If IfHeld is empty, such a tick stays open. IfLate is the outcome that settles
	// the tick after the Deadline. It is required with a Deadline.
	IfHeld, IfLate string
	// KeepFirst exempts the oldest undecided tick from IfHeld: this tick stays open and waits for a slot.
	KeepFirst bool
	// Replace stops the oldest run that began before the tick if all slots are held. Only election.Elector implements it; stores ignore it.
	Replace bool
	// KeepOutcome makes the lock keep the outcome if this request settles the tick, because the replica may die before it records the outcome. See
	// [State.Settled].
	KeepOutcome bool
}

// A Verdict is the answer to a request.
type Verdict string

// The verdicts.
const (
	Granted Verdict = "granted" // Result.Grant is set
	// Held means that every slot is held, or reserved for waiters in the queue. Of the leases, the lease of Holder ends first, at Until.
	Held    Verdict = "held"
	Early   Verdict = "early"   // the tick is not due yet: ask again at Until
	Closed  Verdict = "closed"  // Redis lost the lock's data: no grants until Until
	Settled Verdict = "settled" // this request settled the tick, with Outcome
	Decided Verdict = "decided" // the tick was decided before this request; Outcome has the result, if it is still known
	Unheard Verdict = "unheard" // the lease of an earlier request with this id has ended: withdraw the id, and ask again with another id
	Unknown Verdict = "unknown" // Err has the reason; ask again with the same id

	// Taken and Before are the two kinds of Decided that package election distinguishes.
	Taken  Verdict = "taken"  // granted to other requests
	Before Verdict = "before" // settled without a grant
)

// WithDefaults returns the request with defaults in the fields that are not set.
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

// workMark separates the id of the work from the rest of a lease id.
const workMark = "."

// For returns the request with its defaults and a new lease id. work is the id of the work under the lease, and must not contain dots. The lease id
// begins with work, unless work is empty. [WorkOf] extracts work from the lease id.
func (r Request) For(work string) Request {
	r.ID = ""
	r = r.WithDefaults()
	if work != "" {
		const random = 12 // 12 characters of rand.Text have 60 random bits, enough to distinguish the few requests with the same work
		r.ID = work + workMark + r.ID[:random]
	}
	return r
}

// WorkOf returns the id of the work at the beginning of a lease id: see [Request.For]. Without such a part, it returns the whole lease id.
func WorkOf(leaseID string) string {
	work, _, _ := strings.Cut(leaseID, workMark)
	return work
}

// Validate returns an error if a field is out of its range, or if two fields exclude each other.
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

// Behind returns Instant minus At, in seconds; 0 without an Instant.
func (t *Tick) Behind() int64 {
	if t == nil || t.Instant.IsZero() {
		return 0
	}
	return t.Instant.Unix() - t.At.Unix()
}

// ZoneOf returns the identifier of the time zone in whose local time [Tick.At] is given: the part of the schedule's digest before a dot. It returns
// "" if At is an instant. Ticks of different zones are not comparable.
func ZoneOf(digest string) string {
	zone, _, named := strings.Cut(digest, ".")
	if !named {
		return ""
	}
	return zone
}

// Accounted reports whether the lock keeps a record of the grant after the lease has ended: the request has a tick, or its run becomes an orphan if
// its holder dies.
func (r Request) Accounted() bool { return r.Tick != nil || r.Trigger != "" || r.Adopt != "" }

// PerTick returns [Tick.PerTick]; 1 without a tick.
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

// Previous returns [Tick.Previous] in seconds since 1970; 0 if there is none.
func (r Request) Previous() int64 {
	if r.Tick == nil {
		return 0
	}
	return max(r.Tick.Previous.Unix(), 0)
}
