package locktest

import (
	"github.com/cronclave/cronclave/locking"
)

func orphans() []theorem {
	return []theorem{
		{"OrphanIsFoundAdoptedAndBuried", orphan, nothing},
		{"OrphanIsAdoptedOnce", adoptedOnce, nothing},
		{"AdoptionThatIsGivenBackLeavesTheOrphan", adoptionGivenBack, nothing},
		{"HolderThatIsAliveBuriesItself", aliveHolder, nothing},
		{"RunThatNeverStartedGivesItsTickBackAlthoughItsLeaseEnded", neverStarted, nothing},
		{"GrantThatNobodyHeardOfIsMadeAgain", unheard, nothing},
		{"PlainLeaseLeavesNoOrphan", plainLease, nothing},
		{"RunThatIsLeftIsAnOrphanAtOnce", left, nothing},
		{"LostRunThatIsLeftStaysAnOrphan", leftAfterItsLease, nothing},
		{"RunThatIsLeftTooLateDisturbsNoHeir", leftTooLate, nothing},
		{"HeirThatLeavesIsAnOrphan", heirLeaves, nothing},
		{"OrphanHasTheAttemptThatItDiedIn", nextAttempt, nothing},
		{"AttemptThatNeverBeganIsFree", leftBeforeItsAttempt, nothing},
		{"OrphanKeepsTheAttemptThatWasSeen", leftAfterItsAttemptWasSeen, nothing},
		{"AttemptDoesNotBeginBesideARecovery", attemptBesideRecovery, nothing},
	}
}

// died grants a tick to a, whose lease then ends.
func (b *bench) died(id string, n int) *locking.Lease {
	b.Helper()
	l := b.wins(b.a, locking.Request{ID: id, Tick: b.tick(n), Trigger: "schedule", Memo: "note\nbook"})
	b.expire(l)
	return l
}

func adoption(of string) locking.Request {
	return locking.Request{Adopt: of, Trigger: "recovery", Permanent: true}
}

func orphan(b *bench) {
	b.known()
	l := b.died("dead", 1)
	a := b.gets(b.b, locking.Request{Tick: b.tick(1)}, locking.Decided)
	if a.Orphans != 1 || a.Holder != "" {
		b.Errorf("%d orphans, held by %q", a.Orphans, a.Holder)
	}
	s := b.state()
	want := locking.Row{ID: "dead", Owner: "a", Token: l.Token(), Length: long, Tick: b.tick(1).At, Attempt: 1, Trigger: "schedule", Memo: "note\nbook"}
	if len(s.Orphans) != 1 || s.Orphans[0] != want || len(s.Rows) != 0 {
		b.Fatalf("orphans %+v, rows %+v, want %+v", s.Orphans, s.Rows, want)
	}
	heir := b.wins(b.b, adoption("dead"))
	if heir.Attempt() != 2 || heir.Token() <= l.Token() || !heir.Tick().Equal(l.Tick()) {
		b.Errorf("adopted as attempt %d, token %d, tick %v", heir.Attempt(), heir.Token(), heir.Tick())
	}
	if s := b.state(); len(s.Orphans) != 0 || s.Rows[0].Memo != "note\nbook" || s.Rows[0].Attempt != 2 {
		b.Errorf("orphans %+v, row %+v", s.Orphans, s.Rows)
	}
	b.expire(heir)
	if s := b.state(); len(s.Orphans) != 1 || s.Orphans[0].Attempt != 2 || s.Orphans[0].ID != heir.ID() {
		b.Fatalf("the heir died too: orphans %+v", s.Orphans)
	}
	for range 2 {
		if err := b.b.Bury(b.ctx, lock, heir.ID(), "unknown"); err != nil {
			b.Error(err)
		}
	}
	if err := b.b.Bury(b.ctx, lock); err != nil {
		b.Errorf("nobody to bury: %v", err)
	}
	if s := b.state(); len(s.Orphans) != 0 {
		b.Errorf("buried, and still there: %+v", s.Orphans)
	}
}

func adoptedOnce(b *bench) {
	b.known()
	b.died("dead", 1)
	blocker := b.wins(b.b, locking.Request{})
	b.gets(b.b, adoption("dead"), locking.Held)
	b.release(blocker)
	heir := b.wins(b.b, adoption("dead"))
	b.release(heir)
	if a := b.gets(b.a, adoption("dead"), locking.Decided); a.Outcome != "adopted" {
		b.Errorf("decided as %q", a.Outcome)
	}
	b.gets(b.a, adoption("nobody"), locking.Decided)
	b.decided(b.a, 1, "granted")
}

func adoptionGivenBack(b *bench) {
	b.known()
	b.died("dead", 1)
	before := b.state().Orphans
	b.giveBack(b.wins(b.b, adoption("dead")))
	after := b.state().Orphans
	if len(after) != 1 || after[0] != before[0] {
		b.Fatalf("orphans %+v, want %+v", after, before)
	}
	b.decided(b.a, 1, "granted") // it did start, once
	if l := b.wins(b.b, adoption("dead")); l.Attempt() != 2 {
		b.Errorf("attempt %d", l.Attempt())
	}
}

func aliveHolder(b *bench) {
	b.known()
	l := b.died("slow", 1)
	if n := len(b.state().Orphans); n != 1 {
		b.Fatalf("%d orphans", n)
	}
	_ = l.Release(b.ctx)
	if n := len(b.state().Orphans); n != 0 {
		b.Errorf("%d orphans after their holder released", n)
	}
	b.decided(b.a, 1, "granted")
}

func neverStarted(b *bench) {
	b.known()
	l := b.died("slow", 1)
	b.state() // its row makes room
	_ = l.GiveBack(b.ctx)
	if n := len(b.state().Orphans); n != 0 {
		b.Errorf("%d orphans", n)
	}
	b.runs(b.b, 1)
	l = b.died("adopted", 2)
	b.wins(b.b, adoption("adopted"))
	_ = l.GiveBack(b.ctx) // too late: the run has an heir
	b.decided(b.b, 2, "granted")
}

func plainLease(b *bench) {
	b.expire(b.wins(b.a, locking.Request{}))
	if s := b.state(); len(s.Orphans)+len(s.Rows) != 0 {
		b.Errorf("%+v", s)
	}
}

// unheard: who asks under the id of a run whose lease has ended did not hear of the grant, and has never begun.
func unheard(b *bench) {
	b.known()
	l := b.died("one", 1)
	again := b.wins(b.a, locking.Request{ID: "one", Tick: b.tick(1), Trigger: "schedule"})
	if again.Attempt() != 1 || again.Token() <= l.Token() {
		b.Errorf("attempt %d, token %d after %d", again.Attempt(), again.Token(), l.Token())
	}
	b.gets(b.b, locking.Request{Tick: b.tick(1)}, locking.Decided)
	if s := b.state(); len(s.Orphans) != 0 {
		b.Errorf("orphans %+v", s.Orphans)
	}
	b.release(again)
	b.died("two", 2)
	if s := b.state(); len(s.Orphans) != 1 {
		b.Errorf("orphans %+v", s.Orphans)
	}
	if err := b.b.Bury(b.ctx, lock, "two"); err != nil { // its end was recorded
		b.Error(err)
	}
	b.gets(b.a, locking.Request{ID: "two", Tick: b.tick(2), Trigger: "schedule"}, locking.Decided)
}
