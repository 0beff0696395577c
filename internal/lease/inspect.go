package lease

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/lease/clock"
)

// An InspectRequest asks for the state of a lock.
type InspectRequest struct {
	Lock      string
	Permanent bool // see [Request]
	// Schedule, if set, announces the schedule of a replica that starts. If it is not the current schedule of the lock it begins now, and ticks
	// before now are decided.
	Schedule string
	// Behind is the number of seconds by which the names of the ticks are behind their instants now: see [Tick]. ZoneRules, if set, is a hash of the
	// zone data by which they are due.
	Behind    int64
	ZoneRules string
	// SettleThrough, if set, settles every undecided tick up to it, once the server's clock is past SettleDeadline. It does not settle ticks in
	// [State.Open] that were decided before they were given back.
	SettleThrough, SettleDeadline time.Time
	// SettleOutcome, if set, is the outcome with which they are settled, as ticks of the schedule SettleSchedule. It is kept for all of them
	// together: see [State.Settled].
	SettleOutcome, SettleSchedule string
	// Follower, if set, is the name of a lock whose ticks follow the ticks of this one: the reply lists the ticks that ended well. Used is the tick
	// up to which it needs no outcome any more. Outcomes that all followers have used are forgotten, as are followers that no request has named for a
	// day, and the oldest of more than a thousand outcomes. A tick has an outcome only if its holder reported it: see engine.Run.ReleaseWith. A
	// server that has lost its memory has lost the outcomes.
	Follower string
	Used     time.Time
	// Acked has ticks of [State.Settled] whose outcome was recorded. The lock forgets them.
	Acked []time.Time
	// Abandon has lease ids of [State.Orphans] that are about to be recorded as abandoned. From then on the withdrawal of such a lease does not open
	// its tick.
	Abandon []string
}

// A State is the state of a lock. Times are by the server's clock.
type State struct {
	Now     time.Time
	Floor   Token       // the greatest token so far
	Decided time.Time   // every tick up to this one is decided, except the ticks in Open
	Open    []time.Time // ticks that were given back before their start, oldest first: see [ReleaseUndo]
	Before  time.Time   // Decided before SettleThrough was applied
	Closed  time.Time   // no grants until then; zero or past if the lock is open
	Pause   Pause       // the newest pause; [Pause.On] reports whether it is over
	Rows    []Row
	Orphans []Row
	Through time.Time    // for a follower: every tick up to this one has ended; unknown while the lock is closed
	Ended   []Ended      // for a follower: the ticks up to Through that ended well, oldest first
	Settled []Settlement // ticks that no replica has recorded yet
	// RulesSince is the time since which the ZoneRules of the request have been in use, if others were in use before; otherwise zero.
	RulesSince time.Time
	Err        error // the outcome is unknown; the rest is empty
}

// A Settlement is a tick that was settled without a grant, by a request with [Tick.KeepOutcome], with the time and the outcome. Or it stands for all
// undecided ticks after After and up to Tick, which an [InspectRequest] with a SettleOutcome settled. The newest hundred are kept.
type Settlement struct {
	Tick, At time.Time
	Outcome  string
	After    time.Time // zero for a single tick
	Schedule string    // "" for a single tick
	Instant  time.Time // the instant at which a single tick was due, by the client that settled it
}

// NewSettlement decodes a stored settlement. how is the outcome, or three lines: the tick before it, the outcome, and the schedule.
func NewSettlement(tick, at int64, how string) Settlement {
	s := Settlement{Tick: clock.FromMicros(tick * 1e6), At: clock.FromMicros(at), Outcome: how}
	if lines := strings.SplitN(how, "\n", 3); len(lines) == 3 {
		s.After, s.Outcome, s.Schedule = time.Unix(ParseNumber(lines[0]), 0).UTC(), lines[1], lines[2]
		return s
	}
	outcome, behind, _ := strings.Cut(s.Outcome, "\t")
	s.Outcome, s.Instant = outcome, s.Tick.Add(time.Duration(ParseNumber(behind))*time.Second)
	return s
}

// SingleSettlement encodes the settlement of a single tick, as it is stored.
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
	EndedWell bool   // the work of the orphan had ended well when its holder died: see engine.Run.MarkSucceeded
	Stopped   string // the reason for which the holder of the orphan was asked to stop before its lease ended, see engine.Client.Stop; "" if it was not
	// Renewed is true if the lease of the orphan was renewed at least once, so that its holder had received the grant. It is false if that is not
	// known.
	Renewed   bool
	Abandoned bool // the orphan was abandoned, see [InspectRequest.Abandon], or handed over: its tick stays decided
}

// An Ended is a tick that has ended well. Due is the time since when it and all ticks before it have ended: each is decided, and no lease for it is
// held, or waits as an orphan to be recovered.
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

// ReadOnly reports whether the request changes nothing.
func (l InspectRequest) ReadOnly() bool {
	return l.Schedule == "" && l.SettleThrough.IsZero() && l.SettleOutcome == "" && l.Follower == "" && len(l.Acked) == 0 && len(l.Abandon) == 0
}

// SettleRecord returns the outcome and the schedule of the ticks that are settled, as they are stored; "" if no ticks are.
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
