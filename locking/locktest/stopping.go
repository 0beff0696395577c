package locktest

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/locking"
)

func stopping() []theorem {
	return []theorem{
		{"RenewalTellsTheHolderToStop", renewalTells, nothing},
		{"MessageTellsTheHolderToStop", messageTells, memory},
		{"NobodyIsToldForALeaseThatHasEnded", nobodyIsTold, nothing},
		{"OldestMakesRoomForATick", oldestMakesRoom, nothing},
		{"RunThatBeganAfterATickIsLeftAlone", youngerStays, nothing},
		{"HeirOfAnOlderTickMakesRoom", heirMakesRoom, nothing},
		{"WhoStopsAnywayMakesRoom", stopsAnyway, nothing},
		{"OrphanTellsThatItWasToStop", stoppedOrphan, nothing},
		{"OrphanTellsThatItsHeirWasToStop", stoppedHeir, nothing},
	}
}

// stop asks, and returns the lease id of who is told.
func (b *bench) stop(r locking.StopRequest) string {
	b.Helper()
	if r.Lock == "" {
		r.Lock = lock
	}
	if r.Reason == "" {
		r.Reason = "wanted"
	}
	r.Permanent = true
	told := b.b.Stop(b.ctx, []locking.StopRequest{r})[0]
	if told.Err != nil {
		b.Fatal(told.Err)
	}
	return told.ID
}

// stops waits until the holder knows.
func (b *bench) stops(l *locking.Lease, reason string) {
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
		l := b.wins(b.a, locking.Request{Lease: renewing, Permanent: true, Trigger: trigger})
		if told := b.stop(locking.StopRequest{ID: l.ID(), Reason: "enough"}); told != l.ID() {
			b.Fatalf("told: %q", told)
		}
		b.stops(l, "enough")
		b.gets(b.b, locking.Request{Permanent: true}, locking.Held) // it is still held, until its holder has stopped
		b.release(l)
		b.release(b.wins(b.b, locking.Request{Permanent: true}))
	}
}

func messageTells(b *bench) {
	ctx, cancel := context.WithCancel(b.ctx)
	over := make(chan struct{})
	defer func() { cancel(); <-over }()
	go func() {
		defer close(over)
		b.a.Hear(ctx, func([]locking.Notice) {})
	}()
	l := b.wins(b.a, locking.Request{Permanent: true}) // which is not renewed during the test
	for told := time.Now(); l.StopReason() == "" && time.Since(told) < timeout; {
		b.stop(locking.StopRequest{ID: l.ID()}) // who does not listen yet hears the next one
		select {
		case <-l.Stopping():
		case <-time.After(10 * time.Millisecond):
		}
	}
	b.stops(l, "wanted")
	b.release(l)
}

func nobodyIsTold(b *bench) {
	l := b.wins(b.a, locking.Request{Permanent: true})
	b.release(l)
	for _, id := range []string{l.ID(), "stranger"} {
		if told := b.stop(locking.StopRequest{ID: id}); told != "" {
			b.Errorf("told: %q", told)
		}
	}
	again := b.wins(b.a, locking.Request{Permanent: true, Lease: renewing})
	time.Sleep(renewing / 2) // a renewal
	if why := again.StopReason(); why != "" {
		b.Errorf("the next holder is told to stop: %s", why)
	}
	b.release(again)
}

// room asks for a row for the n-th tick, which is due in a second.
func (b *bench) room(n, slots int) string {
	b.Helper()
	return b.stop(locking.StopRequest{Tick: b.tick(n).At, From: b.now().Add(time.Second), Slots: slots, Reason: "replaced"})
}

func oldestMakesRoom(b *bench) {
	b.known()
	two := func(c *locking.Client) *locking.Lease {
		return b.wins(c, locking.Request{Permanent: true, Trigger: "test", Slots: 2})
	}
	first := two(b.a)
	if told := b.room(1, 2); told != "" {
		b.Fatalf("a row is free, and told is %q", told)
	}
	second := two(b.b)
	for range 2 {
		if told := b.room(1, 2); told != first.ID() {
			b.Fatalf("told: %q, want the oldest", told)
		}
	}
	if told := b.room(2, 2); told != second.ID() {
		b.Errorf("another tick: %q, want the other run", told)
	}
	b.release(first)
	if told := b.room(1, 2); told != "" {
		b.Errorf("there is room, and told is %q", told)
	}
	b.release(two(b.a))
	b.release(second)
}

func youngerStays(b *bench) {
	b.known()
	l := b.wins(b.a, locking.Request{Permanent: true, Trigger: "test"})
	if told := b.stop(locking.StopRequest{Tick: b.tick(1).At, From: b.tick(1).At, Slots: 1}); told != "" {
		b.Errorf("told: %q", told)
	}
	b.release(l)
	l = b.wins(b.a, locking.Request{Tick: b.tick(1), Trigger: "test"})
	if told := b.room(1, 1); told != "" {
		b.Errorf("for a tick that is decided: %q", told)
	}
	b.release(l)
}

func stopsAnyway(b *bench) {
	b.known()
	var runs []*locking.Lease
	for range 2 {
		runs = append(runs, b.wins(b.a, locking.Request{Permanent: true, Trigger: "test", Slots: 2, Lease: renewing}))
	}
	b.stop(locking.StopRequest{ID: runs[1].ID(), Reason: "user"})
	for range 2 {
		if told := b.room(1, 2); told != runs[1].ID() {
			b.Errorf("told: %q, want the one that stops anyway", told)
		}
	}
	b.stops(runs[1], "user")
	if why := runs[0].StopReason(); why != "" {
		b.Errorf("the other is told to stop: %s", why)
	}
	b.release(runs[0])
	b.release(runs[1])
}

// stoppedOrphan has holders die that were told to stop, or leave their runs: whoever sees what they leave knows.
func stoppedOrphan(b *bench) {
	b.known()
	for n, ends := range []func(l *locking.Lease){
		b.expire,
		b.leave,
		func(l *locking.Lease) { b.expire(l); b.state(); _ = l.Leave(b.ctx, 1) },
	} {
		l := b.wins(b.a, locking.Request{Tick: b.tick(n + 1), Trigger: "test"})
		b.stop(locking.StopRequest{ID: l.ID(), Reason: "for good"})
		ends(l)
		if s := b.state(); len(s.Orphans) != 1 || s.Orphans[0].Stopped != "for good" || s.Orphans[0].Slot != 0 || s.Orphans[0].ID != l.ID() {
			b.Fatalf("orphans: %+v", s.Orphans)
		}
		heir := b.wins(b.a, adoption(l.ID())) // who wants to may still have it
		if s := b.state(); heir.Attempt() != 2 || len(s.Orphans) != 0 {
			b.Fatalf("attempt %d, orphans: %+v", heir.Attempt(), s.Orphans)
		}
		if err := heir.GiveBack(b.ctx); err != nil {
			b.Fatal(err)
		}
		if s := b.state(); len(s.Orphans) != 1 || s.Orphans[0].Stopped != "for good" {
			b.Fatalf("orphans: %+v", s.Orphans)
		}
		if err := b.b.Bury(b.ctx, lock, l.ID()); err != nil {
			b.Fatal(err)
		}
	}
	l := b.wins(b.a, locking.Request{Tick: b.tick(4), Trigger: "test"})
	b.expire(l)
	if s := b.state(); len(s.Orphans) != 1 || s.Orphans[0].Stopped != "" {
		b.Errorf("the next one in the slot: %+v", s.Orphans)
	}
}

// stoppedHeir has heirs give back what they were told to stop before it began: the next one knows, and of several reasons the first.
func stoppedHeir(b *bench) {
	b.known()
	for n, tc := range []struct{ holder, heir, want string }{
		{"", "enough", "enough"},
		{"for good", "enough", "for good"},
		{"", "", ""},
	} {
		l := b.wins(b.a, locking.Request{Tick: b.tick(n + 1), Trigger: "test"})
		if tc.holder != "" {
			b.stop(locking.StopRequest{ID: l.ID(), Reason: tc.holder})
		}
		b.leave(l)
		heir := b.wins(b.a, adoption(l.ID()))
		if tc.heir != "" {
			b.stop(locking.StopRequest{ID: heir.ID(), Reason: tc.heir})
		}
		if err := heir.GiveBack(b.ctx); err != nil {
			b.Fatal(err)
		}
		if s := b.state(); len(s.Orphans) != 1 || s.Orphans[0].Stopped != tc.want || s.Orphans[0].ID != l.ID() || s.Orphans[0].Attempt != 1 {
			b.Errorf("holder told %q, heir %q; orphans: %+v", tc.holder, tc.heir, s.Orphans)
		}
		if err := b.b.Bury(b.ctx, lock, l.ID()); err != nil {
			b.Fatal(err)
		}
	}
}

// heirMakesRoom for a tick between that of the run which it carries on and its own grant.
func heirMakesRoom(b *bench) {
	b.known()
	l := b.wins(b.a, locking.Request{Tick: b.tick(1), Trigger: "test"})
	b.leave(l)
	heir := b.wins(b.a, adoption(l.ID()))
	for n, want := range map[int]string{1: "", 2: heir.ID()} {
		if told := b.stop(locking.StopRequest{Tick: b.tick(n).At, From: b.tick(2).At, Slots: 1}); told != want {
			b.Errorf("for tick %d told: %q, want %q", n, told, want)
		}
	}
	b.release(heir)
}
