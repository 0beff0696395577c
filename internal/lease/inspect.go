package lease

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/lease/clock"
)

// InspectRequest asks what a lock knows.
type InspectRequest struct {
	Lock      string
	Permanent bool // as in [Request]
	// Schedule, if set, announces the schedule of a replica that starts: if it is not the lock's current one, it begins
	// now, and ticks before now are decided.
	Schedule string
	// Behind is how many seconds the names of its ticks are behind their instants now: see [Tick]. ZoneRules, if set, is a hash of the zone data by
	// which they are due.
	Behind    int64
	ZoneRules string
	// SettleThrough, if set, settles every tick up to it that is still undecided, once the server's clock is past SettleDeadline; but not
	// those in [State.Open] that were decided before they were given back.
	SettleThrough, SettleDeadline time.Time
	// SettleOutcome, if set, is with which outcome these are settled, as ticks of the schedule SettleSchedule. It is kept for them together: see
	// [State.Settled].
	SettleOutcome, SettleSchedule string
	// Follower, if set, is the name of a lock whose ticks follow those of this one: the reply lists those that have
	// ended well. Used is the tick up to which it needs no outcome any more. Outcomes that all followers have used
	// are forgotten, as are followers that no request has named for a day, and of more than a thousand outcomes the
	// oldest. A tick has an outcome only if its holder reported it: see [Run.ReleaseWith]. A server that has lost
	// its memory has lost the outcomes.
	Follower string
	Used     time.Time
	// Acked are ticks of [State.Settled] whose outcome was recorded: the lock forgets them.
	Acked []time.Time
	// Abandon are lease ids of [State.Orphans] that are about to be recorded as abandoned. From then on the withdrawal of such a
	// lease does not open its tick.
	Abandon []string
}

// State is what a lock knows. Times are by the server's clock.
type State struct {
	Now     time.Time
	Floor   Token       // the greatest token so far
	Decided time.Time   // every tick up to this one is decided, but for those in Open
	Open    []time.Time // ticks that were given back before their start, oldest first: see Undo of a grant
	Before  time.Time   // the same, before SettleThrough
	Closed  time.Time   // no grants until then; zero or past if the lock is open
	Pause   Pause       // the newest: see [Pause.On] for whether it is over
	Rows    []Row
	Orphans []Row
	Through time.Time    // to a follower: every tick up to this one has ended; not known while the lock is closed
	Ended   []Ended      // and these of them, oldest first, have ended well
	Settled []Settlement // ticks that no replica has recorded yet
	// RulesSince is since when ZoneRules of the request have been in use, if others were in use before; else zero.
	RulesSince time.Time
	Err        error // the outcome is unknown; the rest is empty
}

// Settlement is a tick that was settled without a grant, by a request with [Tick.KeepOutcome]: when, and how. Or it is all undecided ticks after
// one and up to Tick, by a [InspectRequest] with a SettleOutcome. The newest hundred are kept.
type Settlement struct {
	Tick, At time.Time
	Outcome  string
	After    time.Time // zero for a single tick
	Schedule string    // "" for a single tick
	Instant  time.Time // at which a single tick was due, by the client that settled it
}

// NewSettlement decodes one as it is kept: how is the outcome, or three lines: the tick before it, the outcome,
// and the schedule.
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

// SingleSettlement is how a single tick was settled, as it is kept.
func SingleSettlement(outcome string, behind int64) string {
	if behind == 0 {
		return outcome
	}
	return fmt.Sprintf("%s\t%d", outcome, behind)
}

// Row is a lease as others see it. An orphan's has ended; its Expiry is zero.
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
	EndedWell bool   // an orphan's work had ended well when its holder died: see [Run.MarkSucceeded]
	Stopped   string // why the holder of an orphan was to stop before its lease ended, see [Client.Stop]; "" if it was not
	Renewed   bool   // an orphan's lease was renewed once at least, so its holder had heard of the grant; false where that is not known
	Abandoned bool   // an orphan was abandoned, see [InspectRequest.Abandon], or handed over: its tick stays decided
}

// Ended is a tick that has ended well, since Due together with all before it: each is decided, and no lease for it is held, or waits as an
// orphan to be carried on.
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

// SettleRecord is the outcome of the ticks that are settled, and their schedule, as they are kept;
// "" if they are not.
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
