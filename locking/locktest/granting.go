package locktest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/locking"
)

func granting() []theorem {
	return []theorem{
		{"HeldLockTellsWhoAndUntilWhen", heldLockTells, nothing},
		{"EarlyClaimIsToldHowLong", earlyClaim, nothing},
		{"EarlyClaimAnnouncesItsSchedule", earlyAnnouncement, nothing},
		{"NoTickIsGrantedBeforeItsInstantWhateverTheClaimantSays", neverBeforeTheTick, nothing},
		{"LateRequestIsRefused", lateRequest, nothing},
		{"SameIDGivesSameGrant", sameID, nothing},
		{"ReleasedIDStaysDead", releasedID, nothing},
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
	l := b.wins(b.a, locking.Request{})
	a := b.gets(b.b, locking.Request{}, locking.Held)
	row := b.state().Rows[0]
	if a.Holder != "a" || !b.same(a.Until, row.Expiry) || a.Lease != nil {
		b.Errorf("held by %q until %v, want a until %v", a.Holder, a.Until, row.Expiry)
	}
	b.release(l)
	b.wins(b.b, locking.Request{})
}

func earlyClaim(b *bench) {
	at := b.now().Truncate(time.Second).Add(2 * time.Second)
	b.look(b.a, locking.LookRequest{Permanent: true, Schedule: schedule})
	r := locking.Request{Tick: &locking.Tick{At: at, Previous: at.Add(-time.Second), Schedule: schedule}}
	if a := b.gets(b.a, r, locking.Early); !a.Until.Equal(at) {
		b.Fatalf("early until %v, want %v", a.Until, at)
	}
	for {
		a := b.ask(b.a, r)
		if a.Verdict == locking.Early {
			b.waitUntil(a.Until)
			continue
		}
		b.wants(a, locking.Granted)
		if granted := time.UnixMicro(int64(a.Lease.Token())); granted.Before(at) {
			b.Fatalf("granted at %v, before %v", granted, at)
		}
		return
	}
}

// earlyAnnouncement: a schedule that the lock does not know begins with the claim that names it, not with the first that is in time, whose tick would be decided then.
func earlyAnnouncement(b *bench) {
	for _, schedule := range []string{"new", "edited"} {
		at := b.now().Truncate(time.Second).Add(2 * time.Second)
		tick := &locking.Tick{At: at, Previous: at.Add(-time.Second), Schedule: schedule}
		b.gets(b.a, locking.Request{Tick: tick}, locking.Early)
		before := &locking.Tick{At: at.Add(-4 * time.Second), Previous: at.Add(-5 * time.Second), Schedule: schedule}
		b.gets(b.b, locking.Request{Tick: before}, locking.Decided)
		a := b.ask(b.b, locking.Request{Tick: tick})
		for ; a.Verdict == locking.Early; a = b.ask(b.b, locking.Request{Tick: tick}) {
			b.waitUntil(a.Until)
		}
		b.wants(a, locking.Granted)
		b.release(a.Lease)
	}
}

func neverBeforeTheTick(b *bench) {
	at := b.now().Truncate(time.Second).Add(time.Hour)
	b.gets(b.a, locking.Request{Tick: &locking.Tick{
		At: at, Previous: at.Add(-time.Second), Schedule: schedule, NotBefore: at.Add(-2 * time.Hour),
	}}, locking.Early)
}

func lateRequest(b *bench) {
	b.release(b.wins(b.a, locking.Request{ID: "first"}))
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
	if rows := b.state().Rows; len(rows) != 0 {
		b.Errorf("it was granted: %v", rows)
	}
}

func sameID(b *bench) {
	b.known()
	r := locking.Request{ID: "one", Slots: 2, AnyLimit: true, Tick: b.tick(1)}
	first := b.wins(b.a, r)
	if again := b.wins(b.a, r); again != first {
		b.Error("asked again, the client made a second lease of the same grant")
	}
	other := b.wins(b.b, r)
	if other.Token() != first.Token() || other.Slot() != first.Slot() || !other.Tick().Equal(first.Tick()) || other.Attempt() != 1 {
		b.Errorf("granted slot %d, token %d, then slot %d, token %d", first.Slot(), first.Token(), other.Slot(), other.Token())
	}
	if n := len(b.state().Rows); n != 1 {
		b.Errorf("%d rows are held", n)
	}
}

func releasedID(b *bench) {
	b.release(b.wins(b.a, locking.Request{ID: "one"}))
	for _, c := range []*locking.Client{b.a, b.b} {
		if a := b.gets(c, locking.Request{ID: "one"}, locking.Unknown); !errors.Is(a.Err, locking.ErrReleased) || errors.Is(a.Err, locking.ErrUnknown) {
			b.Errorf("a released id got %v", a.Err)
		}
	}
	b.wins(b.a, locking.Request{ID: "two"})
}

func endedLease(b *bench) {
	b.known()
	l := b.wins(b.a, locking.Request{ID: "one", Tick: b.tick(1)})
	b.expire(l)
	b.gets(b.b, locking.Request{ID: "one", Tick: b.tick(1)}, locking.Decided)
	plain := b.wins(b.a, locking.Request{ID: "two"})
	b.expire(plain)
	if next := b.wins(b.b, locking.Request{ID: "two"}); next.Token() <= plain.Token() {
		b.Errorf("token %d after %d", next.Token(), plain.Token())
	}
}

func slowRenewal(b *bench) {
	l := b.wins(b.a, locking.Request{ID: "one", Lease: renewing})
	renewal := b.renewal("one")
	if verdict, _ := b.again(renewal); verdict != "renewed" {
		b.Fatalf("renewal sent again: %q", verdict)
	}
	b.release(l)
	b.gone(l)
	if verdict, _ := b.again(renewal); verdict != "lost" {
		b.Errorf("renewal after the release: %q", verdict)
	}
	b.wins(b.b, locking.Request{})
}

func releaseOfALostLease(b *bench) {
	l := b.wins(b.a, locking.Request{})
	b.expire(l)
	b.wins(b.b, locking.Request{})
	if err := l.Release(b.ctx); !errors.Is(err, locking.ErrLost) {
		b.Errorf("release: %v, want ErrLost", err)
	}
	if !b.onQuorum() { // where the keeper may have heard of it before
		b.ends(l, locking.ErrReleased)
	}
	b.gets(b.a, locking.Request{}, locking.Held)
}

func repeatedRelease(b *bench) {
	l := b.wins(b.a, locking.Request{ID: "one"})
	if b.onQuorum() {
		b.everywhere(l)
	}
	b.release(l)
	b.gone(l)
	if verdict, _ := b.again(b.releaseOf("one")); verdict != "released" {
		b.Errorf("release sent again by a client that lost the reply: %q", verdict)
	}
}

func lowestSlot(b *bench) {
	r := locking.Request{Slots: 3}
	leases := []*locking.Lease{b.wins(b.a, r), b.wins(b.b, r), b.wins(b.a, r)}
	for want, l := range leases {
		if l.Slot() != want {
			b.Errorf("slot %d, want %d", l.Slot(), want)
		}
	}
	b.gets(b.a, r, locking.Held)
	b.release(leases[1])
	if l := b.wins(b.b, r); l.Slot() != 1 {
		b.Errorf("slot %d, want 1", l.Slot())
	}
}

func limitMismatch(b *bench) {
	b.wins(b.a, locking.Request{Slots: 2})
	if a := b.gets(b.b, locking.Request{Slots: 3}, locking.Unknown); !errors.Is(a.Err, locking.ErrLimit) || errors.Is(a.Err, locking.ErrUnknown) {
		b.Errorf("another limit got %v", a.Err)
	}
	b.gets(b.b, locking.Request{Slots: 1, AnyLimit: true}, locking.Held)
	b.wins(b.b, locking.Request{Slots: 3, AnyLimit: true})
}

func abstainer(b *bench) {
	b.gets(b.a, locking.Request{Abstain: true}, locking.Held)
	b.known()
	b.gets(b.a, locking.Request{Abstain: true, Tick: b.tick(1)}, locking.Held)
	b.wins(b.b, locking.Request{Tick: b.tick(1)})
}

func rowsTell(b *bench) {
	b.known()
	memo := "first line\n\nthird; 5 4 done x\n"
	l := b.wins(b.a, locking.Request{ID: "id", Slots: 2, AnyLimit: true, Tick: b.tick(1), Trigger: "schedule", Memo: memo})
	rows := b.state().Rows
	if len(rows) != 1 {
		b.Fatalf("%d rows", len(rows))
	}
	expiry := rows[0].Expiry
	rows[0].Expiry = time.Time{}
	want := locking.Row{ID: "id", Owner: "a", Slot: 0, Token: l.Token(), Length: long, Tick: b.tick(1).At, Attempt: 1,
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
		l := b.wins(b.a, locking.Request{Lock: name})
		b.gets(b.b, locking.Request{Lock: name}, locking.Held)
		b.release(l)
	}
	for _, name := range []string{"", "a{b", "a}b", "{}", "{a}{b}", "{a{b}}", "}a{", "{orders}:ledger", "{orders}:dead:x"} {
		a := b.b.Acquire(b.ctx, locking.Request{Lock: name})
		b.wants(a, locking.Unknown)
		if a.Err == nil || errors.Is(a.Err, locking.ErrUnknown) {
			b.Errorf("lock %q: %v", name, a.Err)
		}
		if s := b.b.Look(b.ctx, []locking.LookRequest{{Lock: name}})[0]; s.Err == nil || errors.Is(s.Err, locking.ErrUnknown) {
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
	leases := map[int]*locking.Lease{}
	for range granted {
		l := b.wins(b.a, locking.Request{Slots: rows})
		leases[l.Slot()] = l
	}
	b.gets(b.b, locking.Request{Slots: rows}, locking.Held)
	if n := len(b.state().Rows); len(leases) != granted || n != rows {
		b.Errorf("%d slots granted, %d rows held", len(leases), n)
	}
	b.release(leases[rows-3])
	if l := b.wins(b.b, locking.Request{Slots: rows}); l.Slot() != rows-3 {
		b.Errorf("slot %d, want %d", l.Slot(), rows-3)
	}
}
