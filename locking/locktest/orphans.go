package locktest

import (
	"errors"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/locking"
)

func orphans() []theorem {
	return []theorem{
		{"OrphanIsFoundAdoptedAndBuried", orphan, nothing},
		{"OrphanIsAdoptedOnce", adoptedOnce, nothing},                          // Promise: P5
		{"AdoptionThatIsGivenBackLeavesTheOrphan", adoptionGivenBack, nothing}, // Promise: P5
		{"HolderThatIsAliveBuriesItself", aliveHolder, nothing},
		{"RunThatNeverStartedGivesItsTickBackAlthoughItsLeaseEnded", neverStarted, nothing},
		{"UnheardGrantIsWithdrawnAndMadeAnew", unheard, nothing},                   // Promise: P5
		{"LateClaimOfAWithdrawnIdIsDead", unheardIsDead, nothing},                  // Promise: P1
		{"WithdrawalOpensOnlyItsShareOfATick", unheardShare, nothing},              // Promise: P5
		{"AbandonedOrphanStaysDecided", unheardAbandoned, nothing},                 // Promise: P6
		{"AdoptedOrphanStaysDecided", unheardAdopted, nothing},                     // Promise: P1
		{"WithdrawalWithoutAGrantLeavesItsTickOpen", unheardNeverGranted, nothing}, // Promise: P5
		{"PlainLeaseLeavesNoOrphan", plainLease, nothing},
		{"RunThatIsLeftIsAnOrphanAtOnce", left, nothing},                       // Promise: P5
		{"LostRunThatIsLeftStaysAnOrphan", leftAfterItsLease, nothing},         // Promise: P5
		{"RunThatIsHandedOverTooLateDisturbsNoRecovery", leftTooLate, nothing}, // Promise: P5
		{"RecoveryThatIsHandedOverIsAnOrphan", recoveryIsHandedOver, nothing},
		{"OrphanHasTheAttemptThatItDiedIn", nextAttempt, nothing},                 // Promise: P6
		{"AttemptThatNeverBeganIsFree", leftBeforeItsAttempt, nothing},            // Promise: P6
		{"OrphanKeepsTheAttemptThatWasSeen", leftAfterItsAttemptWasSeen, nothing}, // Promise: P6
		{"AttemptDoesNotBeginBesideARecovery", attemptBesideRecovery, nothing},    // Promise: P6
	}
}

// died grants a tick to a, whose lease then ends.
func died(b *bench, id string, n int) lease.Run {
	b.Helper()
	l := b.wins(b.a, lease.Request{ID: id, Tick: b.tick(n), Trigger: "schedule", Memo: "note\nbook"})
	b.expire(l)
	return l
}

func adoption(of string) lease.Request {
	return lease.Request{Adopt: of, Trigger: "recovery", Permanent: true}
}

func orphan(b *bench) {
	b.known()
	l := died(b, "dead", 1)
	a := b.gets(b.b, lease.Request{Tick: b.tick(1)}, lease.Decided)
	if a.Orphans != 1 || a.Holder != "" {
		b.Errorf("%d orphans, held by %q", a.Orphans, a.Holder)
	}
	s := b.state()
	want := lease.Row{ID: "dead", Holder: "a", Token: l.Token(), Length: long, Tick: b.tick(1).At, Attempt: 1, Trigger: "schedule", Memo: "note\nbook"}
	if len(s.Orphans) != 1 || s.Orphans[0] != want || len(s.Running) != 0 {
		b.Fatalf("orphans %+v, rows %+v, want %+v", s.Orphans, s.Running, want)
	}
	recovery := b.wins(b.b, adoption("dead"))
	if recovery.Attempt() != 2 || recovery.Token() <= l.Token() || !recovery.Tick().Equal(l.Tick()) {
		b.Errorf("adopted as attempt %d, token %d, tick %v", recovery.Attempt(), recovery.Token(), recovery.Tick())
	}
	if s := b.state(); len(s.Orphans) != 0 || s.Running[0].Memo != "note\nbook" || s.Running[0].Attempt != 2 {
		b.Errorf("orphans %+v, row %+v", s.Orphans, s.Running)
	}
	b.expire(recovery)
	if s := b.state(); len(s.Orphans) != 1 || s.Orphans[0].Attempt != 2 || s.Orphans[0].ID != recovery.ID() {
		b.Fatalf("the recovery died too: orphans %+v", s.Orphans)
	}
	for range 2 {
		if err := b.b.Engine().DeleteOrphans(b.ctx, lock, recovery.ID(), "unknown"); err != nil {
			b.Error(err)
		}
	}
	if err := b.b.Engine().DeleteOrphans(b.ctx, lock); err != nil {
		b.Errorf("nobody to bury: %v", err)
	}
	if s := b.state(); len(s.Orphans) != 0 {
		b.Errorf("buried, and still there: %+v", s.Orphans)
	}
}

func adoptedOnce(b *bench) {
	b.known()
	died(b, "dead", 1)
	blocker := b.wins(b.b, lease.Request{})
	b.gets(b.b, adoption("dead"), lease.Held)
	b.release(blocker)
	recovery := b.wins(b.b, adoption("dead"))
	b.release(recovery)
	if a := b.gets(b.a, adoption("dead"), lease.Decided); a.Outcome != "adopted" {
		b.Errorf("decided as %q", a.Outcome)
	}
	b.gets(b.a, adoption("nobody"), lease.Decided)
	decided(b, b.a, 1, "granted")
}

func adoptionGivenBack(b *bench) {
	b.known()
	died(b, "dead", 1)
	before := b.state().Orphans
	b.giveBack(b.wins(b.b, adoption("dead")))
	after := b.state().Orphans
	if len(after) != 1 || after[0] != before[0] {
		b.Fatalf("orphans %+v, want %+v", after, before)
	}
	decided(b, b.a, 1, "granted") // it did start, once
	if l := b.wins(b.b, adoption("dead")); l.Attempt() != 2 {
		b.Errorf("attempt %d", l.Attempt())
	}
}

func aliveHolder(b *bench) {
	b.known()
	l := died(b, "slow", 1)
	if n := len(b.state().Orphans); n != 1 {
		b.Fatalf("%d orphans", n)
	}
	_ = l.Release(b.ctx)
	if n := len(b.state().Orphans); n != 0 {
		b.Errorf("%d orphans after their holder released", n)
	}
	decided(b, b.a, 1, "granted")
}

func neverStarted(b *bench) {
	b.known()
	l := died(b, "slow", 1)
	b.state() // its row makes room
	_ = l.Undo(b.ctx)
	if n := len(b.state().Orphans); n != 0 {
		b.Errorf("%d orphans", n)
	}
	runs(b, b.b, 1)
	l = died(b, "adopted", 2)
	b.wins(b.b, adoption("adopted"))
	_ = l.Undo(b.ctx) // too late: the run has a recovery
	decided(b, b.b, 2, "granted")
}

func plainLease(b *bench) {
	b.expire(b.wins(b.a, lease.Request{}))
	if s := b.state(); len(s.Orphans)+len(s.Running) != 0 {
		b.Errorf("%+v", s)
	}
}

// unheardClaim is a claim of a's that was granted, and whose lease has ended before a hears of it.
func unheardClaim(b *bench, id string, n int, of func(*lease.Request)) (lease.Request, lease.Run) {
	b.Helper()
	r := lease.Request{ID: id, Tick: b.tick(n), Trigger: "schedule"}
	if of != nil {
		of(&r)
	}
	l := b.wins(b.a, r)
	b.expire(l)
	return r, l
}

// withdraw withdraws a claim for good.
func (b *bench) withdraw(c *locking.Client, r lease.Request) {
	b.Helper()
	r.Lock, r.Permanent, r.Lease = lock, true, long
	if err := c.Engine().AwaitWithdrawal(b.ctx, r); err != nil {
		b.Fatal(err)
	}
}

// unheard: a claimant that asks under the id of a run whose lease has ended did not hear of the grant, and has
// never begun. It withdraws the id, and asks under a new one.
func unheard(b *bench) {
	b.known()
	r, l := unheardClaim(b, "one", 1, nil)
	b.gets(b.a, r, lease.Unheard)
	b.gets(b.b, lease.Request{Tick: b.tick(1)}, lease.Decided) // for all others it may have begun
	b.withdraw(b.a, r)
	if s := b.state(); len(s.Orphans) != 0 || len(s.Open) != 1 {
		b.Errorf("orphans %+v, open %v", s.Orphans, s.Open)
	}
	r.ID = "anew"
	again := b.wins(b.a, r)
	if again.Attempt() != 1 || again.Token() <= l.Token() {
		b.Errorf("attempt %d, token %d after %d", again.Attempt(), again.Token(), l.Token())
	}
	b.gets(b.b, lease.Request{Tick: b.tick(1)}, lease.Decided)
	b.release(again)
	decided(b, b.b, 1, "granted")
}

// unheardIsDead: nothing that arrives later in the name of the id means anything, a second withdrawal included.
func unheardIsDead(b *bench) {
	b.known()
	r, _ := unheardClaim(b, "one", 1, nil)
	b.withdraw(b.a, r)
	late := b.ask(b.a, r)
	if late.Verdict != lease.Unknown || !errors.Is(late.Err, locking.ErrReleased) {
		b.Errorf("a late claim: %q, %v", late.Verdict, late.Err)
	}
	again := r
	again.ID = "anew"
	l := b.wins(b.b, again)
	b.withdraw(b.a, r)
	if s := b.state(); len(s.Running) != 1 || s.Running[0].ID != "anew" || len(s.Open) != 0 {
		b.Errorf("rows %+v, open %v", s.Running, s.Open)
	}
	b.release(l)
	decided(b, b.a, 1, "granted")
}

// unheardShare: of a tick with two grants one was not heard of.
func unheardShare(b *bench) {
	b.known()
	two := func(r *lease.Request) {
		r.Slots = 2
		tick := *r.Tick
		tick.PerTick = 2
		r.Tick = &tick
	}
	share := lease.Request{ID: "heard", Tick: b.tick(1), Trigger: "schedule"}
	two(&share)
	heard := b.wins(b.b, share)
	r, _ := unheardClaim(b, "one", 1, two)
	b.withdraw(b.a, r)
	r.ID = "anew"
	anew := b.wins(b.a, r)
	if anew.Slot() == heard.Slot() {
		b.Errorf("both in slot %d", anew.Slot())
	}
	r.ID = "third"
	b.gets(b.a, r, lease.Decided)
	b.release(anew)
	b.release(heard)
}

// unheardAbandoned: a tick whose run is about to be recorded as abandoned stays decided.
func unheardAbandoned(b *bench) {
	b.known()
	r, _ := unheardClaim(b, "one", 1, nil)
	s := b.b.Engine().Inspect(b.ctx, []lease.InspectRequest{{Lock: lock, Permanent: true, Abandon: []string{"one", "nobody"}}})[0]
	if s.Err != nil || len(s.Orphans) != 1 || !s.Orphans[0].Abandoned {
		b.Fatalf("%v, orphans %+v", s.Err, s.Orphans)
	}
	b.gets(b.a, r, lease.Unheard)
	b.withdraw(b.a, r)
	if s := b.state(); len(s.Orphans) != 1 || len(s.Open) != 0 {
		b.Errorf("orphans %+v, open %v", s.Orphans, s.Open)
	}
	decided(b, b.a, 1, "granted")
	if err := b.b.Engine().DeleteOrphans(b.ctx, lock, "one"); err != nil { // its end was recorded
		b.Error(err)
	}
	decided(b, b.a, 1, "granted")
}

// unheardAdopted: a tick that a recovery carries on stays decided.
func unheardAdopted(b *bench) {
	b.known()
	r, _ := unheardClaim(b, "one", 1, nil)
	recovery := b.wins(b.b, adoption("one"))
	b.withdraw(b.a, r)
	if s := b.state(); len(s.Running) != 1 || s.Running[0].Attempt != 2 || len(s.Open) != 0 {
		b.Errorf("rows %+v, open %v", s.Running, s.Open)
	}
	b.release(recovery)
	decided(b, b.a, 1, "granted")
}

// unheardNeverGranted: the server that gets the withdrawal never saw the claim.
func unheardNeverGranted(b *bench) {
	b.known()
	r := lease.Request{ID: "one", Tick: b.tick(1), Trigger: "schedule"}
	b.withdraw(b.a, r)
	if late := b.ask(b.a, r); !errors.Is(late.Err, locking.ErrReleased) {
		b.Errorf("a late claim: %q, %v", late.Verdict, late.Err)
	}
	runs(b, b.b, 1)
}

// leaveOrphan ends a lease whose run others are to carry on.
func leaveOrphan(b *bench, l lease.Run) {
	b.Helper()
	if err := l.HandOver(b.ctx, l.Attempt()); err != nil {
		b.Errorf("leave: %v", err)
	}
}

// orphanOf is the only orphan.
func orphanOf(b *bench, id string, attempt int) {
	b.Helper()
	s := b.state()
	if len(s.Running) != 0 || len(s.Orphans) != 1 || s.Orphans[0].ID != id || s.Orphans[0].Attempt != attempt || !s.Orphans[0].Tick.Equal(b.tick(1).At) {
		b.Fatalf("rows %+v, orphans %+v", s.Running, s.Orphans)
	}
}

func left(b *bench) {
	b.known()
	l := b.wins(b.a, lease.Request{ID: "left", Tick: b.tick(1), Trigger: "schedule", Memo: "note"})
	leaveOrphan(b, l)
	orphanOf(b, "left", 1)
	b.gets(b.a, lease.Request{ID: "left", Tick: b.tick(1), Trigger: "schedule"}, lease.Unknown)
	recovery := b.wins(b.b, adoption("left"))
	if recovery.Attempt() != 2 || recovery.Token() <= l.Token() || !recovery.Tick().Equal(l.Tick()) {
		b.Errorf("adopted as attempt %d, token %d, tick %v", recovery.Attempt(), recovery.Token(), recovery.Tick())
	}
	b.release(recovery)
	decided(b, b.a, 1, "granted")
	plain := b.wins(b.a, lease.Request{})
	leaveOrphan(b, plain)
	if s := b.state(); len(s.Orphans)+len(s.Running) != 0 {
		b.Errorf("a lease without a trigger has left %+v", s)
	}
}

func leftAfterItsLease(b *bench) {
	b.known()
	l := died(b, "lost", 1)
	orphanOf(b, "lost", 1)
	if err := l.HandOver(b.ctx, 1); err != nil && !errors.Is(err, locking.ErrLost) {
		b.Error(err)
	}
	orphanOf(b, "lost", 1)
	b.wins(b.b, adoption("lost"))
}

func leftTooLate(b *bench) {
	b.known()
	l := died(b, "lost", 1)
	recovery := b.wins(b.b, adoption("lost"))
	_ = l.HandOver(b.ctx, 1)
	if s := b.state(); len(s.Orphans) != 0 || len(s.Running) != 1 || s.Running[0].ID != recovery.ID() {
		b.Errorf("rows %+v, orphans %+v", s.Running, s.Orphans)
	}
}

func recoveryIsHandedOver(b *bench) {
	b.known()
	died(b, "first", 1)
	r := adoption("first")
	r.ID = "recovery"
	leaveOrphan(b, b.wins(b.b, r))
	orphanOf(b, "recovery", 2)
	if l := b.wins(b.a, adoption("recovery")); l.Attempt() != 3 {
		b.Errorf("attempt %d", l.Attempt())
	}
}

func nextAttempt(b *bench) {
	b.known()
	l := b.wins(b.a, lease.Request{ID: "tries", Tick: b.tick(1), Trigger: "schedule"})
	if n, err := l.NextAttempt(b.ctx); n != 2 || err != nil {
		b.Fatalf("attempt %d, %v", n, err)
	}
	if s := b.state(); l.Attempt() != 2 || len(s.Running) != 1 || s.Running[0].Attempt != 2 {
		b.Errorf("attempt %d, rows %+v", l.Attempt(), s.Running)
	}
	b.expire(l)
	orphanOf(b, "tries", 2)
	if recovery := b.wins(b.b, adoption("tries")); recovery.Attempt() != 3 {
		b.Errorf("the recovery's attempt is %d", recovery.Attempt())
	}
}

// leftBeforeItsAttempt: an attempt that was acknowledged and has never begun goes to the recovery.
func leftBeforeItsAttempt(b *bench) {
	b.known()
	l := b.wins(b.a, lease.Request{ID: "tries", Tick: b.tick(1), Trigger: "schedule"})
	if n, err := l.NextAttempt(b.ctx); n != 2 || err != nil {
		b.Fatalf("attempt %d, %v", n, err)
	}
	if err := l.HandOver(b.ctx, 1); err != nil {
		b.Error(err)
	}
	orphanOf(b, "tries", 1)
	recovery := b.wins(b.b, adoption("tries"))
	if recovery.Attempt() != 2 {
		b.Errorf("the recovery's attempt is %d", recovery.Attempt())
	}
	if err := recovery.HandOver(b.ctx, 1); err != nil { // a grant that never began would be given back
		b.Error(err)
	}
	orphanOf(b, recovery.ID(), 2)
}

// leftAfterItsAttemptWasSeen: the lease has ended, and others may have recorded the attempt that the orphan has.
func leftAfterItsAttemptWasSeen(b *bench) {
	b.known()
	l := b.wins(b.a, lease.Request{ID: "tries", Tick: b.tick(1), Trigger: "schedule"})
	if n, err := l.NextAttempt(b.ctx); n != 2 || err != nil {
		b.Fatalf("attempt %d, %v", n, err)
	}
	b.expire(l)
	orphanOf(b, "tries", 2)
	_ = l.HandOver(b.ctx, 1)
	orphanOf(b, "tries", 2)
}

// attemptBesideRecovery: the holder trusts its lease still, which has ended for the server.
func attemptBesideRecovery(b *bench) {
	b.known()
	l := died(b, "dead", 1)
	orphanOf(b, "dead", 1)
	if n, err := l.NextAttempt(b.ctx); !errors.Is(err, locking.ErrLost) {
		b.Errorf("attempt %d, %v", n, err)
	}
	b.ends(l, locking.ErrLost)
	recovery := b.wins(b.b, adoption("dead"))
	if s := b.state(); recovery.Attempt() != 2 || len(s.Running) != 1 || s.Running[0].Attempt != 2 {
		b.Errorf("the recovery's attempt is %d, rows %+v", recovery.Attempt(), s.Running)
	}
}
