package locktest

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/locking"
)

func stopping() []theorem {
	return []theorem{
		{"RenewalAsksTheHolderToStop", renewalTells, nothing}, // Promise: P5
		{"MessageAsksTheHolderToStop", messageTells, memory},
		{"NothingIsStoppedForALeaseThatHasEnded", nobodyIsTold, nothing},
		{"OldestMakesRoomForATick", oldestMakesRoom, nothing},          // Promise: P5, P9
		{"RunThatBeganAfterATickIsLeftAlone", youngerStays, nothing},   // Promise: P5
		{"RecoveryOfAnOlderTickMakesRoom", recoveryMakesRoom, nothing}, // Promise: P5
		{"WhoStopsAnywayMakesRoom", stopsAnyway, nothing},
		{"OrphanSaysThatItWasToStop", stoppedOrphan, nothing},            // Promise: P5, quorum
		{"OrphanSaysThatItsRecoveryWasToStop", stoppedRecovery, nothing}, // Promise: P5
	}
}

// stopRun asks, and returns the lease id of the holder that was notified.
func stopRun(b *bench, r lease.StopRequest) string {
	b.Helper()
	if r.Lock == "" {
		r.Lock = lock
	}
	if r.Reason == "" {
		r.Reason = "wanted"
	}
	r.Permanent = true
	told := b.b.Engine().Stop(b.ctx, []lease.StopRequest{r})[0]
	if told.Err != nil {
		b.Fatal(told.Err)
	}
	return told.ID
}

// stops waits until the holder knows.
func stops(b *bench, l lease.Run, reason string) {
	b.Helper()
	select {
	case <-l.Stopping():
	case <-l.Context().Done():
		b.Fatal(context.Cause(l.Context()))
	case <-time.After(timeout):
		b.Fatal("nobody has told the holder")
	}
	if l.StopReason() != reason || l.Context().Err() != nil {
		b.Errorf("reason %q, want %q; %v", l.StopReason(), reason, context.Cause(l.Context()))
	}
}

func renewalTells(b *bench) {
	for _, trigger := range []string{"test", ""} { // without one a quorum has no account of it
		l := b.wins(b.a, lease.Request{Lease: renewing, Permanent: true, Trigger: trigger})
		if told := stopRun(b, lease.StopRequest{ID: l.ID(), Reason: "enough"}); told != l.ID() {
			b.Fatalf("told: %q", told)
		}
		stops(b, l, "enough")
		b.gets(b.b, lease.Request{Permanent: true}, lease.Held) // it is still held, until its holder has stopped
		b.release(l)
		b.release(b.wins(b.b, lease.Request{Permanent: true}))
	}
}

func messageTells(b *bench) {
	ctx, cancel := context.WithCancel(b.ctx)
	over := make(chan struct{})
	defer func() { cancel(); <-over }()
	go func() {
		defer close(over)
		b.a.Engine().Subscribe(ctx, func([]lease.GrantEvent) {})
	}()
	l := b.wins(b.a, lease.Request{Permanent: true}) // which is not renewed during the test
	for told := time.Now(); l.StopReason() == "" && time.Since(told) < timeout; {
		stopRun(b, lease.StopRequest{ID: l.ID()}) // a holder that does not listen yet hears the next one
		select {
		case <-l.Stopping():
		case <-time.After(10 * time.Millisecond):
		}
	}
	stops(b, l, "wanted")
	b.release(l)
}

func nobodyIsTold(b *bench) {
	l := b.wins(b.a, lease.Request{Permanent: true})
	b.release(l)
	for _, id := range []string{l.ID(), "stranger"} {
		if told := stopRun(b, lease.StopRequest{ID: id}); told != "" {
			b.Errorf("told: %q", told)
		}
	}
	again := b.wins(b.a, lease.Request{Permanent: true, Lease: renewing})
	time.Sleep(renewing / 2) // a renewal
	if why := again.StopReason(); why != "" {
		b.Errorf("the next holder is told to stop: %s", why)
	}
	b.release(again)
}

// room asks for a row for the n-th tick, which is due in a second.
func room(b *bench, n, slots int) string {
	b.Helper()
	return stopRun(b, lease.StopRequest{Tick: b.tick(n).At, From: b.now().Add(time.Second), Slots: slots, Reason: "replaced"})
}

func oldestMakesRoom(b *bench) {
	b.known()
	two := func(c *locking.Client) lease.Run {
		return b.wins(c, lease.Request{Permanent: true, Trigger: "test", Slots: 2})
	}
	first := two(b.a)
	if told := room(b, 1, 2); told != "" {
		b.Fatalf("a row is free, and told is %q", told)
	}
	second := two(b.b)
	for range 2 {
		if told := room(b, 1, 2); told != first.ID() {
			b.Fatalf("told: %q, want the oldest", told)
		}
	}
	if told := room(b, 2, 2); told != second.ID() {
		b.Errorf("another tick: %q, want the other run", told)
	}
	b.release(first)
	if told := room(b, 1, 2); told != "" {
		b.Errorf("there is room, and told is %q", told)
	}
	b.release(two(b.a))
	b.release(second)
}

func youngerStays(b *bench) {
	b.known()
	l := b.wins(b.a, lease.Request{Permanent: true, Trigger: "test"})
	if told := stopRun(b, lease.StopRequest{Tick: b.tick(1).At, From: b.tick(1).At, Slots: 1}); told != "" {
		b.Errorf("told: %q", told)
	}
	b.release(l)
	l = b.wins(b.a, lease.Request{Tick: b.tick(1), Trigger: "test"})
	if told := room(b, 1, 1); told != "" {
		b.Errorf("for a tick that is decided: %q", told)
	}
	b.release(l)
}

func stopsAnyway(b *bench) {
	b.known()
	var runs []lease.Run
	for range 2 {
		runs = append(runs, b.wins(b.a, lease.Request{Permanent: true, Trigger: "test", Slots: 2, Lease: renewing}))
	}
	stopRun(b, lease.StopRequest{ID: runs[1].ID(), Reason: "user"})
	for range 2 {
		if told := room(b, 1, 2); told != runs[1].ID() {
			b.Errorf("told: %q, want the one that stops anyway", told)
		}
	}
	stops(b, runs[1], "user")
	if why := runs[0].StopReason(); why != "" {
		b.Errorf("the other is told to stop: %s", why)
	}
	b.release(runs[0])
	b.release(runs[1])
}

// stoppedOrphan has holders die that were asked to stop, or leave their runs: the orphans that they leave carry
// the request.
func stoppedOrphan(b *bench) {
	b.known()
	for n, ends := range []func(l lease.Run){
		func(l lease.Run) { b.expire(l) },
		func(l lease.Run) { leaveOrphan(b, l) },
		func(l lease.Run) { b.expire(l); b.state(); _ = l.HandOver(b.ctx, 1) },
	} {
		l := b.wins(b.a, lease.Request{Tick: b.tick(n + 1), Trigger: "test"})
		stopRun(b, lease.StopRequest{ID: l.ID(), Reason: "for good"})
		ends(l)
		if s := b.state(); len(s.Orphans) != 1 || s.Orphans[0].Stopped != "for good" || s.Orphans[0].Slot != 0 || s.Orphans[0].ID != l.ID() {
			b.Fatalf("orphans: %+v", s.Orphans)
		}
		recovery := b.wins(b.a, adoption(l.ID())) // a replica that wants to may still have it
		if s := b.state(); recovery.Attempt() != 2 || len(s.Orphans) != 0 {
			b.Fatalf("attempt %d, orphans: %+v", recovery.Attempt(), s.Orphans)
		}
		if err := recovery.Undo(b.ctx); err != nil {
			b.Fatal(err)
		}
		if s := b.state(); len(s.Orphans) != 1 || s.Orphans[0].Stopped != "for good" {
			b.Fatalf("orphans: %+v", s.Orphans)
		}
		if err := b.b.Engine().DeleteOrphans(b.ctx, lock, l.ID()); err != nil {
			b.Fatal(err)
		}
	}
	l := b.wins(b.a, lease.Request{Tick: b.tick(4), Trigger: "test"})
	b.expire(l)
	if s := b.state(); len(s.Orphans) != 1 || s.Orphans[0].Stopped != "" {
		b.Errorf("the next one in the slot: %+v", s.Orphans)
	}
}

// stoppedRecovery has recoveries give back what they were told to stop before it began: the next one knows, and of several reasons the first.
func stoppedRecovery(b *bench) {
	b.known()
	for n, tc := range []struct{ holder, recovery, want string }{
		{"", "enough", "enough"},
		{"for good", "enough", "for good"},
		{"", "", ""},
	} {
		l := b.wins(b.a, lease.Request{Tick: b.tick(n + 1), Trigger: "test"})
		if tc.holder != "" {
			stopRun(b, lease.StopRequest{ID: l.ID(), Reason: tc.holder})
		}
		leaveOrphan(b, l)
		recovery := b.wins(b.a, adoption(l.ID()))
		if tc.recovery != "" {
			stopRun(b, lease.StopRequest{ID: recovery.ID(), Reason: tc.recovery})
		}
		if err := recovery.Undo(b.ctx); err != nil {
			b.Fatal(err)
		}
		if s := b.state(); len(s.Orphans) != 1 || s.Orphans[0].Stopped != tc.want || s.Orphans[0].ID != l.ID() || s.Orphans[0].Attempt != 1 {
			b.Errorf("holder told %q, recovery %q; orphans: %+v", tc.holder, tc.recovery, s.Orphans)
		}
		if err := b.b.Engine().DeleteOrphans(b.ctx, lock, l.ID()); err != nil {
			b.Fatal(err)
		}
	}
}

// recoveryMakesRoom for a tick between that of the run which it carries on and its own grant.
func recoveryMakesRoom(b *bench) {
	b.known()
	l := b.wins(b.a, lease.Request{Tick: b.tick(1), Trigger: "test"})
	leaveOrphan(b, l)
	recovery := b.wins(b.a, adoption(l.ID()))
	for n, want := range map[int]string{1: "", 2: recovery.ID()} {
		if told := stopRun(b, lease.StopRequest{Tick: b.tick(n).At, From: b.tick(2).At, Slots: 1}); told != want {
			b.Errorf("for tick %d told: %q, want %q", n, told, want)
		}
	}
	b.release(recovery)
}
