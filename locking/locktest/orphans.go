package locktest

import (
	"github.com/cronclave/cronclave/internal/lease/engine"
)

func orphans() []theorem {
	return []theorem{
		{"OrphanIsFoundAdoptedAndBuried", orphan, nothing},
		{"OrphanIsAdoptedOnce", adoptedOnce, nothing},                          // Promise: P5
		{"AdoptionThatIsGivenBackLeavesTheOrphan", adoptionGivenBack, nothing}, // Promise: P5
		{"HolderThatIsAliveBuriesItself", aliveHolder, nothing},
		{"RunThatNeverStartedGivesItsTickBackAlthoughItsLeaseEnded", neverStarted, nothing},
		{"GrantThatNobodyHeardOfIsMadeAgain", unheard, nothing},
		{"PlainLeaseLeavesNoOrphan", plainLease, nothing},
		{"RunThatIsLeftIsAnOrphanAtOnce", left, nothing},                       // Promise: P5
		{"LostRunThatIsLeftStaysAnOrphan", leftAfterItsLease, nothing},         // Promise: P5
		{"RunThatIsHandedOverTooLateDisturbsNoRecovery", leftTooLate, nothing}, // Promise: P5
		{"RecoveryThatIsHandedOverIsAnOrphan", heirLeaves, nothing},
		{"OrphanHasTheAttemptThatItDiedIn", nextAttempt, nothing},                 // Promise: P6
		{"AttemptThatNeverBeganIsFree", leftBeforeItsAttempt, nothing},            // Promise: P6
		{"OrphanKeepsTheAttemptThatWasSeen", leftAfterItsAttemptWasSeen, nothing}, // Promise: P6
		{"AttemptDoesNotBeginBesideARecovery", attemptBesideRecovery, nothing},    // Promise: P6
	}
}

// died grants a tick to a, whose lease then ends.
func died(b *bench, id string, n int) *engine.Lease {
	b.Helper()
	l := b.wins(b.a, engine.Request{ID: id, Tick: b.tick(n), Trigger: "schedule", Memo: "note\nbook"})
	b.expire(l)
	return l
}

func adoption(of string) engine.Request {
	return engine.Request{Adopt: of, Trigger: "recovery", Permanent: true}
}

func orphan(b *bench) {
	b.known()
	l := died(b, "dead", 1)
	a := b.gets(b.b, engine.Request{Tick: b.tick(1)}, engine.Decided)
	if a.Orphans != 1 || a.Holder != "" {
		b.Errorf("%d orphans, held by %q", a.Orphans, a.Holder)
	}
	s := b.state()
	want := engine.Row{ID: "dead", Owner: "a", Token: l.Token(), Length: long, Tick: b.tick(1).At, Attempt: 1, Trigger: "schedule", Memo: "note\nbook"}
	if len(s.Orphans) != 1 || s.Orphans[0] != want || len(s.Rows) != 0 {
		b.Fatalf("orphans %+v, rows %+v, want %+v", s.Orphans, s.Rows, want)
	}
	recovery := b.wins(b.b, adoption("dead"))
	if engine.RunOf(recovery).Attempt() != 2 || recovery.Token() <= l.Token() || !engine.RunOf(recovery).Tick().Equal(engine.RunOf(l).Tick()) {
		b.Errorf("adopted as attempt %d, token %d, tick %v", engine.RunOf(recovery).Attempt(), recovery.Token(), engine.RunOf(recovery).Tick())
	}
	if s := b.state(); len(s.Orphans) != 0 || s.Rows[0].Memo != "note\nbook" || s.Rows[0].Attempt != 2 {
		b.Errorf("orphans %+v, row %+v", s.Orphans, s.Rows)
	}
	b.expire(recovery)
	if s := b.state(); len(s.Orphans) != 1 || s.Orphans[0].Attempt != 2 || s.Orphans[0].ID != recovery.ID() {
		b.Fatalf("the recovery died too: orphans %+v", s.Orphans)
	}
	for range 2 {
		if err := b.b.DeleteOrphans(b.ctx, lock, recovery.ID(), "unknown"); err != nil {
			b.Error(err)
		}
	}
	if err := b.b.DeleteOrphans(b.ctx, lock); err != nil {
		b.Errorf("nobody to bury: %v", err)
	}
	if s := b.state(); len(s.Orphans) != 0 {
		b.Errorf("buried, and still there: %+v", s.Orphans)
	}
}

func adoptedOnce(b *bench) {
	b.known()
	died(b, "dead", 1)
	blocker := b.wins(b.b, engine.Request{})
	b.gets(b.b, adoption("dead"), engine.Held)
	b.release(blocker)
	recovery := b.wins(b.b, adoption("dead"))
	b.release(recovery)
	if a := b.gets(b.a, adoption("dead"), engine.Decided); a.Outcome != "adopted" {
		b.Errorf("decided as %q", a.Outcome)
	}
	b.gets(b.a, adoption("nobody"), engine.Decided)
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
	if l := b.wins(b.b, adoption("dead")); engine.RunOf(l).Attempt() != 2 {
		b.Errorf("attempt %d", engine.RunOf(l).Attempt())
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
	_ = engine.RunOf(l).Undo(b.ctx)
	if n := len(b.state().Orphans); n != 0 {
		b.Errorf("%d orphans", n)
	}
	runs(b, b.b, 1)
	l = died(b, "adopted", 2)
	b.wins(b.b, adoption("adopted"))
	_ = engine.RunOf(l).Undo(b.ctx) // too late: the run has a recovery
	decided(b, b.b, 2, "granted")
}

func plainLease(b *bench) {
	b.expire(b.wins(b.a, engine.Request{}))
	if s := b.state(); len(s.Orphans)+len(s.Rows) != 0 {
		b.Errorf("%+v", s)
	}
}

// unheard: a claimant that asks under the id of a run whose lease has ended did not hear of the grant, and has
// never begun.
func unheard(b *bench) {
	b.known()
	l := died(b, "one", 1)
	again := b.wins(b.a, engine.Request{ID: "one", Tick: b.tick(1), Trigger: "schedule"})
	if engine.RunOf(again).Attempt() != 1 || again.Token() <= l.Token() {
		b.Errorf("attempt %d, token %d after %d", engine.RunOf(again).Attempt(), again.Token(), l.Token())
	}
	b.gets(b.b, engine.Request{Tick: b.tick(1)}, engine.Decided)
	if s := b.state(); len(s.Orphans) != 0 {
		b.Errorf("orphans %+v", s.Orphans)
	}
	b.release(again)
	died(b, "two", 2)
	if s := b.state(); len(s.Orphans) != 1 {
		b.Errorf("orphans %+v", s.Orphans)
	}
	if err := b.b.DeleteOrphans(b.ctx, lock, "two"); err != nil { // its end was recorded
		b.Error(err)
	}
	b.gets(b.a, engine.Request{ID: "two", Tick: b.tick(2), Trigger: "schedule"}, engine.Decided)
}
