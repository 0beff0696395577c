package lease

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// An InspectRequest asks for the state of a lock.
type InspectRequest struct {
	Lock      string
	Permanent bool // see [Request]
	// Schedule, if set, announces the schedule of a replica that starts. If it is not the current schedule of the lock, it begins now, and its ticks
	// before now count as decided.
	Schedule string
	// Behind is the number of seconds by which [Tick.At] is currently behind [Tick.Instant]. ZoneRules, if set, is a hash of the time zone data from
	// which the instants are computed.
	Behind    int64
	ZoneRules string
	// SettleThrough, if set, settles every undecided tick up to SettleThrough, once Redis's clock is past SettleDeadline. Ticks in [State.Open] that
	// were decided before they were given back stay open.
	SettleThrough, SettleDeadline time.Time
	// SettleOutcome, if set, is the outcome of the ticks that SettleThrough settles, and SettleSchedule is their schedule. The lock keeps one
	// [Settlement] for all of them until a replica has recorded it: see [State.Settled].
	SettleOutcome, SettleSchedule string
	// Follower, if set, is the name of a lock whose ticks depend on the ticks of this lock. The reply then lists the ticks that succeeded. Used is the
	// newest tick whose outcome the follower no longer needs. The lock forgets an outcome once all followers have used it, keeps at most a thousand
	// outcomes, and forgets a follower that no request has named for a day. A tick has an outcome only if its holder reported one: see
	// engine.Run.ReleaseWith. If Redis loses its data, the outcomes are lost.
	Follower string
	Used     time.Time
	// Acked has ticks of [State.Settled] whose outcome was recorded. The lock then forgets these settlements.
	Acked []time.Time
	// Abandon has lease ids of [State.Orphans] that the caller is about to record as abandoned. From then on, a withdrawal of such a lease does not
	// reopen its tick.
	Abandon []string
}

// A State is the state of a lock. Times are by Redis's clock.
type State struct {
	Now     time.Time
	Floor   Token       // the greatest token so far
	Decided time.Time   // all ticks up to Decided are decided, except the ticks in Open
	Open    []time.Time // ticks that were given back because their run never started, oldest first: see [ReleaseUndo]
	Before  time.Time   // the value of Decided before SettleThrough was applied
	Closed  time.Time   // no grants until then; zero or past if the lock is open
	Pause   Pause       // the newest pause; [Pause.On] reports whether it is over
	Rows    []Row
	Orphans []Row
	Through time.Time    // for a follower: all ticks up to Through have ended; unknown while the lock is closed
	Ended   []Ended      // for a follower: the ticks up to Through that succeeded, oldest first
	Settled []Settlement // settlements that no replica has recorded yet
	// RulesSince is the time at which the lock changed to the ZoneRules of the request. It is zero if the lock has had no other rules.
	RulesSince time.Time
	Err        error // if set, the outcome is unknown and all other fields are empty
}

// A Settlement records the outcome of a tick that was settled without a grant, by a request with [Tick.KeepOutcome]. If After is set, it records the
// outcome of all undecided ticks after After and up to Tick, which an [InspectRequest] with a SettleOutcome settled. A lock keeps the newest hundred.
type Settlement struct {
	Tick, At time.Time
	Outcome  string
	After    time.Time // zero for a single tick
	Schedule string    // "" for a single tick
	Instant  time.Time // the instant at which a single tick was due, as computed by the client that settled it
}

// NewSettlement decodes a stored settlement. For a single tick, how is the outcome, with the seconds of [Tick.Behind] after a tab. For several ticks,
// how has three lines: After, the outcome, and the schedule.
func NewSettlement(tick, at int64, how string) Settlement {
	s := Settlement{Tick: FromMicros(tick * 1e6), At: FromMicros(at), Outcome: how}
	if lines := strings.SplitN(how, "\n", 3); len(lines) == 3 {
		s.After, s.Outcome, s.Schedule = time.Unix(ParseNumber(lines[0]), 0).UTC(), lines[1], lines[2]
		return s
	}
	outcome, behind, _ := strings.Cut(s.Outcome, "\t")
	s.Outcome, s.Instant = outcome, s.Tick.Add(time.Duration(ParseNumber(behind))*time.Second)
	return s
}

// SingleSettlement encodes the outcome of a single tick for storage.
func SingleSettlement(outcome string, behind int64) string {
	if behind == 0 {
		return outcome
	}
	return fmt.Sprintf("%s\t%d", outcome, behind)
}

// A Row is a lease as other clients see it. The lease of an orphan has ended; its Expiry is zero.
type Row struct {
	ID, Owner string
	Slot      int
	Token     Token
	Length    time.Duration
	Expiry    time.Time
	Tick      time.Time // zero without one
	Attempt   int
	Trigger   string
	Memo      string
	EndedWell bool   // the work of the orphan had succeeded before its holder died: see engine.Run.MarkSucceeded
	Stopped   string // why the holder of the orphan was asked to stop before its lease ended, see engine.Client.Stop; "" if nobody asked
	// Renewed is true if the lease of the orphan is known to have been renewed. Its holder then had received the grant.
	Renewed   bool
	Abandoned bool // the orphan was abandoned, see [InspectRequest.Abandon], or handed over; its tick stays decided
}

// An Ended is a tick that has succeeded. Due is the time at which the last of this tick and all earlier ticks ended. A tick has ended once it is
// decided, no lease for it is held, and no orphan of it waits for a recovery.
type Ended struct{ Tick, Due time.Time }

// Validate returns an error if the request can't be valid.
func (r InspectRequest) Validate() error {
	if strings.ContainsAny(r.Follower, " ;\t\n") {
		return fmt.Errorf("follower %q: it must be without blanks, semicolons and line breaks", r.Follower)
	}
	if strings.ContainsAny(r.SettleOutcome+r.SettleSchedule, ";\n") {
		return fmt.Errorf("outcome %q and schedule %q: they must have neither semicolons nor line breaks", r.SettleOutcome, r.SettleSchedule)
	}
	if strings.ContainsAny(strings.Join(r.Abandon, ""), ";\n") {
		return fmt.Errorf("orphans %q: they must have neither semicolons nor line breaks", r.Abandon)
	}
	return nil
}

// ReadOnly reports whether the request changes nothing in the lock.
func (l InspectRequest) ReadOnly() bool {
	return l.Schedule == "" && l.SettleThrough.IsZero() && l.SettleOutcome == "" && l.Follower == "" && len(l.Acked) == 0 && len(l.Abandon) == 0
}

// SettleRecord encodes SettleOutcome and SettleSchedule for storage. It returns "" without a SettleOutcome.
func (l InspectRequest) SettleRecord() string {
	if l.SettleOutcome == "" {
		return ""
	}
	return l.SettleOutcome + "\n" + l.SettleSchedule
}

// SortEnded sorts by tick, the oldest first.
func SortEnded(ended []Ended) {
	slices.SortFunc(ended, func(a, b Ended) int { return a.Tick.Compare(b.Tick) })
}
