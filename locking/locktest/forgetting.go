package locktest

import (
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/locking"
)

func forgetting() []theorem {
	return []theorem{
		{"ForgottenLockStaysClosedForOneLease", closedForOneLease, memory}, // Promise: P3
		{"NewcomerPassesNobodyWhenAClosedLockOpens", newcomerAfterClosing, memory},
		{"NewcomerPassesNobodyOfACrowd", newcomerBehindCrowd, memory}, // Promise: P3, P5
		{"NewcomerIsServedBehindACrowdThatIsServed", newcomerBehindAll, memory},
		{"LivingHolderPutsItsRowBack", putsBack, memory},
		{"PutBackLosesToALaterGrant", putBackLoses, memory},                  // Promise: P3
		{"PutBackClosesTheLock", putBackCloses, memory},                      // Promise: P3
		{"PutBackOfALeaseThatEndedIsRefused", putBackEnded, memory},          // Promise: P3
		{"PutBackIsComparedWithItsSlotNotWithTheFloor", putBackSlot, memory}, // Promise: P3
		{"PutBackOfARecoveryTakesItsOrphan", putBackOfARecovery, memory},     // Promise: P3, P5
		{"PutBackHasTheNewestAttempt", putBackOfAttempts, memory},            // Promise: P3, P6
		{"RenewalsOfABatchFareEachOnItsOwn", mixedRenewals, memory},
		{"ForgottenTicksStayDecided", ticksStayDecided, memory}, // Promise: P1
		{"ManualRunDoesNotMakeAnObserverForgetTheLedger", manualRun, memory},
		{"LostGrantOfAFanOutIsNotMadeTwice", lostGrant, memory},
		{"LostGrantOfATickThatWasGivenBackIsNotMadeTwice", lostRegrant, memory},
		{"GivenBackAfterALossItsSlotIsTheOnlyOneOpen", givenBackAfterLoss, memory}, // Promise: P1
		{"ForgetfulReplyDoesNotTeachTheObserver", forgetfulReply, memory},
		{"BacklogOfAForgottenLockIsStillGranted", forgottenBacklog, memory},
	}
}

func closedForOneLease(b *bench) {
	const length = 700 * time.Millisecond
	l := b.wins(b.a, lease.Request{Lease: length})
	b.gets(b.b, lease.Request{}, lease.Held)
	b.release(l)
	b.forget()
	before := b.now()
	for {
		a := b.ask(b.b, lease.Request{Lease: length})
		if a.Verdict == lease.Closed {
			if left := a.Until.Sub(before); left < length {
				b.Fatalf("closed for %v only, the lease is %v", left, length)
			}
			b.gets(b.a, lease.Request{}, lease.Closed)
			b.gets(b.client("newcomer"), lease.Request{}, lease.Closed)
			b.waitUntil(a.Until)
			continue
		}
		b.wants(a, lease.Granted)
		if granted := time.UnixMicro(int64(a.Run.Token())); granted.Before(before.Add(length)) {
			b.Fatalf("granted %v after the loss", granted.Sub(before))
		}
		return
	}
}

func newcomerAfterClosing(b *bench) {
	l := b.wins(b.a, lease.Request{})
	b.release(l)
	b.forget()
	b.gets(b.a, lease.Request{}, lease.Closed)
	leaves(b) // stays in line, and does not ask again
	b.open()
	b.gets(b.client("newcomer"), lease.Request{}, lease.Held)
}

// One script serves a hundred.
const servedAtOnce = 100

// crowd makes n dead clients wait in line for a closed lock, and then opens the lock. All of its slots are free.
func crowd(b *bench, n, slots int) {
	b.Helper()
	l := b.wins(b.a, lease.Request{Slots: slots})
	b.release(l)
	b.forget()
	b.gets(b.a, lease.Request{Slots: slots}, lease.Closed)
	say := lastWords(b, slots)
	for i := range n {
		say(fmt.Sprint("dead", i))
	}
	b.open()
}

func newcomerBehindCrowd(b *bench) {
	const slots = servedAtOnce + 50
	crowd(b, servedAtOnce+20, slots)
	newcomer := b.client("newcomer")
	tick := b.tick(1)
	tick.IfHeld = "skipped"
	b.set("digest", schedule)
	b.setSince(b.first.Add(-time.Second))
	r := lease.Request{Lock: lock, Slots: slots, Lease: long, Tick: tick}
	b.wants(newcomer.Engine().Acquire(b.ctx, r), lease.Held) // and not settled
	if n := len(b.state().Running); n != servedAtOnce {
		b.Errorf("%d were served", n)
	}
	b.wins(newcomer, lease.Request{Slots: slots})
	if n := inLine(b); n != 0 {
		b.Errorf("a newcomer has passed %d", n)
	}
}

// The line is empty after as many waiters as one script serves.
func newcomerBehindAll(b *bench) {
	const slots = servedAtOnce + 50
	crowd(b, servedAtOnce, slots)
	b.wins(b.client("newcomer"), lease.Request{Slots: slots})
}

func putsBack(b *bench) {
	b.known()
	runs(b, b.b, 0)
	l := b.wins(b.a, lease.Request{ID: "one", Lease: renewing, Tick: b.tick(1), Trigger: "schedule", Memo: "memo\n"})
	before := b.state().Running[0]
	b.forget()
	after := heldAgain(b, l)
	before.Expires, after.Expires = time.Time{}, time.Time{}
	if before != after || l.Context().Err() != nil {
		b.Errorf("put back as %+v, was %+v", after, before)
	}
	b.open()
	b.gets(b.client("newcomer"), lease.Request{}, lease.Held)
	decided(b, b.b, 1, "")
	b.release(l)
	b.wins(b.b, lease.Request{})
}

func putBackLoses(b *bench) {
	l := b.wins(b.a, lease.Request{Lease: renewing})
	b.forget()
	other := b.wins(b.client("newcomer"), lease.Request{}) // it had not observed the lock
	b.ends(l, locking.ErrLost)
	if rows := b.state().Running; len(rows) != 1 || rows[0].Token != other.Token() || other.Token() <= l.Token() {
		b.Errorf("rows %+v", rows)
	}
}

// putBackCloses checks that the lock is closed when a renewal restores a forgotten lease: other leases, such as that of b, may be forgotten, too. The newcomer's grant raises
// the server's floor, by which a would notice the loss.
func putBackCloses(b *bench) {
	r := lease.Request{Slots: 3, Lease: renewing}
	b.release(b.wins(b.a, r))
	b.wins(b.b, r)
	l := b.wins(b.a, r)
	b.forget()
	b.wins(b.client("newcomer"), lease.Request{Slots: 3, Lease: renewing})
	heldAgain(b, l)
	a := b.gets(b.client("another"), r, lease.Closed)
	if left := a.Until.Sub(b.now()); left > renewing {
		b.Errorf("closed for %v", left)
	}
}

func putBackEnded(b *bench) {
	l := b.wins(b.a, lease.Request{ID: "one", Lease: renewing, Trigger: "manual"})
	renewal := b.renewal("one")
	b.expire(l)
	b.state() // its row makes room, and it becomes an orphan
	if verdict, _ := b.again(renewal); verdict != "lost" {
		b.Errorf("renewal of an orphan: %q", verdict)
	}
	if err := b.b.Engine().DeleteOrphans(b.ctx, lock, "one"); err != nil {
		b.Fatal(err)
	}
	if verdict, _ := b.again(renewal); verdict != "lost" {
		b.Errorf("renewal of a buried orphan: %q", verdict)
	}
	b.ends(l, locking.ErrLost)
}

// A grant in another slot raises the floor; it does not make this lease stale.
func putBackSlot(b *bench) {
	r := lease.Request{Slots: 2, Lease: renewing}
	first := b.wins(b.a, lease.Request{Slots: 2})
	second := b.wins(b.a, r)
	b.forget()
	other := b.wins(b.client("newcomer"), lease.Request{Slots: 2})
	row := heldAgain(b, second)
	if row.Slot != second.Slot() || row.Token != second.Token() || other.Slot() != first.Slot() {
		b.Errorf("put back %+v, other has slot %d", row, other.Slot())
	}
}

func putBackOfAttempts(b *bench) {
	b.known()
	l := b.wins(b.a, lease.Request{ID: "tries", Lease: renewing, Tick: b.tick(1), Trigger: "schedule"})
	if _, err := l.NextAttempt(b.ctx); err != nil {
		b.Fatal(err)
	}
	b.forget()
	if row := heldAgain(b, l); row.Attempt != 2 || l.Attempt() != 2 {
		b.Errorf("put back as %+v", row)
	}
	b.forget()
	if n, err := l.NextAttempt(b.ctx); n != 3 || err != nil {
		b.Errorf("attempt %d, %v", n, err)
	}
	if s := b.state(); len(s.Running) != 1 || s.Running[0].Attempt != 3 {
		b.Errorf("rows %+v", s.Running)
	}
}

// putBackOfARecovery: the server has forgotten the adoption, and shows its orphan again.
func putBackOfARecovery(b *bench) {
	b.known()
	died(b, "dead", 1)
	if n := len(b.state().Orphans); n != 1 {
		b.Fatalf("%d orphans", n)
	}
	restore := b.snapshot()
	r := adoption("dead")
	r.Lease = renewing
	recovery := b.wins(b.b, r)
	restore()
	if after := heldAgain(b, recovery); after.Attempt != 2 || recovery.Context().Err() != nil {
		b.Errorf("put back as %+v", after)
	}
	b.open()
	if a := b.ask(b.a, adoption("dead")); a.Verdict == lease.Granted {
		b.Error("adopted twice")
	}
	if n := len(b.state().Orphans); n != 0 {
		b.Errorf("%d orphans", n)
	}
}

func mixedRenewals(b *bench) {
	var leases []holding
	names := []string{"x", "y", "z"}
	for _, a := range b.a.Engine().AcquireAll(b.ctx, []lease.Request{
		{Lock: names[0], Lease: renewing}, {Lock: names[1], Lease: renewing}, {Lock: names[2], Lease: renewing}}) {
		b.wants(a, lease.Granted)
		leases = append(leases, a.Run)
	}
	base := b.prefix + "{y}"
	if err := b.rdb.Del(b.ctx, base).Err(); err != nil {
		b.Fatal(err)
	}
	b.wins(b.client("newcomer"), lease.Request{Lock: "y"})
	b.ends(leases[1], locking.ErrLost)
	for _, i := range []int{0, 2} {
		b.await(leases[i].ID(), 3)
		if leases[i].Context().Err() != nil || leases[i].Remaining() <= 0 {
			b.Errorf("%s ended too: %v", names[i], leases[i].Remaining())
		}
	}
}

func ticksStayDecided(b *bench) {
	b.known()
	runs(b, b.a, 0)
	runs(b, b.a, 1)
	runs(b, b.a, 4)
	b.release(b.wins(b.a, shareOf(b, 6)))
	b.forget()
	b.gets(b.a, lease.Request{Tick: b.tick(2)}, lease.Closed)
	b.open()
	newcomer := b.client("newcomer")
	for _, n := range []int{0, 1, 4} {
		b.gets(newcomer, lease.Request{Tick: b.tick(n)}, lease.Decided)
	}
	if l := b.wins(newcomer, shareOf(b, 6)); l.Slot() != 1 {
		b.Errorf("slot %d was granted twice for one tick", l.Slot())
	}
	b.gets(newcomer, shareOf(b, 6), lease.Decided)
}

func manualRun(b *bench) {
	b.known()
	runs(b, b.a, 0)
	runs(b, b.a, 4)
	b.wins(b.a, lease.Request{Trigger: "manual", Permanent: true})
	b.forget()
	b.gets(b.a, lease.Request{Trigger: "manual", Permanent: true}, lease.Closed)
	b.open()
	b.gets(b.b, lease.Request{Tick: b.tick(4)}, lease.Decided)
}

// A failover that loses the last writes leaves a server that knows the tick, but not all of its grants.
func lostGrant(b *bench) {
	b.known()
	runs(b, b.a, 0)
	b.release(b.wins(b.a, shareOf(b, 1)))
	restore := b.snapshot()
	b.release(b.wins(b.a, shareOf(b, 1)))
	b.release(b.wins(b.a, shareOf(b, 3)))
	later := b.snapshot()
	b.release(b.wins(b.a, shareOf(b, 3)))
	later()
	b.gets(b.a, shareOf(b, 3), lease.Closed)
	b.open()
	b.gets(b.b, shareOf(b, 3), lease.Decided)
	restore()
	b.gets(b.a, shareOf(b, 1), lease.Closed)
	b.open()
	b.gets(b.b, shareOf(b, 1), lease.Decided)
	b.gets(b.b, shareOf(b, 3), lease.Decided)
}

func lostRegrant(b *bench) {
	b.known()
	runs(b, b.a, 0)
	b.giveBack(b.wins(b.a, lease.Request{Tick: b.tick(1)}))
	b.giveBack(b.wins(b.a, lease.Request{Tick: b.tick(3)}))
	restore := b.snapshot()
	runs(b, b.a, 1)
	runs(b, b.a, 3)
	restore()
	b.gets(b.a, lease.Request{Tick: b.tick(1)}, lease.Closed)
	b.open()
	for _, n := range []int{1, 3} {
		b.gets(b.b, lease.Request{Tick: b.tick(n)}, lease.Decided)
	}
}

// An early claim is answered before the server is told what it forgot; its reply must not pass for news.
func forgetfulReply(b *bench) {
	b.known()
	runs(b, b.a, 0)
	restore := b.snapshot()
	b.release(b.wins(b.a, shareOf(b, 4)))
	restore()
	ahead := b.now().Truncate(time.Second).Add(time.Hour)
	b.gets(b.a, lease.Request{Tick: &lease.Tick{At: ahead, Previous: ahead.Add(-time.Second), Schedule: schedule}}, lease.Early)
	b.gets(b.a, shareOf(b, 4), lease.Closed)
	b.open()
	if l := b.wins(b.b, shareOf(b, 4)); l.Slot() != 1 {
		b.Errorf("slot %d was granted twice for one tick", l.Slot())
	}
}

func forgottenBacklog(b *bench) {
	b.known()
	runs(b, b.a, 1)
	runs(b, b.a, 0)
	b.forget()
	b.gets(b.a, lease.Request{Tick: b.tick(2)}, lease.Closed)
	b.open()
	for n := 2; n < 5; n++ { // ticks that waited while Redis was away
		runs(b, b.a, n)
	}
	b.gets(b.a, lease.Request{Tick: b.tick(1)}, lease.Decided)
}

// The server has lost that the tick was decided, but knows of its first grant, which is given back then.
func givenBackAfterLoss(b *bench) {
	b.known()
	runs(b, b.a, 0)
	first := b.wins(b.a, shareOf(b, 1))
	restore := b.snapshot()
	b.wins(b.b, shareOf(b, 1))
	restore()
	b.gets(b.b, shareOf(b, 2), lease.Closed)
	b.giveBack(first)
	b.open()
	blocker := b.wins(b.a, lease.Request{Slots: 3, AnyLimit: true, Permanent: true})
	b.gets(b.a, shareOf(b, 1), lease.Held) // the other slot ran it
	b.release(blocker)
	if l := b.wins(b.a, shareOf(b, 1)); l.Slot() != first.Slot() {
		b.Errorf("slot %d was granted twice for one tick", l.Slot())
	}
	b.gets(b.a, shareOf(b, 1), lease.Decided)
}
