package locktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/locking"
)

func several() []theorem {
	return []theorem{
		{"SetIsGrantedTogether", setGranted, sets},
		{"SetIsGrantedAsAWholeOrNotAtAll", setRefused, sets}, // Promise: P3
		{"SetAskedForAgainIsTheSameGrant", setAgain, sets},
		{"RefusedSetStaysDead", setStaysDead, sets}, // Promise: P3
		{"SetOfWhichOneWasLostMeanwhileIsNotGrantedAgain", setPartlyLost, sets},
		{"RequestThatArrivesTwiceTakesNothingFromItsHolder", setPartlyReleased, sets},
		{"SetThatFailsHalfwayIsRolledBack", setFailsHalfway, sets},
		{"SetPassesNoWaiter", setPassesNobody, sets},
		{"RolledBackRowGoesToTheFirstInLine", setHandsOn, sets},
		{"WaitingSetIsGrantedWhenItsLocksAreFree", setWaits, sets},
		{"SetOfAForgottenLockStaysClosed", setForgotten, sets},
		{"SetWithAnotherLimitIsRefused", setOtherLimit, sets},
		{"SetLeavesNothingBehind", setLeavesNothing, sets},
		{"OverlappingSetsExcludeEachOtherWithoutADeadlock", philosophers, sets},
	}
}

// member is the name of one of the locks that sets of the bench are made of. The first is the bench's own in another guise.
func member(n int) string { return locking.Tagged("set", fmt.Sprint(n)) }

func set3(b *bench, c *locking.Client) *locking.MultiLock {
	return c.MultiLock(member(3), member(1), member(2)).With(locking.WithLease(long))
}

func locksAll(b *bench, s *locking.MultiLock) *locking.LeaseSet {
	b.Helper()
	leases, ok, err := s.TryLock(b.ctx)
	if err != nil || !ok {
		b.Fatalf("granted: %v, %v", ok, err)
	}
	return leases
}

func setIsRefused(b *bench, s *locking.MultiLock) {
	b.Helper()
	if leases, ok, err := s.TryLock(b.ctx); leases != nil || ok || err != nil {
		b.Fatalf("granted: %v, %v", ok, err)
	}
}

func releaseAll(b *bench, leases *locking.LeaseSet) {
	b.Helper()
	if err := leases.Release(b.ctx); err != nil {
		b.Fatal(err)
	}
}

// holders are the lease ids in the rows of the members.
func holders(b *bench) (ids []string) {
	b.Helper()
	for n := 1; n <= 3; n++ {
		id := ""
		for _, row := range b.look(b.a, lease.InspectRequest{Lock: member(n)}).Running {
			id += row.ID
		}
		ids = append(ids, id)
	}
	return ids
}

func noneHeld(b *bench) {
	b.Helper()
	if ids := holders(b); !slices.Equal(ids, []string{"", "", ""}) {
		b.Fatalf("the rows are held by %q", ids)
	}
}

func setGranted(b *bench) {
	leases := locksAll(b, set3(b, b.a))
	tokens := leases.Tokens()
	for n, id := range holders(b) {
		l := leases.Lease(member(n + 1))
		if l == nil || l.ID() != id || tokens[member(n+1)] != l.Token() {
			b.Errorf("%s is held by %q, lease %+v, tokens %v", member(n+1), id, l, tokens)
		}
		b.gets(b.b, lease.Request{Lock: member(n + 1)}, lease.Held)
	}
	if len(tokens) != 3 || leases.Lease("other") != nil || leases.Context().Err() != nil || leases.Remaining() <= 0 {
		b.Errorf("tokens %v", tokens)
	}
	releaseAll(b, leases)
	noneHeld(b)
	if cause := context.Cause(leases.Context()); !errors.Is(cause, locking.ErrReleased) {
		b.Error(cause)
	}
	for name, token := range locksAll(b, set3(b, b.b)).Tokens() {
		if token <= tokens[name] {
			b.Errorf("%s: token %d after %d", name, token, tokens[name])
		}
	}
}

func setRefused(b *bench) {
	for n := 1; n <= 3; n++ {
		held := b.wins(b.b, lease.Request{Lock: member(n)})
		setIsRefused(b, set3(b, b.a))
		want := []string{"", "", ""}
		want[n-1] = held.ID()
		if ids := holders(b); !slices.Equal(ids, want) {
			b.Errorf("the rows are held by %q, want %q", ids, want)
		}
		b.release(held)
	}
	releaseAll(b, locksAll(b, set3(b, b.a)))
}

// resend sends a call for a set once more, as it was.
func resend(b *bench, args []any) (verdict string) {
	b.Helper()
	verdict, _ = b.again(args)
	return verdict
}

// lastCall is the newest call for a set, nil if there was none.
func lastCall(b *bench) []any {
	b.sent.mu.Lock()
	defer b.sent.mu.Unlock()
	for _, args := range slices.Backward(b.sent.calls) {
		if keys := args[2].(int); keys > 7 { // more than a lock has
			return args
		}
	}
	return nil
}

func setAgain(b *bench) {
	leases := locksAll(b, set3(b, b.a))
	before := holders(b)
	call := lastCall(b)
	if v := resend(b, call); v != "granted" || !slices.Equal(holders(b), before) {
		b.Errorf("again: %s, rows of %q, before of %q", v, holders(b), before)
	}
	releaseAll(b, leases)
	if v := resend(b, call); v != "refused" {
		b.Errorf("after the release: %s", v)
	}
	noneHeld(b)
}

func setStaysDead(b *bench) {
	for n := 1; n <= 3; n++ {
		held := b.wins(b.b, lease.Request{Lock: member(n)})
		setIsRefused(b, set3(b, b.a))
		b.release(held)
		if v := resend(b, lastCall(b)); v != "refused" {
			b.Errorf("refused because of lock %d, and later %s", n, v)
		}
		noneHeld(b)
	}
}

func setPartlyLost(b *bench) {
	for n := 1; n <= 3; n++ {
		leases := locksAll(b, set3(b, b.a))
		expireIn(b, member(n), leases.Lease(member(n)))
		other := b.wins(b.b, lease.Request{Lock: member(n)})
		if v := resend(b, lastCall(b)); v != "refused" {
			b.Errorf("asked again for what another holds: %s", v)
		}
		var want []string // the rest stays with its holder, which may be at work: this may be a request that arrives twice
		for i := 1; i <= 3; i++ {
			want = append(want, leases.Lease(member(i)).ID())
		}
		want[n-1] = other.ID()
		if ids := holders(b); !slices.Equal(ids, want) {
			b.Errorf("the rows are held by %q, want %q", ids, want)
		}
		b.release(other)
		_ = leases.Release(b.ctx)
	}
}

// A request that arrives a second time, when a part of the set was released and the rest is held, takes nothing from its holder.
func setPartlyReleased(b *bench) {
	for n := 1; n <= 3; n++ {
		leases := locksAll(b, set3(b, b.a))
		call := lastCall(b)
		b.release(leases.Lease(member(n)))
		if v := resend(b, call); v != "refused" {
			b.Errorf("again, after one was released: %s", v)
		}
		for i := 1; i <= 3; i++ {
			if held := len(b.look(b.b, lease.InspectRequest{Lock: member(i)}).Running); held != 1 && i != n || held != 0 && i == n {
				b.Errorf("lock %d was released, lock %d has %d rows", n, i, held)
			}
		}
		_ = leases.Release(b.ctx)
	}
}

// expireIn lets the lease of a lock end now by the server's clock.
func expireIn(b *bench, name string, l holding) {
	b.Helper()
	if err := b.rdb.HSet(b.ctx, b.prefix+name, fmt.Sprint("e", l.Slot()), 1).Err(); err != nil {
		b.Fatal(err)
	}
}

func setFailsHalfway(b *bench) {
	key := b.prefix + member(2)
	if err := b.rdb.Set(b.ctx, key, "something else", 0).Err(); err != nil {
		b.Fatal(err)
	}
	leases, ok, err := set3(b, b.a).TryLock(b.ctx)
	if leases != nil || ok || !errors.Is(err, locking.ErrUnknown) || !errors.Is(err, locking.ErrRefused) {
		b.Errorf("granted: %v, %v", ok, err)
	}
	for _, n := range []int{1, 3} {
		if rows := b.look(b.b, lease.InspectRequest{Lock: member(n)}).Running; len(rows) > 0 {
			b.Errorf("%s is held: %v", member(n), rows)
		}
	}
	if err := b.rdb.Del(b.ctx, key).Err(); err != nil {
		b.Fatal(err)
	}
	releaseAll(b, locksAll(b, set3(b, b.b)))
}

// The reply for a set teaches its client what that of each lock would have: also if it was refused.
func setForgotten(b *bench) {
	for _, refused := range []bool{false, true} {
		forgetMembers(b)
		observed := b.client("observer")
		if refused {
			b.wins(b.b, lease.Request{Lock: member(3)})
			setIsRefused(b, set3(b, observed))
		} else {
			locksAll(b, set3(b, observed))
		}
		forgetMembers(b)
		for n := 1; n <= 3; n++ {
			b.gets(observed, lease.Request{Lock: member(n)}, lease.Closed)
		}
		setIsRefused(b, set3(b, observed))
		noneHeld(b)
	}
}

func forgetMembers(b *bench) {
	b.Helper()
	for n := 1; n <= 3; n++ {
		key := b.prefix + member(n)
		if err := b.rdb.Del(b.ctx, key, key+":ledger").Err(); err != nil {
			b.Fatal(err)
		}
	}
}

func setOtherLimit(b *bench) {
	b.wins(b.b, lease.Request{Lock: member(2), Slots: 2})
	leases, ok, err := set3(b, b.a).TryLock(b.ctx)
	if leases != nil || ok || !errors.Is(err, locking.ErrLimit) {
		b.Fatalf("granted: %v, %v", ok, err)
	}
	if ids := holders(b); ids[0] != "" || ids[2] != "" {
		b.Errorf("the rows are held by %q", ids)
	}
}

func setLeavesNothing(b *bench) {
	held := b.wins(b.b, lease.Request{Lock: member(3)})
	setIsRefused(b, set3(b, b.a))
	b.release(held)
	releaseAll(b, locksAll(b, set3(b, b.a)))
	for n := 1; n <= 3; n++ {
		key := b.prefix + member(n)
		for field := range fieldsOf(b, key) {
			if strings.ContainsRune("wira", rune(field[0])) {
				b.Errorf("%s has the field %s", key, field)
			}
		}
		if ttl := b.rdb.PTTL(b.ctx, key).Val(); ttl <= 0 {
			b.Errorf("%s stays for %v", key, ttl)
		}
		for _, part := range []string{":queue", ":patience"} {
			if there, err := b.rdb.Exists(b.ctx, key+part).Result(); there != 0 || err != nil {
				b.Errorf("%s is there, %v", key+part, err)
			}
		}
	}
}

// Philosophers who take two forks at once never starve all together, and no fork is in two hands.
func philosophers(b *bench) {
	const seats, meals = 3, 5
	var hands [seats]atomic.Int32
	var dinner sync.WaitGroup
	for seat := range seats {
		c := b.client(fmt.Sprint("philosopher ", seat))
		left, right := seat, (seat+1)%seats
		dinner.Go(func() {
			for range meals {
				leases, err := c.MultiLock(member(left+1), member(right+1)).With(locking.WithLease(long)).Lock(b.ctx)
				if err != nil {
					b.Error(err)
					return
				}
				if hands[left].Add(1) != 1 || hands[right].Add(1) != 1 {
					b.Errorf("a fork of seat %d is in two hands", seat)
				}
				hands[left].Store(0)
				hands[right].Store(0)
				if err := leases.Release(b.ctx); err != nil {
					b.Error(err)
				}
			}
		})
	}
	dinner.Wait()
	noneHeld(b)
}

// Sets of locks beside those who wait for one of them, and in wait themselves.

// waitsFor lines up for a member by itself.
func waitsFor(b *bench, c *locking.Client, name string) chan holding {
	b.Helper()
	granted := make(chan holding, 1)
	go func() {
		l, err := c.Mutex(name, locking.WithLease(long)).Lock(b.ctx)
		if err != nil && b.ctx.Err() == nil {
			b.Error(err)
		}
		granted <- l
	}()
	eventually(b, "it is in line", func() bool {
		n, err := b.rdb.ZCard(b.ctx, b.prefix+name+":queue").Result()
		return n > 0 && err == nil
	})
	return granted
}

func receives(b *bench, granted chan holding) holding {
	b.Helper()
	return grantOf(b, &attempt{lease: granted})
}

func setPassesNobody(b *bench) {
	held := b.wins(b.b, lease.Request{Lock: member(2)})
	waiter := waitsFor(b, b.b, member(2))
	expireIn(b, member(2), held) // the one in line has no message yet
	setIsRefused(b, set3(b, b.a))
	l := receives(b, waiter)
	setIsRefused(b, set3(b, b.a))
	b.release(l)
	releaseAll(b, locksAll(b, set3(b, b.a)))
}

func setHandsOn(b *bench) {
	first := b.wins(b.b, lease.Request{Lock: member(1)})
	third := b.wins(b.b, lease.Request{Lock: member(3)})
	waiter := waitsFor(b, b.b, member(1))
	setIsRefused(b, set3(b, b.a))
	b.release(first)
	l := receives(b, waiter)
	setIsRefused(b, set3(b, b.a))
	b.release(l)
	b.release(third)
}

func setWaits(b *bench) {
	held := b.wins(b.b, lease.Request{Lock: member(2)})
	got := make(chan *locking.LeaseSet, 1)
	go func() {
		leases, err := set3(b, b.a).Lock(b.ctx)
		if err != nil {
			b.Error(err)
		}
		got <- leases
	}()
	eventually(b, "it was tried", func() bool { return lastCall(b) != nil })
	for n := 1; n <= 3; n += 2 { // it holds nothing while it waits
		l, err := b.b.Mutex(member(n), locking.WithLease(long)).Lock(b.ctx)
		if err != nil {
			b.Fatal(err)
		}
		b.release(l)
	}
	b.release(held)
	leases := <-got
	if leases == nil {
		return
	}
	if len(slices.DeleteFunc(holders(b), func(id string) bool { return id == "" })) != 3 {
		b.Errorf("the rows are held by %q", holders(b))
	}
	releaseAll(b, leases)
}
