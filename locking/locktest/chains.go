package locktest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/locking"
)

func chains() []theorem {
	return []theorem{
		{"FollowerLearnsWhichTicksHaveEndedWell", followerIsTold, nothing}, // Promise: P5
		{"TickIsDueWhenAllBeforeItHaveEnded", dueInOrder, nothing},         // Promise: P1
		{"OrphanHoldsUpWhatFollowsUntilItIsBuried", orphanHoldsUp, nothing},
		{"RecoveryDecidesHowItsTickHasEnded", recoveryDecides, nothing},       // Promise: P5
		{"OrphanSaysThatItHadEndedWell", orphanHadEnded, nothing},             // Promise: P5
		{"TickOfAFanOutEndsAsItsWorstRun", worstOfAFanOut, nothing},           // Promise: P1
		{"OutcomesAreKeptUntilAllFollowersHaveUsedThem", keptForAll, nothing}, // Promise: P5
		{"WhatIsGivenBackHasNoOutcome", givenBackHasNone, nothing},
		{"TickThatWasGivenBackLongAgoHoldsUpNobody", givenBackLongAgo, nothing},
		{"ForgottenLockHasNothingForItsFollowers", forgottenTellsNothing, memory},
		{"OldestOutcomesOfTooManyAreDropped", tooManyOutcomes, layout},             // Promise: P9
		{"FollowersBeyondTheBoundAreRefused", followersAreBounded, nothing},        // Promise: P5, P9
		{"OldestOutcomesOfLostRunsAreDropped", tooManyLost, layout},                // Promise: P9
		{"SettlementIsKeptUntilItIsAcknowledged", settlementIsKept, nothing},       // Promise: P6
		{"SettlementOfAGapIsKeptUntilItIsAcknowledged", settledGapIsKept, nothing}, // Promise: P6
		{"OldestSettlementsOfTooManyAreDropped", tooManySettlements, layout},       // Promise: P9
	}
}

// concludes has a tick granted, and its work end well or not.
func concludes(b *bench, n int, well bool) {
	b.Helper()
	concludeRun(b, b.wins(b.a, lease.Request{Tick: b.tick(n), Trigger: "schedule"}), well)
}

func concludeRun(b *bench, l lease.Run, well bool) {
	b.Helper()
	if err := l.ReleaseWith(b.ctx, well); err != nil {
		b.Fatal(err)
	}
}

// unknown stands for the tick up to which all have ended, where that is not known.
const unknown = -2

// follows compares the reply to a follower: the tick up to which all have ended, and those that have
// ended well.
func follows(b *bench, name string, used, through int, well ...int) []lease.Ended {
	b.Helper()
	r := lease.InspectRequest{Permanent: true, Follower: name}
	if used >= 0 {
		r.Used = b.tick(used).At
	}
	s := b.look(b.client("follower"), r)
	number := func(at time.Time) int { return int(at.Sub(b.first).Minutes()) }
	var told []int
	for _, e := range s.Ended {
		told = append(told, number(e.Tick))
		if e.Due.Before(b.first.Add(time.Hour)) || e.Due.After(b.now().Add(timeout)) {
			b.Errorf("due since %v", e.Due)
		}
	}
	upTo := unknown
	if !s.Through.IsZero() {
		upTo = number(s.Through.Add(time.Minute)) - 1 // one that holds up the others leaves the second before it
	}
	if upTo != through || !slices.Equal(told, well) {
		b.Fatalf("%s is told of %v through %d, want %v through %d", name, told, upTo, well, through)
	}
	return s.Ended
}

func followerIsTold(b *bench) {
	b.known()
	follows(b, "f", -1, unknown)
	concludes(b, 0, true)
	concludes(b, 1, false)
	concludes(b, 2, true)
	follows(b, "f", -1, 2, 0, 2)
	decided(b, b.b, 2, "granted")
	follows(b, "f", 0, 2, 2)
	follows(b, "f", 2, 2)
	runs(b, b.a, 3) // its outcome is never reported
	concludes(b, 4, true)
	follows(b, "f", 2, 4, 4)
	if s := b.look(b.a, lease.InspectRequest{Permanent: true}); !s.Through.IsZero() || s.Ended != nil {
		b.Errorf("who does not follow is told %v, %v", s.Through, s.Ended)
	}
}

func dueInOrder(b *bench) {
	b.known()
	ask := func(n int) lease.Run {
		return b.wins(b.a, lease.Request{Slots: 2, Tick: b.tick(n), Trigger: "schedule"})
	}
	follows(b, "f", -1, unknown)
	first, second := ask(0), ask(1)
	concludeRun(b, second, true)
	follows(b, "f", -1, -1)
	third := ask(2)
	concludeRun(b, first, true)
	if told := follows(b, "f", -1, 1, 0, 1); !told[0].Due.Equal(told[1].Due) {
		b.Errorf("due %v", told)
	}
	concludeRun(b, third, true)
	follows(b, "f", -1, 2, 0, 1, 2)
}

func orphanHoldsUp(b *bench) {
	b.known()
	follows(b, "f", -1, unknown)
	concludes(b, 0, true)
	died(b, "dead", 1)
	concludes(b, 2, true)
	follows(b, "f", -1, 0, 0)
	if err := b.b.Engine().DeleteOrphans(b.ctx, lock, "dead"); err != nil {
		b.Fatal(err)
	}
	follows(b, "f", -1, 2, 0, 2)
}

func recoveryDecides(b *bench) {
	b.known()
	follows(b, "f", -1, unknown)
	concludes(b, 0, true)
	died(b, "dead", 1)
	follows(b, "f", -1, 0, 0)
	concludeRun(b, b.wins(b.b, adoption("dead")), true)
	follows(b, "f", -1, 1, 0, 1)
}

func worstOfAFanOut(b *bench) {
	b.known()
	follows(b, "f", -1, unknown)
	share := func(n int) lease.Run {
		r := shareOf(b, n)
		r.Trigger = "schedule"
		return b.wins(b.a, r)
	}
	for n, well := range [][2]bool{{true, true}, {true, false}, {false, true}} {
		first, second := share(n), share(n)
		concludeRun(b, first, well[0])
		concludeRun(b, second, well[1])
	}
	follows(b, "f", -1, 2, 0)
	first, dead := share(3), share(3)
	b.expire(dead)
	follows(b, "f", -1, 2, 0)
	concludeRun(b, first, true)
	if err := b.b.Engine().DeleteOrphans(b.ctx, lock, dead.ID()); err != nil {
		b.Fatal(err)
	}
	first, dead = share(4), share(4)
	concludeRun(b, first, true)
	b.expire(dead)
	follows(b, "f", -1, 3, 0)
	if err := b.b.Engine().DeleteOrphans(b.ctx, lock, dead.ID()); err != nil {
		b.Fatal(err)
	}
	follows(b, "f", -1, 4, 0)
}

func keptForAll(b *bench) {
	b.known()
	follows(b, "f", -1, unknown)
	follows(b, "g", -1, unknown)
	concludes(b, 0, true)
	concludes(b, 1, true)
	follows(b, "f", 1, 1, 0, 1)
	follows(b, "g", -1, 1, 0, 1)
	follows(b, "g", 0, 1, 1)
	follows(b, "f", -1, 1, 1)
	follows(b, "g", 1, 1)
}

func givenBackHasNone(b *bench) {
	b.known()
	b.setSince(b.first.Add(100*time.Minute - time.Second))
	follows(b, "f", -1, unknown)
	concludes(b, 100, true)
	b.giveBack(b.wins(b.a, lease.Request{Tick: b.tick(101), Trigger: "schedule"}))
	concludeRun(b, b.wins(b.a, lease.Request{Trigger: "manual", Permanent: true}), true)
	follows(b, "f", -1, 100, 100)
	concludes(b, 101, true)
	follows(b, "f", -1, 101, 100, 101)
}

func givenBackLongAgo(b *bench) {
	b.known()
	follows(b, "f", -1, unknown)
	b.giveBack(b.wins(b.a, lease.Request{Tick: b.tick(0), Trigger: "schedule"}))
	concludes(b, 1, true)
	follows(b, "f", -1, 1, 1)
}

func forgottenTellsNothing(b *bench) {
	b.known()
	follows(b, "f", -1, unknown)
	concludes(b, 0, true)
	l := b.wins(b.a, lease.Request{Tick: b.tick(1), Trigger: "schedule", Lease: renewing})
	b.forget()
	s := b.look(b.a, lease.InspectRequest{Permanent: true, Follower: "f"})
	if !s.Through.IsZero() || len(s.Ended) > 0 {
		b.Errorf("told of %v through %v", s.Ended, s.Through)
	}
	heldAgain(b, l)
	b.open()
	follows(b, "f", -1, 0)
	concludeRun(b, l, true)
	follows(b, "f", -1, 1, 1)
}

func tooManyOutcomes(b *bench) {
	b.known()
	follows(b, "f", -1, unknown)
	many := ""
	for n := range 1005 {
		many += fmt.Sprintf("%d %d;", b.first.Unix()-2000+int64(n), b.now().UnixMicro())
	}
	b.set("outcomes", many)
	concludes(b, 0, true)
	s := b.look(b.a, lease.InspectRequest{Permanent: true, Follower: "f"})
	if n := len(s.Ended); n != 1000 || s.Ended[0].Tick.Unix() != b.first.Unix()-2000+6 || !s.Ended[n-1].Tick.Equal(b.first) {
		b.Errorf("%d are kept, from %v to %v", n, s.Ended[0].Tick, s.Ended[n-1].Tick)
	}
}

// setFollowers fakes a number of followers with long names, whose last request was at an instant.
func setFollowers(b *bench, n int, seen time.Time) (names []string) {
	b.Helper()
	text, register := "", map[string]any{}
	for i := range n {
		name := fmt.Sprintf("%s.%d", strings.Repeat("f", 128), i)
		names = append(names, name)
		text += fmt.Sprintf("%s 0 %d;", name, seen.UnixMicro())
		register[name] = map[string]any{"seen": seen.UnixMicro()}
	}
	if b.onQuorum() {
		setRegister(b, "followers", register)
	} else {
		b.set("followers", text)
	}
	return names
}

// followersAreBounded: only a newcomer beyond the bound is refused, and none before those who ask no more are forgotten.
func followersAreBounded(b *bench) {
	b.known()
	follows(b, "f", -1, unknown)
	dead := setFollowers(b, lease.MaxFollowers+1, b.now().Add(-25*time.Hour))
	follows(b, dead[0], -1, unknown)
	concludes(b, 0, true)
	follows(b, "g", -1, 0, 0)
	follows(b, dead[0], 0, 0, 0)
	follows(b, "g", 0, 0) // the forgotten ones, which have used nothing, keep no outcome

	names := setFollowers(b, lease.MaxFollowers, b.now().Add(-23*time.Hour))
	concludes(b, 1, true)
	s := b.client("newcomer").Engine().Inspect(b.ctx, []lease.InspectRequest{{Lock: lock, Permanent: true, Follower: "newcomer", Used: b.tick(1).At}})[0]
	if !errors.Is(s.Err, lease.ErrTooManyFollowers) || errors.Is(s.Err, lease.ErrCorrupt) || errors.Is(s.Err, lease.ErrUnknown) ||
		!strings.Contains(s.Err.Error(), lock) || !strings.Contains(s.Err.Error(), fmt.Sprint(lease.MaxFollowers)) {
		b.Errorf("a follower too many: %v", s.Err)
	}
	follows(b, names[len(names)-1], -1, 1, 1)
	concludes(b, 2, true)
	follows(b, names[0], -1, 2, 1, 2)
	setFollowers(b, lease.MaxFollowers-1, b.now())
	follows(b, "newcomer", -1, 2, 1, 2)
}

// tooManyLost loses a run while the outcomes of earlier lost runs fill the list of outcomes.
func tooManyLost(b *bench) {
	b.known()
	follows(b, "f", -1, unknown)
	concludes(b, 0, true)
	b.set("outcomes", strings.Repeat(fmt.Sprintf("%d no;", b.first.Unix()-1), 262140/14)+fmt.Sprintf("%d 0;", b.first.Unix()))
	died(b, "dead", 1)
	follows(b, "f", -1, 0, 0)
	follows(b, "f", 0, 0)
}

// orphanHadEnded has holders die after their work has ended well, and before they have released.
func orphanHadEnded(b *bench) {
	b.known()
	follows(b, "f", -1, unknown)
	for n, followed := range []bool{true, false} {
		l := b.wins(b.a, lease.Request{Tick: b.tick(n), Trigger: "test"})
		if err := l.MarkSucceeded(b.ctx, followed); err != nil {
			b.Fatal(err)
		}
		b.expire(l)
		if s := b.state(); len(s.Orphans) != 1 || !s.Orphans[0].EndedWell || s.Orphans[0].Stopped != "" || s.Orphans[0].Slot != 0 || s.Orphans[0].ID != l.ID() {
			b.Fatalf("orphans: %+v", s.Orphans)
		}
		if err := b.b.Engine().DeleteOrphans(b.ctx, lock, l.ID()); err != nil {
			b.Fatal(err)
		}
	}
	follows(b, "f", -1, 1, 0) // the end of the second was not announced
	l := b.wins(b.a, lease.Request{Tick: b.tick(2), Trigger: "test"})
	if err := l.MarkSucceeded(b.ctx, true); err != nil {
		b.Fatal(err)
	}
	concludeRun(b, l, true)
	l = b.wins(b.a, lease.Request{Tick: b.tick(3), Trigger: "test"}) // in the same slot, and its holder dies before its work has ended
	b.expire(l)
	if s := b.state(); len(s.Orphans) != 1 || s.Orphans[0].EndedWell {
		b.Errorf("orphans: %+v", s.Orphans)
	}
	if err := l.MarkSucceeded(b.ctx, true); err == nil {
		b.Error("what nobody holds any more has ended well")
	}
}

// settling asks for a tick whose outcome is to be kept if it is settled.
func settling(b *bench, n int) *lease.Tick {
	t := b.tick(n)
	t.IfHeld, t.KeepOutcome = "skipped overlap", true
	return t
}

// settled compares the settlements that are not recorded yet, after it has reported some ticks
// as recorded.
func settled(b *bench, told []int, want ...string) {
	b.Helper()
	r := lease.InspectRequest{Permanent: true}
	for _, n := range told {
		r.Acked = append(r.Acked, b.tick(n).At)
	}
	var got []string
	for _, e := range b.look(b.client("observer"), r).Settled {
		got = append(got, fmt.Sprint(int(e.Tick.Sub(b.first).Minutes()), " ", e.Outcome))
		if e.At.Before(b.now().Add(-time.Minute)) || e.At.After(b.now().Add(timeout)) {
			b.Errorf("settled at %v", e.At)
		}
	}
	if !slices.Equal(got, want) {
		b.Fatalf("settled %q, want %q", got, want)
	}
}

// settlementIsKept: a look returns how ticks were settled without a run, where that was asked for, until a
// client says that it is recorded.
func settlementIsKept(b *bench) {
	b.known()
	held := b.wins(b.a, lease.Request{Tick: settling(b, 0), Trigger: "schedule"})
	settled(b, nil)
	for range 2 {
		b.gets(b.a, lease.Request{ID: "asks twice", Tick: settling(b, 1)}, lease.Settled)
	}
	b.gets(b.b, lease.Request{Tick: settling(b, 1)}, lease.Decided)
	unkept := b.tick(2)
	unkept.IfHeld = "skipped overlap"
	b.gets(b.a, lease.Request{Tick: unkept}, lease.Settled)
	b.gets(b.a, lease.Request{Tick: settling(b, 3)}, lease.Settled)
	b.release(held)
	late := settling(b, 4)
	late.Deadline, late.IfLate = b.now().Add(-time.Microsecond), "missed late"
	b.gets(b.b, lease.Request{Tick: late}, lease.Settled)
	settled(b, nil, "1 skipped overlap", "3 skipped overlap", "4 missed late")
	settled(b, []int{3, 4}, "1 skipped overlap")
	settled(b, nil, "1 skipped overlap")
	settled(b, []int{1})
	decided(b, b.b, 4, "missed late")
}

// settledGapIsKept: ticks that are settled together with an outcome are one settlement, of those that were undecided then.
func settledGapIsKept(b *bench) {
	b.known()
	runs(b, b.a, 0)
	settle := func(n int, outcome string) []lease.Settlement {
		s := b.look(b.b, lease.InspectRequest{Permanent: true, SettleThrough: b.tick(n).At, SettleDeadline: b.now().Add(-time.Microsecond),
			SettleOutcome: outcome, SettleSchedule: schedule})
		return s.Settled
	}
	if kept := settle(2, ""); len(kept) != 0 {
		b.Errorf("kept without an outcome: %v", kept)
	}
	for range 2 { // the first reply may have been lost
		kept := settle(5, "missed down")
		want := lease.Settlement{Tick: b.tick(5).At.UTC(), After: b.tick(2).At.UTC(), Outcome: "missed down", Schedule: schedule}
		if len(kept) == 1 {
			want.At = kept[0].At
		}
		if !slices.Equal(kept, []lease.Settlement{want}) {
			b.Fatalf("kept %+v, want %+v", kept, want)
		}
	}
	b.gets(b.a, lease.Request{Tick: b.tick(4)}, lease.Decided)
	settled(b, nil, "5 missed down")
	settled(b, []int{4}, "5 missed down")
	settled(b, []int{5})
	if s := b.b.Engine().Inspect(b.ctx, []lease.InspectRequest{{Lock: lock, SettleOutcome: "missed; down"}})[0]; s.Err == nil || errors.Is(s.Err, locking.ErrUnknown) {
		b.Errorf("an outcome that can't be kept: %v", s.Err)
	}
}

func tooManySettlements(b *bench) {
	b.known()
	many := ""
	for n := range 100 {
		many += fmt.Sprintf("%d %d skipped overlap;", b.first.Unix()-2000+int64(n), b.now().UnixMicro())
	}
	b.set("settled", many)
	b.wins(b.a, lease.Request{Tick: b.tick(0)})
	b.gets(b.a, lease.Request{Tick: settling(b, 1)}, lease.Settled)
	s := b.state()
	if n := len(s.Settled); n != 100 || s.Settled[0].Tick.Unix() != b.first.Unix()-2000+1 || !s.Settled[n-1].Tick.Equal(b.tick(1).At) {
		b.Errorf("%d are kept: %v", n, s.Settled)
	}
}
