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

func granting() []theorem {
	return []theorem{
		{"HeldLockNamesItsHolderAndEnd", heldLockTells, nothing},
		{"EarlyClaimLearnsForHowLong", earlyClaim, nothing}, // Promise: P2
		{"EarlyClaimAnnouncesItsSchedule", earlyAnnouncement, nothing},
		{"NoTickIsGrantedBeforeItsInstantWhateverTheClaimantSays", neverBeforeTheTick, nothing}, // Promise: P2
		{"LateRequestIsRefused", lateRequest, nothing},
		{"SameIDGivesSameGrant", sameID, nothing},
		{"ReleasedIDStaysDead", releasedID, nothing}, // Promise: P3
		{"EndedLeaseIsNotGrantedAgainToItsID", endedLease, nothing},
		{"SlowRenewalDoesNotReviveAReleasedLease", slowRenewal, nothing},
		{"ReleaseOfALostLeaseSaysSo", releaseOfALostLease, nothing},
		{"ReleaseThatIsRepeatedSaysTheSame", repeatedRelease, nothing},
		{"LowestFreeSlotIsGranted", lowestSlot, nothing},
		{"LimitMismatchIsAnError", limitMismatch, nothing},
		{"AbstainerIsNeverGranted", abstainer, nothing},
		{"RowsTellWhatTheirHoldersSaid", rowsTell, nothing},
		{"NamesMayHaveHashTags", hashTags, nothing},
		{"ThousandRowsAreHeldAtOnce", thousandRows, layout},
	}
}

func heldLockTells(b *bench) {
	l := b.wins(b.a, lease.Request{})
	a := b.gets(b.b, lease.Request{}, lease.Held)
	row := b.state().Running[0]
	if a.Holder != "a" || !b.same(a.Until, row.Expires) || a.Run != nil {
		b.Errorf("held by %q until %v, want a until %v", a.Holder, a.Until, row.Expires)
	}
	b.release(l)
	b.wins(b.b, lease.Request{})
}

func earlyClaim(b *bench) {
	at := b.now().Truncate(time.Second).Add(2 * time.Second)
	b.look(b.a, lease.InspectRequest{Permanent: true, Schedule: schedule})
	r := lease.Request{Tick: &lease.Tick{At: at, Previous: at.Add(-time.Second), Schedule: schedule}}
	if a := b.gets(b.a, r, lease.Early); !a.Until.Equal(at) {
		b.Fatalf("early until %v, want %v", a.Until, at)
	}
	for {
		a := b.ask(b.a, r)
		if a.Verdict == lease.Early {
			b.waitUntil(a.Until)
			continue
		}
		b.wants(a, lease.Granted)
		if granted := time.UnixMicro(int64(a.Run.Token())); granted.Before(at) {
			b.Fatalf("granted at %v, before %v", granted, at)
		}
		return
	}
}

// earlyAnnouncement: a schedule that the lock does not know begins with the claim that names it, not with the first that is in time, whose tick would be
// decided then. No other claim comes before the tick, since that would announce the schedule as well.
func earlyAnnouncement(b *bench) {
	for _, schedule := range []string{"new", "edited"} {
		at := b.now().Truncate(time.Second).Add(2 * time.Second)
		tick := &lease.Tick{At: at, Previous: at.Add(-time.Second), Schedule: schedule}
		b.waitUntil(b.gets(b.a, lease.Request{Tick: tick}, lease.Early).Until)
		a := b.ask(b.b, lease.Request{Tick: tick})
		for ; a.Verdict == lease.Early; a = b.ask(b.b, lease.Request{Tick: tick}) {
			b.waitUntil(a.Until)
		}
		b.wants(a, lease.Granted)
		b.release(a.Run)
		before := &lease.Tick{At: at.Add(-4 * time.Second), Previous: at.Add(-5 * time.Second), Schedule: schedule}
		b.gets(b.b, lease.Request{Tick: before}, lease.Decided)
	}
}

func neverBeforeTheTick(b *bench) {
	at := b.now().Truncate(time.Second).Add(time.Hour)
	b.gets(b.a, lease.Request{Tick: &lease.Tick{
		At: at, Previous: at.Add(-time.Second), Schedule: schedule, NotBefore: at.Add(-2 * time.Hour),
	}}, lease.Early)
}

func lateRequest(b *bench) {
	b.release(b.wins(b.a, lease.Request{ID: "first"}))
	args := slices.Clone(b.await("first", 1))
	for i := range args {
		if s, ok := args[i].(string); ok {
			args[i] = strings.ReplaceAll(s, "first", "second")
		}
	}
	args[notAfter(args)] = b.now().Add(-time.Microsecond).UnixMicro()
	if verdict, _ := b.again(args); verdict != "late" {
		b.Errorf("a request after its not-after: %q", verdict)
	}
	if rows := b.state().Running; len(rows) != 0 {
		b.Errorf("it was granted: %v", rows)
	}
}

func sameID(b *bench) {
	b.known()
	r := lease.Request{ID: "one", Slots: 2, AnyLimit: true, Tick: b.tick(1)}
	first := b.wins(b.a, r)
	if again := b.wins(b.a, r); again != first {
		b.Error("asked again, the client made a second lease of the same grant")
	}
	other := b.wins(b.b, r)
	if other.Token() != first.Token() || other.Slot() != first.Slot() || !other.Tick().Equal(first.Tick()) || other.Attempt() != 1 {
		b.Errorf("granted slot %d, token %d, then slot %d, token %d", first.Slot(), first.Token(), other.Slot(), other.Token())
	}
	if n := len(b.state().Running); n != 1 {
		b.Errorf("%d rows are held", n)
	}
}

func releasedID(b *bench) {
	b.release(b.wins(b.a, lease.Request{ID: "one"}))
	for _, c := range []*locking.Client{b.a, b.b} {
		if a := b.gets(c, lease.Request{ID: "one"}, lease.Unknown); !errors.Is(a.Err, locking.ErrReleased) || errors.Is(a.Err, locking.ErrUnknown) {
			b.Errorf("a released id got %v", a.Err)
		}
	}
	b.wins(b.a, lease.Request{ID: "two"})
}

func endedLease(b *bench) {
	b.known()
	l := b.wins(b.a, lease.Request{ID: "one", Tick: b.tick(1)})
	b.expire(l)
	b.gets(b.b, lease.Request{ID: "one", Tick: b.tick(1)}, lease.Decided)
	plain := b.wins(b.a, lease.Request{ID: "two"})
	b.expire(plain)
	if next := b.wins(b.b, lease.Request{ID: "two"}); next.Token() <= plain.Token() {
		b.Errorf("token %d after %d", next.Token(), plain.Token())
	}
}

func slowRenewal(b *bench) {
	l := b.wins(b.a, lease.Request{ID: "one", Lease: renewing})
	renewal := b.renewal("one")
	if verdict, _ := b.again(renewal); verdict != "renewed" {
		b.Fatalf("renewal sent again: %q", verdict)
	}
	b.release(l)
	goneEverywhere(b, l)
	if verdict, _ := b.again(renewal); verdict != "lost" {
		b.Errorf("renewal after the release: %q", verdict)
	}
	b.wins(b.b, lease.Request{})
}

func releaseOfALostLease(b *bench) {
	l := b.wins(b.a, lease.Request{})
	b.expire(l)
	b.wins(b.b, lease.Request{})
	if err := l.Release(b.ctx); !errors.Is(err, locking.ErrLost) {
		b.Errorf("release: %v, want ErrLost", err)
	}
	if !b.onQuorum() { // where the keeper may have heard of it before
		b.ends(l, locking.ErrReleased)
	}
	b.gets(b.a, lease.Request{}, lease.Held)
}

func repeatedRelease(b *bench) {
	l := b.wins(b.a, lease.Request{ID: "one"})
	if b.onQuorum() {
		heldEverywhere(b, l)
	}
	b.release(l)
	goneEverywhere(b, l)
	if verdict, _ := b.again(b.releaseOf("one")); verdict != "released" {
		b.Errorf("release sent again by a client that lost the reply: %q", verdict)
	}
}

func lowestSlot(b *bench) {
	r := lease.Request{Slots: 3}
	leases := []holding{b.wins(b.a, r), b.wins(b.b, r), b.wins(b.a, r)}
	for want, l := range leases {
		if l.Slot() != want {
			b.Errorf("slot %d, want %d", l.Slot(), want)
		}
	}
	b.gets(b.a, r, lease.Held)
	b.release(leases[1])
	if l := b.wins(b.b, r); l.Slot() != 1 {
		b.Errorf("slot %d, want 1", l.Slot())
	}
}

func limitMismatch(b *bench) {
	b.wins(b.a, lease.Request{Slots: 2})
	if a := b.gets(b.b, lease.Request{Slots: 3}, lease.Unknown); !errors.Is(a.Err, locking.ErrLimit) || errors.Is(a.Err, locking.ErrUnknown) {
		b.Errorf("another limit got %v", a.Err)
	}
	b.gets(b.b, lease.Request{Slots: 1, AnyLimit: true}, lease.Held)
	b.wins(b.b, lease.Request{Slots: 3, AnyLimit: true})
}

func abstainer(b *bench) {
	b.gets(b.a, lease.Request{Abstain: true}, lease.Held)
	b.known()
	b.gets(b.a, lease.Request{Abstain: true, Tick: b.tick(1)}, lease.Held)
	b.wins(b.b, lease.Request{Tick: b.tick(1)})
}

func rowsTell(b *bench) {
	b.known()
	memo := "first line\n\nthird; 5 4 done x\n"
	l := b.wins(b.a, lease.Request{ID: "id", Slots: 2, AnyLimit: true, Tick: b.tick(1), Trigger: "schedule", Memo: memo})
	rows := b.state().Running
	if len(rows) != 1 {
		b.Fatalf("%d rows", len(rows))
	}
	expiry := rows[0].Expires
	rows[0].Expires = time.Time{}
	want := lease.Row{ID: "id", Holder: "a", Slot: 0, Token: l.Token(), Length: long, Tick: b.tick(1).At, Attempt: 1,
		Trigger: "schedule", Memo: memo}
	if rows[0] != want {
		b.Errorf("row %+v, want %+v", rows[0], want)
	}
	if left := expiry.Sub(b.now()); left <= 0 || left > long {
		b.Errorf("it expires in %v", left)
	}
}

func hashTags(b *bench) {
	for _, name := range []string{"{orders}", "{orders}:archive", "shop:{orders}:archive", "plain:name"} {
		l := b.wins(b.a, lease.Request{Lock: name})
		b.gets(b.b, lease.Request{Lock: name}, lease.Held)
		b.release(l)
	}
	for _, name := range []string{"", "a{b", "a}b", "{}", "{a}{b}", "{a{b}}", "}a{", "{orders}:ledger", "{orders}:dead:x"} {
		a := b.b.Engine().Acquire(b.ctx, lease.Request{Lock: name})
		b.wants(a, lease.Unknown)
		if a.Err == nil || errors.Is(a.Err, locking.ErrUnknown) {
			b.Errorf("lock %q: %v", name, a.Err)
		}
		if s := b.b.Engine().Inspect(b.ctx, []lease.InspectRequest{{Lock: name}})[0]; s.Err == nil || errors.Is(s.Err, locking.ErrUnknown) {
			b.Errorf("look at %q: %v", name, s.Err)
		}
	}
}

func thousandRows(b *bench) {
	const rows, granted = 1000, 20
	fields, end := []any{"limit", rows, "used", rows - granted}, b.now().Add(long).UnixMicro()
	for i := range rows - granted { // the rest is there already
		fields = append(fields, fmt.Sprint("r", i), fmt.Sprintf("id-%d\nother\n%d\n%d\n\n1\n\n", i, long.Microseconds(), i+1),
			fmt.Sprint("t", i), i+1, fmt.Sprint("iid-", i), i, fmt.Sprint("e", i), end)
	}
	if err := b.rdb.HSet(b.ctx, b.base(), fields...).Err(); err != nil {
		b.Fatal(err)
	}
	b.set("longest", long.Microseconds())
	leases := map[int]holding{}
	for range granted {
		l := b.wins(b.a, lease.Request{Slots: rows})
		leases[l.Slot()] = l
	}
	b.gets(b.b, lease.Request{Slots: rows}, lease.Held)
	if n := len(b.state().Running); len(leases) != granted || n != rows {
		b.Errorf("%d slots granted, %d rows held", len(leases), n)
	}
	b.release(leases[rows-3])
	if l := b.wins(b.b, lease.Request{Slots: rows}); l.Slot() != rows-3 {
		b.Errorf("slot %d, want %d", l.Slot(), rows-3)
	}
}

func delays() []theorem {
	return []theorem{
		{"ExpiredSlotStaysShutForTheDelay", delayAfterExpiry, queue}, // Promise: P3
		{"ReleasedSlotIsOpenAtOnce", noDelayAfterRelease, queue},
		{"DelayOfOneThatWaitedCounts", delayOfAWaiter, queue},
		{"DelayOutlastsIdle", delayOutlastsIdle, queue},
		{"DelayAndLimitArePutBackWithTheRow", delayPutBack, queue},
		{"GrantThatNobodyConfirmsHasNoDelay", noDelayWithoutAHolder, queue},
	}
}

func delayAfterExpiry(b *bench) {
	r := lease.Request{Delay: time.Hour}
	held := b.wins(b.a, r)
	b.expire(held)
	a := b.gets(b.b, r, lease.Held)
	if left := a.Until.Sub(b.now()); left < 50*time.Minute || left > time.Hour || a.Holder != "" {
		b.Errorf("held by %q for %v", a.Holder, left)
	}
	b.set("delayed", "0 1;")
	b.release(b.wins(b.b, r))
}

func noDelayAfterRelease(b *bench) {
	r := lease.Request{Delay: time.Hour, Slots: 2}
	b.expire(b.wins(b.a, r))
	second := b.wins(b.b, r)
	if second.Slot() != 1 {
		b.Errorf("slot %d, the other is shut", second.Slot())
	}
	b.gets(b.b, r, lease.Held)
	b.release(second)
	b.release(b.wins(b.b, r))
}

func delayOfAWaiter(b *bench) {
	held := b.wins(b.a, lease.Request{})
	next := linesUp(b, b.b, 1, locking.WithDelay(time.Hour))
	b.release(held)
	b.expire(grantOf(b, next))
	b.gets(b.a, lease.Request{Delay: time.Hour}, lease.Held)
}

// The lock is remembered for as long as its slot is shut.
func delayOutlastsIdle(b *bench) {
	for slots := 1; slots <= 2; slots++ {
		name := fmt.Sprint(lock, slots)
		b.wins(b.a, lease.Request{Lock: name, Slots: slots, Delay: time.Hour})
		if left := b.rdb.PTTL(b.ctx, b.prefix+"{"+name+"}").Val(); left < time.Hour+long-time.Minute {
			b.Errorf("%s is forgotten after %v", name, left)
		}
	}
}

func delayPutBack(b *bench) {
	l := b.wins(b.a, lease.Request{Lease: renewing, Delay: time.Hour})
	b.forget()
	heldAgain(b, l)
	b.gets(b.b, lease.Request{Slots: 5}, lease.Unknown)
	b.open()
	b.gets(b.b, lease.Request{Slots: 5}, lease.Unknown)
	b.expire(l)
	b.gets(b.b, lease.Request{Delay: time.Hour}, lease.Held)
}

// The lock was released by its last holder, so no delay follows, although the next in line is
// dead: it never held a lease.
func noDelayWithoutAHolder(b *bench) {
	r := lease.Request{Delay: time.Hour}
	held := b.wins(b.a, r)
	leaves(b, locking.WithDelay(time.Hour))
	b.release(held)
	rows := b.state().Running
	if len(rows) != 1 {
		b.Fatalf("rows: %v", rows)
	}
	b.set("e0", b.now().Add(-time.Millisecond).UnixMicro())
	b.release(b.wins(b.b, r))
}

func fanOut() []theorem {
	return []theorem{
		{"PerTickFansOutEachSlotOnce", perTick, nothing},
		{"FanOutNeedsNoFreeSlotOfItsOwnTickTwice", fanOutReleased, nothing},
		{"FanOutThatBeganIsNeverSkippedNorLate", fanOutBegan, nothing},
		{"SmallerPerTickOfARollOutCounts", fanOutSmaller, nothing},
		{"SlotGivenBackOfAFanOutIsTheOnlyOneOpen", fanOutGivenBack, nothing}, // Promise: P1
		{"SlotGivenBackOutOfTurnIsTheOnlyOneOpen", fanOutGivenBackOutOfTurn, nothing},
	}
}

// shareOf asks for one of three slots of a tick that two may have.
func shareOf(b *bench, n int) lease.Request {
	t := b.tick(n)
	t.PerTick = 2
	return lease.Request{Slots: 3, AnyLimit: true, Tick: t}
}

func perTick(b *bench) {
	b.known()
	first, second := b.wins(b.a, shareOf(b, 1)), b.wins(b.b, shareOf(b, 1))
	if first.Slot() != 0 || second.Slot() != 1 || second.Token() <= first.Token() {
		b.Errorf("slots %d, %d, tokens %d, %d", first.Slot(), second.Slot(), first.Token(), second.Token())
	}
	b.gets(b.a, shareOf(b, 1), lease.Decided)
	b.release(first)
	b.release(second)
	b.gets(b.a, shareOf(b, 1), lease.Decided)
	b.wins(b.a, shareOf(b, 2))
}

func fanOutReleased(b *bench) {
	b.known()
	first := b.wins(b.a, shareOf(b, 1))
	b.release(first) // its slot is free, and used
	if l := b.wins(b.b, shareOf(b, 1)); l.Slot() == first.Slot() {
		b.Errorf("slot %d was granted twice for one tick", l.Slot())
	}
}

func fanOutBegan(b *bench) {
	b.known()
	b.wins(b.a, shareOf(b, 1))
	b.wins(b.a, shareOf(b, 2))
	b.wins(b.a, shareOf(b, 2))
	r := shareOf(b, 1)
	r.Tick.IfHeld = "skipped"
	b.gets(b.b, r, lease.Held)
	r.Tick.Deadline, r.Tick.IfLate = b.now().Add(-time.Minute), "missed"
	if a := b.gets(b.b, r, lease.Decided); a.Outcome != "granted" {
		b.Errorf("decided as %q", a.Outcome)
	}
}

func fanOutSmaller(b *bench) {
	b.known()
	r := shareOf(b, 1)
	r.Tick.PerTick = 3
	b.wins(b.a, r)
	b.wins(b.a, r)
	b.gets(b.b, shareOf(b, 1), lease.Decided) // two are enough for this one
}

func fanOutGivenBack(b *bench) {
	b.known()
	runs(b, b.a, 0)
	first := b.wins(b.a, shareOf(b, 1))
	second := b.wins(b.b, shareOf(b, 1))
	b.release(first)
	b.giveBack(second)
	onlySlotOneIsOpen(b)
}

func fanOutGivenBackOutOfTurn(b *bench) {
	b.known()
	first := b.wins(b.a, shareOf(b, 1)) // 0 is open: 1 is out of turn
	second := b.wins(b.b, shareOf(b, 1))
	b.release(first)
	b.giveBack(second)
	onlySlotOneIsOpen(b)
}

func onlySlotOneIsOpen(b *bench) {
	b.Helper()
	r := shareOf(b, 1)
	r.Tick.IfHeld = "skipped"
	blocker := b.wins(b.a, lease.Request{Slots: 2, AnyLimit: true, Permanent: true})
	third := b.wins(b.a, lease.Request{Slots: 3, AnyLimit: true, Permanent: true})
	other := b.wins(b.a, lease.Request{Slots: 3, AnyLimit: true, Permanent: true})
	b.gets(b.b, r, lease.Held) // it ran in slot 0: never skipped
	b.release(blocker)
	b.gets(b.b, r, lease.Held) // slot 0 had its grant
	b.release(third)
	b.release(other)
	if l := b.wins(b.b, r); l.Slot() != 1 {
		b.Errorf("slot %d was granted for a tick that it ran already", l.Slot())
	}
	b.gets(b.a, r, lease.Decided)
}
