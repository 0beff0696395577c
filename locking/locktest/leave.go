package locktest

import (
	"errors"

	"github.com/cronclave/cronclave/internal/lease/engine"
)

// leaveOrphan ends a lease whose run others are to carry on.
func leaveOrphan(b *bench, l *engine.Lease) {
	b.Helper()
	if err := engine.RunOf(l).HandOver(b.ctx, engine.RunOf(l).Attempt()); err != nil {
		b.Errorf("leave: %v", err)
	}
}

// orphanOf is the only orphan.
func orphanOf(b *bench, id string, attempt int) {
	b.Helper()
	s := b.state()
	if len(s.Rows) != 0 || len(s.Orphans) != 1 || s.Orphans[0].ID != id || s.Orphans[0].Attempt != attempt || !s.Orphans[0].Tick.Equal(b.tick(1).At) {
		b.Fatalf("rows %+v, orphans %+v", s.Rows, s.Orphans)
	}
}

func left(b *bench) {
	b.known()
	l := b.wins(b.a, engine.Request{ID: "left", Tick: b.tick(1), Trigger: "schedule", Memo: "note"})
	leaveOrphan(b, l)
	orphanOf(b, "left", 1)
	b.gets(b.a, engine.Request{ID: "left", Tick: b.tick(1), Trigger: "schedule"}, engine.Unknown)
	recovery := b.wins(b.b, adoption("left"))
	if engine.RunOf(recovery).Attempt() != 2 || recovery.Token() <= l.Token() || !engine.RunOf(recovery).Tick().Equal(engine.RunOf(l).Tick()) {
		b.Errorf("adopted as attempt %d, token %d, tick %v", engine.RunOf(recovery).Attempt(), recovery.Token(), engine.RunOf(recovery).Tick())
	}
	b.release(recovery)
	decided(b, b.a, 1, "granted")
	plain := b.wins(b.a, engine.Request{})
	leaveOrphan(b, plain)
	if s := b.state(); len(s.Orphans)+len(s.Rows) != 0 {
		b.Errorf("a lease without a trigger has left %+v", s)
	}
}

func leftAfterItsLease(b *bench) {
	b.known()
	l := died(b, "lost", 1)
	orphanOf(b, "lost", 1)
	if err := engine.RunOf(l).HandOver(b.ctx, 1); err != nil && !errors.Is(err, engine.ErrLost) {
		b.Error(err)
	}
	orphanOf(b, "lost", 1)
	b.wins(b.b, adoption("lost"))
}

func leftTooLate(b *bench) {
	b.known()
	l := died(b, "lost", 1)
	recovery := b.wins(b.b, adoption("lost"))
	_ = engine.RunOf(l).HandOver(b.ctx, 1)
	if s := b.state(); len(s.Orphans) != 0 || len(s.Rows) != 1 || s.Rows[0].ID != recovery.ID() {
		b.Errorf("rows %+v, orphans %+v", s.Rows, s.Orphans)
	}
}

func recoveryIsHandedOver(b *bench) {
	b.known()
	died(b, "first", 1)
	r := adoption("first")
	r.ID = "recovery"
	leaveOrphan(b, b.wins(b.b, r))
	orphanOf(b, "recovery", 2)
	if l := b.wins(b.a, adoption("recovery")); engine.RunOf(l).Attempt() != 3 {
		b.Errorf("attempt %d", engine.RunOf(l).Attempt())
	}
}

func nextAttempt(b *bench) {
	b.known()
	l := b.wins(b.a, engine.Request{ID: "tries", Tick: b.tick(1), Trigger: "schedule"})
	if n, err := engine.RunOf(l).NextAttempt(b.ctx); n != 2 || err != nil {
		b.Fatalf("attempt %d, %v", n, err)
	}
	if s := b.state(); engine.RunOf(l).Attempt() != 2 || len(s.Rows) != 1 || s.Rows[0].Attempt != 2 {
		b.Errorf("attempt %d, rows %+v", engine.RunOf(l).Attempt(), s.Rows)
	}
	b.expire(l)
	orphanOf(b, "tries", 2)
	if recovery := b.wins(b.b, adoption("tries")); engine.RunOf(recovery).Attempt() != 3 {
		b.Errorf("the recovery's attempt is %d", engine.RunOf(recovery).Attempt())
	}
}

// leftBeforeItsAttempt: an attempt that was acknowledged and has never begun goes to the recovery.
func leftBeforeItsAttempt(b *bench) {
	b.known()
	l := b.wins(b.a, engine.Request{ID: "tries", Tick: b.tick(1), Trigger: "schedule"})
	if n, err := engine.RunOf(l).NextAttempt(b.ctx); n != 2 || err != nil {
		b.Fatalf("attempt %d, %v", n, err)
	}
	if err := engine.RunOf(l).HandOver(b.ctx, 1); err != nil {
		b.Error(err)
	}
	orphanOf(b, "tries", 1)
	recovery := b.wins(b.b, adoption("tries"))
	if engine.RunOf(recovery).Attempt() != 2 {
		b.Errorf("the recovery's attempt is %d", engine.RunOf(recovery).Attempt())
	}
	if err := engine.RunOf(recovery).HandOver(b.ctx, 1); err != nil { // a grant that never began would be given back
		b.Error(err)
	}
	orphanOf(b, recovery.ID(), 2)
}

// leftAfterItsAttemptWasSeen: the lease has ended, and others may have recorded the attempt that the orphan has.
func leftAfterItsAttemptWasSeen(b *bench) {
	b.known()
	l := b.wins(b.a, engine.Request{ID: "tries", Tick: b.tick(1), Trigger: "schedule"})
	if n, err := engine.RunOf(l).NextAttempt(b.ctx); n != 2 || err != nil {
		b.Fatalf("attempt %d, %v", n, err)
	}
	b.expire(l)
	orphanOf(b, "tries", 2)
	_ = engine.RunOf(l).HandOver(b.ctx, 1)
	orphanOf(b, "tries", 2)
}

// attemptBesideRecovery: the holder trusts its lease still, which has ended for the server.
func attemptBesideRecovery(b *bench) {
	b.known()
	l := died(b, "dead", 1)
	orphanOf(b, "dead", 1)
	if n, err := engine.RunOf(l).NextAttempt(b.ctx); !errors.Is(err, engine.ErrLost) {
		b.Errorf("attempt %d, %v", n, err)
	}
	b.ends(l, engine.ErrLost)
	recovery := b.wins(b.b, adoption("dead"))
	if s := b.state(); engine.RunOf(recovery).Attempt() != 2 || len(s.Rows) != 1 || s.Rows[0].Attempt != 2 {
		b.Errorf("the recovery's attempt is %d, rows %+v", engine.RunOf(recovery).Attempt(), s.Rows)
	}
}

func putBackOfAttempts(b *bench) {
	b.known()
	l := b.wins(b.a, engine.Request{ID: "tries", Lease: renewing, Tick: b.tick(1), Trigger: "schedule"})
	if _, err := engine.RunOf(l).NextAttempt(b.ctx); err != nil {
		b.Fatal(err)
	}
	b.forget()
	if row := heldAgain(b, l); row.Attempt != 2 || engine.RunOf(l).Attempt() != 2 {
		b.Errorf("put back as %+v", row)
	}
	b.forget()
	if n, err := engine.RunOf(l).NextAttempt(b.ctx); n != 3 || err != nil {
		b.Errorf("attempt %d, %v", n, err)
	}
	if s := b.state(); len(s.Rows) != 1 || s.Rows[0].Attempt != 3 {
		b.Errorf("rows %+v", s.Rows)
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
	if a := b.ask(b.a, adoption("dead")); a.Verdict == engine.Granted {
		b.Error("adopted twice")
	}
	if n := len(b.state().Orphans); n != 0 {
		b.Errorf("%d orphans", n)
	}
}
