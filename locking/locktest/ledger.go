package locktest

import (
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/locking"
)

func ledger() []theorem {
	return []theorem{
		{"TickIsGrantedOnce", tickOnce, nothing},          // Promise: P1
		{"BacklogIsGrantedOldestFirst", backlog, nothing}, // Promise: P5
		{"LedgerForgetsNoTickThatIsOutOfTurn", outOfTurn, nothing},
		{"RequestWithoutATickLeavesTheLedgerAlone", noTick, nothing},
		{"NewScheduleStartsNow", newSchedule, nothing},
		{"TwoSchedulesOfARollOutLoseNoTick", rollOut, nothing},
		{"SkipSettlesOnlyWhenAllRowsAreHeld", skip, nothing}, // Promise: P5
		{"OnlyTheFirstTickWaitsForARow", keepFirst, nothing}, // Promise: P5
		{"DeadlineSettlesAsLate", deadline, nothing},
		{"AbstainerSettlesButIsNeverGranted", abstainerSettles, nothing},
		{"SettlerThatLostTheReplyHearsTheSame", settledTwice, nothing},
		{"GivenBackTickIsOpenAgain", givenBack, nothing},
		{"GivenBackTickCanBeSettled", givenBackSettled, nothing},
		{"GivenBackTicksAreSeen", givenBackSeen, nothing}, // Promise: P5
		{"LookSettlesWhatIsPastTheDeadline", lookSettles, nothing},
		{"LookLeavesTicksThatWereGivenBack", lookLeaves, nothing}, // Promise: P6
		{"LedgerIsBounded", ledgerBounded, layout},
		{"ClockGlitchAheadIsMended", glitch, layout},
	}
}

// decided fails the test unless a tick is decided.
func decided(b *bench, c *locking.Client, n int, outcome string) {
	b.Helper()
	if a := b.gets(c, lease.Request{Tick: b.tick(n)}, lease.Decided); a.Outcome != outcome {
		b.Errorf("tick %d is decided as %q, want %q", n, a.Outcome, outcome)
	}
}

// runs grants a tick and ends its run.
func runs(b *bench, c *locking.Client, n int) {
	b.Helper()
	b.release(b.wins(c, lease.Request{Tick: b.tick(n)}))
}

func tickOnce(b *bench) {
	b.known()
	runs(b, b.a, 0)
	l := b.wins(b.a, lease.Request{Tick: b.tick(1)})
	if !l.Tick().Equal(b.tick(1).At) || l.Attempt() != 1 {
		b.Errorf("granted tick %v, attempt %d", l.Tick(), l.Attempt())
	}
	a := b.gets(b.b, lease.Request{Tick: b.tick(1)}, lease.Decided)
	if a.Outcome != "granted" || a.Holder != "a" || !b.same(a.Until, b.state().Running[0].Expires) {
		b.Errorf("decided as %q, by %q until %v", a.Outcome, a.Holder, a.Until)
	}
	b.release(l)
	for _, c := range []*locking.Client{b.a, b.b} {
		decided(b, c, 1, "granted")
	}
	expired := b.wins(b.b, lease.Request{Tick: b.tick(2)})
	b.expire(expired)
	decided(b, b.a, 2, "granted")
	if d := b.state().Decided; !d.Equal(b.tick(2).At) {
		b.Errorf("decided up to %v", d)
	}
}

func backlog(b *bench) {
	b.known()
	runs(b, b.a, 0)
	runs(b, b.b, 4) // the newest first: T1..T3 stay open
	if d := b.state().Decided; !d.Equal(b.tick(0).At) {
		b.Errorf("decided up to %v, before 1..3 were", d)
	}
	for n := 1; n <= 3; n++ {
		runs(b, b.a, n)
	}
	for n := range 5 {
		decided(b, b.b, n, map[bool]string{true: "granted"}[n == 3])
	}
	if d := b.state().Decided; !d.Equal(b.tick(4).At) {
		b.Errorf("decided up to %v, want 4", d)
	}
	if n := b.entries(); n != 0 {
		b.Errorf("%d entries are left in the ledger", n)
	}
}

func outOfTurn(b *bench) {
	b.known()
	for _, n := range []int{9, 3, 7, 5, 1, 0, 8} {
		runs(b, b.a, n)
	}
	for _, n := range []int{9, 3, 7, 5, 1, 0, 8} {
		b.gets(b.b, lease.Request{Tick: b.tick(n)}, lease.Decided)
	}
	for _, n := range []int{2, 4, 6} {
		runs(b, b.b, n)
	}
	if d := b.state().Decided; !d.Equal(b.tick(9).At) {
		b.Errorf("decided up to %v, want 9", d)
	}
}

func noTick(b *bench) {
	b.known()
	runs(b, b.a, 0)
	runs(b, b.a, 4)
	l := b.wins(b.b, lease.Request{Trigger: "manual", Permanent: true, AnyLimit: true})
	if !l.Tick().IsZero() {
		b.Errorf("granted tick %v", l.Tick())
	}
	b.giveBack(l)
	for _, n := range []int{0, 4} {
		b.gets(b.b, lease.Request{Tick: b.tick(n)}, lease.Decided)
	}
	runs(b, b.b, 2)
}

func newSchedule(b *bench) {
	decided(b, b.a, 119, "") // the first word of a schedule: it begins now
	b.look(b.a, lease.InspectRequest{Permanent: true, Schedule: "another"})
	past := b.now().Truncate(time.Second).Add(-time.Second) // a client of a quorum estimates the time, by some milliseconds
	r := lease.Request{Tick: &lease.Tick{At: past, Previous: past.Add(-time.Second), Schedule: "another"}}
	b.gets(b.b, r, lease.Decided)
	if d := b.state().Decided; b.now().Sub(d) > timeout {
		b.Errorf("decided up to %v only", d)
	}
}

func rollOut(b *bench) {
	b.known()
	runs(b, b.a, 1)
	of := func(digest string, at time.Time) lease.Request {
		return lease.Request{Tick: &lease.Tick{At: at, Previous: at.Add(-time.Minute), Schedule: digest}}
	}
	b.look(b.b, lease.InspectRequest{Permanent: true, Schedule: "new"})
	runs(b, b.a, 2) // replicas that still have the old one lose no tick
	b.setSince(b.tick(5).At.Add(-30 * time.Second))
	b.gets(b.b, of("new", b.tick(4).At), lease.Decided)
	for n := 3; n <= 6; n++ {
		runs(b, b.a, n)
	}
	b.release(b.wins(b.b, of("new", b.tick(7).At)))
	decided(b, b.a, 7, "granted") // one instant, one grant, by whichever schedule
	runs(b, b.a, 8)
	b.release(b.wins(b.b, of("new", b.tick(9).At)))
}

func skip(b *bench) {
	b.known()
	at := func(n int) *lease.Tick { t := b.tick(n); t.IfHeld = "skipped overlap"; return t }
	first := b.wins(b.a, lease.Request{Slots: 2, AnyLimit: true, Tick: at(1)})
	second := b.wins(b.b, lease.Request{Slots: 2, AnyLimit: true, Tick: at(2)})
	b.gets(b.a, lease.Request{Slots: 2, AnyLimit: true, Tick: b.tick(3)}, lease.Held) // not said: stays open
	a := b.gets(b.b, lease.Request{Slots: 2, AnyLimit: true, Tick: at(3)}, lease.Settled)
	if a.Outcome != "skipped overlap" {
		b.Errorf("settled as %q", a.Outcome)
	}
	b.release(first)
	b.release(second)
	decided(b, b.a, 3, "skipped overlap")
	b.wins(b.a, lease.Request{Slots: 2, AnyLimit: true, Tick: at(4)}) // a row is free: no skip
}

// keepFirst is a queue of one.
func keepFirst(b *bench) {
	b.known()
	at := func(n int) lease.Request {
		t := b.tick(n)
		t.IfHeld, t.KeepFirst = "skipped overlap", true
		return lease.Request{Tick: t}
	}
	running := b.wins(b.a, at(0))
	b.gets(b.b, at(1), lease.Held)
	b.gets(b.a, at(2), lease.Settled)
	b.gets(b.b, at(3), lease.Settled)
	b.gets(b.a, at(1), lease.Held) // still
	b.release(running)
	running = b.wins(b.a, at(1))
	b.gets(b.a, at(4), lease.Held)
	b.release(running)
	decided(b, b.b, 3, "") // before the last one
	b.wins(b.b, at(4))
}

func deadline(b *bench) {
	b.known()
	t := b.tick(1)
	t.Deadline, t.IfLate, t.IfHeld = b.now().Add(-time.Microsecond), "missed late", "skipped"
	if a := b.gets(b.a, lease.Request{Tick: t}, lease.Settled); a.Outcome != "missed late" {
		b.Errorf("settled as %q", a.Outcome)
	}
	decided(b, b.b, 1, "missed late")
	t = b.tick(2)
	t.Deadline, t.IfLate = b.now().Add(time.Hour), "missed late"
	b.wins(b.a, lease.Request{Tick: t})
	t.Deadline = b.now().Add(-time.Minute)
	decided(b, b.b, 2, "granted") // a tick that ran is not late
	if a := b.gets(b.b, lease.Request{Tick: t}, lease.Decided); a.Outcome != "granted" {
		b.Errorf("decided as %q", a.Outcome)
	}
}

func abstainerSettles(b *bench) {
	b.known()
	t := b.tick(1)
	t.Deadline, t.IfLate, t.IfHeld = b.now().Add(time.Hour), "missed", "skipped"
	b.gets(b.a, lease.Request{Tick: t, Abstain: true}, lease.Held)
	l := b.wins(b.b, lease.Request{})
	b.gets(b.a, lease.Request{Tick: t, Abstain: true}, lease.Settled)
	b.release(l)
	t = b.tick(2)
	t.Deadline, t.IfLate = b.now().Add(-time.Minute), "missed"
	b.gets(b.a, lease.Request{Tick: t, Abstain: true}, lease.Settled)
}

func settledTwice(b *bench) {
	b.known()
	t := b.tick(1)
	t.Deadline, t.IfLate = b.now().Add(-time.Minute), "missed"
	for range 2 {
		if a := b.gets(b.a, lease.Request{ID: "mine", Tick: t}, lease.Settled); a.Outcome != "missed" {
			b.Errorf("settled as %q", a.Outcome)
		}
	}
	b.gets(b.a, lease.Request{ID: "other", Tick: t}, lease.Decided)
	b.gets(b.b, lease.Request{Tick: t}, lease.Decided)
}

func givenBack(b *bench) {
	b.known()
	runs(b, b.a, 0)
	for _, n := range []int{1, 5, 1} { // in turn, out of turn, and once more
		b.giveBack(b.wins(b.a, lease.Request{ID: fmt.Sprint(n, b.now().UnixMicro()), Tick: b.tick(n)}))
	}
	runs(b, b.b, 2)
	runs(b, b.b, 5)
	decided(b, b.a, 5, "granted")
	runs(b, b.b, 1)
	decided(b, b.a, 1, "granted")
	for _, n := range []int{3, 4} {
		runs(b, b.a, n)
	}
	if d := b.state().Decided; !d.Equal(b.tick(5).At) {
		b.Errorf("decided up to %v, want 5", d)
	}
}

func givenBackSettled(b *bench) {
	b.known()
	b.giveBack(b.wins(b.a, lease.Request{Tick: b.tick(1)}))
	b.wins(b.a, lease.Request{Trigger: "manual", Permanent: true})
	t := b.tick(1)
	t.IfHeld = "skipped"
	b.gets(b.b, lease.Request{Tick: t}, lease.Settled)
	decided(b, b.a, 1, "skipped")
}

// A client that believes a tick taken finds out by a look that it is not any more.
func givenBackSeen(b *bench) {
	b.known()
	runs(b, b.a, 0)
	var held []lease.Run
	for _, n := range []int{1, 4, 2} { // low is 2 then, and one out of turn
		held = append(held, b.wins(b.a, lease.Request{Slots: 3, Tick: b.tick(n)}))
	}
	for i, want := range [][]int{{1}, {1, 4}, {1, 2, 4}} {
		b.giveBack(held[i])
		seen := b.state().Open
		for i, n := range want {
			if len(seen) != len(want) || !seen[i].Equal(b.tick(n).At) {
				b.Fatalf("open are %v, want %v", seen, want)
			}
		}
	}
	runs(b, b.b, 4)
	runs(b, b.b, 1)
	runs(b, b.b, 2)
	if seen := b.state().Open; len(seen) > 0 {
		b.Errorf("open are %v, want none", seen)
	}
}

func lookSettles(b *bench) {
	b.known()
	runs(b, b.a, 1) // 0 stays open
	b.giveBack(b.wins(b.a, lease.Request{Tick: b.tick(3)}))
	settle := lease.InspectRequest{Permanent: true, SettleThrough: b.tick(3).At, SettleDeadline: b.now().Add(time.Hour)}
	if s := b.look(b.b, settle); s.Decided.After(b.tick(0).At) {
		b.Errorf("settled before the deadline: %v", s.Decided)
	}
	settle.SettleDeadline = b.now().Add(-time.Microsecond)
	s := b.look(b.b, settle)
	if !s.Decided.Equal(b.tick(3).At) || s.Before.After(b.tick(0).At) {
		b.Errorf("decided up to %v, before that %v", s.Decided, s.Before)
	}
	for n := range 4 {
		b.gets(b.a, lease.Request{Tick: b.tick(n)}, lease.Decided)
	}
	runs(b, b.a, 4)
}

// lookLeaves open a tick that was decided, and given back, before those that it settles: else its outcome would
// never be recorded.
func lookLeaves(b *bench) {
	b.known()
	runs(b, b.a, 0)
	b.giveBack(b.wins(b.a, lease.Request{Tick: b.tick(1)}))
	b.look(b.b, lease.InspectRequest{Permanent: true, SettleThrough: b.tick(3).At, SettleDeadline: b.now().Add(-time.Microsecond)})
	if s := b.state(); !s.Decided.Equal(b.tick(3).At) || len(s.Open) != 1 || !s.Open[0].Equal(b.tick(1).At) {
		b.Errorf("decided up to %v, open %v", s.Decided, s.Open)
	}
	late := b.tick(1)
	late.Deadline, late.IfLate = b.now().Add(-time.Second), "missed pool"
	if a := b.gets(b.b, lease.Request{Tick: late}, lease.Settled); a.Outcome != "missed pool" {
		b.Errorf("settled as %q", a.Outcome)
	}
	if s := b.state(); len(s.Open) != 0 {
		b.Errorf("open %v", s.Open)
	}
}

// A gap that stays open, or grants that are never complete, must not fill the server's memory, nor each reply.
func ledgerBounded(b *bench) {
	const most, more = 1000, 12
	b.first = b.now().Add(-3 * time.Hour).Truncate(time.Minute)
	b.known()
	at := func(n int) *lease.Tick {
		t := b.first.Add(time.Minute + time.Duration(n)*time.Second)
		return &lease.Tick{At: t, Previous: t.Add(-time.Second), Schedule: schedule, PerTick: 1 + n%2}
	}
	var entries []any
	for n := 1; n <= most; n++ { // 0 is open
		state := map[int]string{0: "done granted", 1: "part 0"}[n%2]
		entries = append(entries, at(n).At.Unix(), fmt.Sprintf("%d %s", at(n).Previous.Unix(), state))
	}
	if err := b.rdb.HSet(b.ctx, b.ledgerKey(), entries...).Err(); err != nil {
		b.Fatal(err)
	}
	for n := most + 1; n <= most+more; n++ {
		b.release(b.wins(b.a, lease.Request{Slots: 2, Tick: at(n)}))
		if got := b.rdb.HLen(b.ctx, b.ledgerKey()).Val(); got > most {
			b.Fatalf("%d entries in the ledger", got)
		}
	}
	for _, n := range []int{0, 1, 2, more - 1} { // the oldest went, and are decided
		b.gets(b.b, lease.Request{Slots: 2, Tick: at(n)}, lease.Decided)
	}
	b.wins(b.b, lease.Request{Slots: 2, Tick: at(most - 1)}) // a newer one has a slot to grant
}

// A clock that was an hour ahead for a moment leaves its mark on all that was written then.
func glitch(b *bench) {
	b.known()
	l := b.wins(b.a, lease.Request{Tick: b.tick(1)})
	ahead := b.now().Add(time.Hour)
	b.set("low", ahead.Unix())
	b.set("since", ahead.UnixMicro())
	b.set("since2", ahead.UnixMicro())
	b.set("digest2", "older")
	b.set("closed", ahead.UnixMicro())
	b.setExpiry(l, ahead)
	b.look(b.b, lease.InspectRequest{Permanent: true}) // it observes the glitch
	now := b.now()
	s := b.state()
	bound := now.Add(long + timeout)
	if s.Decided.After(bound) || s.Closed.After(bound) || s.Running[0].Expires.After(bound) {
		b.Errorf("decided up to %v, closed until %v, held until %v, at %v", s.Decided, s.Closed, s.Running[0].Expires, now)
	}
	if since2 := b.field("since2"); since2 > bound.UnixMicro() {
		b.Errorf("the older schedule begins at %v", time.UnixMicro(since2))
	}
	b.open()
	b.release(l)
	soon := b.now().Truncate(time.Second).Add(time.Second)
	r := lease.Request{Tick: &lease.Tick{At: soon, Previous: soon.Add(-time.Second), Schedule: schedule}}
	b.waitUntil(soon)
	b.wins(b.b, r)
}
