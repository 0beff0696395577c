package locktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/locking"
)

func waiting() []theorem {
	return []theorem{
		{"ReleaseHandsTheRowToTheFirstInLine", firstInLine, queue}, // Promise: P3
		{"NewcomerPassesNobody", newcomer, queue},                  // Promise: P3
		{"CancelledWaiterNeverHolds", cancelled, queue},            // Promise: P3
		{"WaiterThatIsGrantedAndCancelledPassesItOn", grantedAndCancelled, queue},
		{"DeadWaiterIsDropped", deadWaiter, queue},
		{"UnconfirmedGrantIsPassedOn", unconfirmed, queue}, // Promise: P9
		{"ExpiredRowGoesToTheFirstInLine", expiredRow, queue},
		{"SemaphoreHandsOutItsRowsInOrder", rowsInOrder, queue},
		{"ForgottenQueueIsLinedUpAgain", forgottenQueue, queue},
		{"WaiterThatWantsAnotherLimitIsRefused", otherLimit, queue},
		{"WaitersOfAForgottenLockThatWantOtherLimitsAreRefused", limitsAfterForgetting, queue}, // Promise: P3
		{"QueueLeavesNothingBehind", nothingLeft, queue},
		{"ManyWaitersAreServedInTurns", manyWaiters, queue},
		{"WaiterHasNoSlotBeyondItsOwnNumber", fewerSlots, queue},
	}
}

func queueKey(b *bench) string { return b.base() + ":queue" }

// attempt is a call of Lock that goes on.
type attempt struct {
	cancel context.CancelFunc
	lease  chan holding
	err    chan error
}

// lines up a waiter and returns when it is in the queue.
func linesUp(b *bench, c *locking.Client, slots int, options ...locking.Option) *attempt {
	b.Helper()
	before := inLine(b)
	a := waits(b, c, slots, options...)
	eventually(b, "it is in line", func() bool { return inLine(b) > before })
	return a
}

func waits(b *bench, c *locking.Client, slots int, options ...locking.Option) *attempt {
	ctx, cancel := context.WithCancel(b.ctx)
	b.Cleanup(cancel)
	a := &attempt{cancel, make(chan holding, 1), make(chan error, 1)}
	go func() {
		l, err := c.Semaphore(lock, slots, append(options, locking.WithLease(long))...).Acquire(ctx)
		if err != nil {
			a.err <- err
			return
		}
		a.lease <- l
	}()
	return a
}

func inLine(b *bench) int64 {
	b.Helper()
	n, err := b.rdb.ZCard(b.ctx, queueKey(b)).Result()
	if err != nil {
		b.Fatal(err)
	}
	return n
}

func grantOf(b *bench, a *attempt) holding {
	b.Helper()
	select {
	case l := <-a.lease:
		return l
	case err := <-a.err:
		b.Fatal(err)
	case <-time.After(timeout):
		b.Fatalf("not granted within %v", timeout)
	}
	return nil
}

// stillWaits fails the test if a waiter has an answer.
func stillWaits(b *bench, a *attempt) {
	b.Helper()
	select {
	case l := <-a.lease:
		b.Fatalf("granted: slot %d, token %d", l.Slot(), l.Token())
	case err := <-a.err:
		b.Fatal(err)
	default:
	}
}

func failsWith(b *bench, a *attempt, want error) {
	b.Helper()
	select {
	case l := <-a.lease:
		b.Fatalf("granted: slot %d, token %d", l.Slot(), l.Token())
	case err := <-a.err:
		if !errors.Is(err, want) {
			b.Fatalf("%v, want %v", err, want)
		}
	case <-time.After(timeout):
		b.Fatalf("no answer within %v", timeout)
	}
}

func firstInLine(b *bench) {
	var last holding = b.wins(b.a, lease.Request{})
	var line []*attempt
	for i := range 5 {
		c := []*locking.Client{b.a, b.b}[i%2]
		line = append(line, linesUp(b, c, 1))
	}
	for i, a := range line {
		for _, later := range line[i:] {
			stillWaits(b, later)
		}
		b.release(last)
		next := grantOf(b, a)
		if next.Token() <= last.Token() {
			b.Errorf("token %d after %d", next.Token(), last.Token())
		}
		if rows := b.state().Running; len(rows) != 1 || rows[0].ID != next.ID() {
			b.Errorf("the lock has %v", rows)
		}
		last = next
	}
	confirmed(b, last)
	b.release(last)
}

// confirmed waits until a row that another's script has granted has its holder's whole lease.
func confirmed(b *bench, l holding) {
	b.Helper()
	eventually(b, "the holder has confirmed", func() bool {
		return slices.ContainsFunc(b.state().Running, func(r lease.Row) bool {
			return r.ID == l.ID() && r.Expires.Sub(b.now()) > long/2
		})
	})
	select {
	case <-l.Confirmed():
	case <-time.After(timeout):
		b.Fatal("the holder does not know")
	}
	if left := l.Remaining(); left < long/2 {
		b.Errorf("confirmed, and %v left", left)
	}
	select {
	case <-l.Endangered():
		b.Error("warned of a loss")
	default:
	}
}

func newcomer(b *bench) {
	held := b.wins(b.a, lease.Request{})
	a := linesUp(b, b.b, 1)
	b.gets(b.a, lease.Request{}, lease.Held)
	b.expire(held) // the one in line has no message yet
	b.gets(b.client("newcomer"), lease.Request{}, lease.Held)
	b.release(grantOf(b, a))
	b.release(b.wins(b.client("later"), lease.Request{}))
}

func cancelled(b *bench) {
	held := b.wins(b.a, lease.Request{})
	gone := linesUp(b, b.b, 1)
	first, err := b.rdb.ZRange(b.ctx, queueKey(b), 0, 0).Result()
	if err != nil || len(first) != 1 {
		b.Fatal(first, err)
	}
	next := linesUp(b, b.b, 1)
	gone.cancel()
	failsWith(b, gone, context.Canceled)
	patient := redis.ZAddArgs{XX: true, Members: []redis.Z{{Score: float64(time.Now().Add(30 * time.Minute).UnixMicro()), Member: first[0]}}} // it is not dropped for its silence
	if err := b.rdb.ZAddArgs(b.ctx, b.base()+":patience", patient).Err(); err != nil {
		b.Fatal(err)
	}
	eventually(b, "it is out of the line", func() bool { return inLine(b) == 1 })
	b.release(held)
	b.release(grantOf(b, next))
}

// The server has granted the row, and the waiter that is told of it has given up.
func grantedAndCancelled(b *bench) {
	held := b.wins(b.a, lease.Request{})
	gone, next := linesUp(b, b.b, 1), linesUp(b, b.a, 1)
	gone.cancel()
	b.release(held)
	select {
	case l := <-gone.lease: // it was told before it heard of its end
		b.release(l)
	case err := <-gone.err:
		if !errors.Is(err, context.Canceled) {
			b.Error(err)
		}
	}
	b.release(grantOf(b, next))
}

// leaves makes a waiter whose process is gone without a word: one that leaves has asked in its name, too.
func leaves(b *bench, options ...locking.Option) {
	b.Helper()
	lastWords(b, 1, options...)("dead")
}

// lastWords is what a client that is closed has said to wait, for others to say.
func lastWords(b *bench, slots int, options ...locking.Option) (say func(id string)) {
	b.Helper()
	c := b.client("dead")
	a := linesUp(b, c, slots, options...)
	own := b.rdb.ZRange(b.ctx, queueKey(b), -1, -1).Val()[0]
	call := slices.Clone(b.await(own, 1))
	if err := c.Close(); err != nil {
		b.Fatal(err)
	}
	failsWith(b, a, locking.ErrClosed)
	if n := inLine(b); n != 0 {
		b.Errorf("%d in line behind a client that has closed", n)
	}
	return func(id string) {
		b.Helper()
		said := slices.Clone(call)
		for i, arg := range said {
			if text, ok := arg.(string); ok {
				said[i] = strings.ReplaceAll(text, own, id)
			}
		}
		if verdict, _ := b.again(said); verdict != "queued" && verdict != "closed" {
			b.Fatalf("it was told %q", verdict)
		}
	}
}

func deadWaiter(b *bench) {
	held := b.wins(b.a, lease.Request{})
	leaves(b)
	next := linesUp(b, b.b, 1)
	if n := inLine(b); n != 2 {
		b.Fatalf("%d in line", n)
	}
	dead, err := b.rdb.ZRange(b.ctx, queueKey(b), 0, 0).Result()
	if err == nil { // its patience has run out
		err = b.rdb.ZAdd(b.ctx, b.base()+":patience", redis.Z{Score: 1, Member: dead[0]}).Err()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.release(held)
	if rows := b.state().Running; len(rows) != 1 || rows[0].ID == dead[0] {
		b.Errorf("granted to the dead: %v", rows)
	}
	b.release(grantOf(b, next))
}

func unconfirmed(b *bench) {
	held := b.wins(b.a, lease.Request{})
	leaves(b)
	next := linesUp(b, b.b, 1)
	b.release(held)
	stillWaits(b, next)
	b.release(grantOf(b, next))
}

func expiredRow(b *bench) {
	held := b.wins(b.a, lease.Request{})
	first, second := linesUp(b, b.b, 1), linesUp(b, b.b, 1)
	b.expire(held)
	l := grantOf(b, first)
	stillWaits(b, second)
	b.release(l)
	b.release(grantOf(b, second))
}

func rowsInOrder(b *bench) {
	two := []holding{b.wins(b.a, lease.Request{Slots: 2}), b.wins(b.a, lease.Request{Slots: 2})}
	line := []*attempt{linesUp(b, b.b, 2), linesUp(b, b.a, 2), linesUp(b, b.b, 2)}
	b.release(two[1])
	first := grantOf(b, line[0])
	if first.Slot() != two[1].Slot() {
		b.Errorf("slot %d, want the one that was released, %d", first.Slot(), two[1].Slot())
	}
	stillWaits(b, line[1])
	b.release(two[0])
	second := grantOf(b, line[1])
	stillWaits(b, line[2])
	b.release(first)
	third := grantOf(b, line[2])
	if rows := b.state().Running; len(rows) != 2 || second.Slot() == third.Slot() {
		b.Errorf("the lock has %v", rows)
	}
}

func forgottenQueue(b *bench) {
	held := b.wins(b.a, lease.Request{})
	a := linesUp(b, b.b, 1)
	b.forget()
	forgetQueue(b)
	_ = held.Release(b.ctx) // its row is not there
	b.open()
	eventually(b, "it lines up again, or holds", func() bool { return inLine(b) > 0 || len(b.state().Running) > 0 })
	b.open()
	b.release(grantOf(b, a))
}

func forgetQueue(b *bench) {
	b.Helper()
	if err := b.rdb.Del(b.ctx, queueKey(b), b.base()+":patience").Err(); err != nil {
		b.Fatal(err)
	}
}

func nothingLeft(b *bench) {
	held := b.wins(b.a, lease.Request{})
	a := linesUp(b, b.b, 1)
	b.release(held)
	b.release(grantOf(b, a))
	for field := range fieldsOf(b, b.base()) {
		if field[0] == 'w' || field[0] == 'i' || field[0] == 'r' || field[0] == 'e' {
			b.Errorf("field %s", field)
		}
	}
	for _, part := range []string{":queue", ":patience"} {
		if n, err := b.rdb.Exists(b.ctx, b.base()+part).Result(); n != 0 || err != nil {
			b.Errorf("key %s is there, %v", part, err)
		}
	}
}

// fieldsOf are what the server has of a lock, but for one that is compact: that is free, or it is a field by itself.
func fieldsOf(b *bench, key string) map[string]string {
	if text, err := b.rdb.Get(b.ctx, key).Result(); err == nil {
		if strings.Contains(text, " 0 ") {
			return nil
		}
		return map[string]string{"row": text}
	}
	fields, err := b.rdb.HGetAll(b.ctx, key).Result()
	if err != nil {
		b.Fatal(err)
	}
	return fields
}

// A script can write only so much at once: the rest of a long line is served by those who come next.
func manyWaiters(b *bench) {
	const waiters, slots = 1200, 1000
	held := b.wins(b.a, lease.Request{Slots: slots})
	pipe := b.rdb.Pipeline()
	for i := range waiters {
		id := fmt.Sprint("faked-", i)
		pipe.HSet(b.ctx, b.base(), "w"+id, fmt.Sprintf("owner\n%d\n%d\n0\n:nobody", long.Microseconds(), slots))
		pipe.ZAdd(b.ctx, queueKey(b), redis.Z{Score: float64(i), Member: id})
		pipe.ZAdd(b.ctx, b.base()+":patience", redis.Z{Score: float64(time.Now().Add(time.Minute).UnixMicro()), Member: id})
	}
	if _, err := pipe.Exec(b.ctx); err != nil {
		b.Fatal(err)
	}
	b.release(held)
	rows := b.state().Running
	granted := 0 // rows that no holder confirms are gone after a moment; the token of a slot stays
	for field := range fieldsOf(b, b.base()) {
		if strings.HasPrefix(field, "t") {
			granted++
		}
	}
	if n := inLine(b); granted == 0 || granted+int(n) != waiters {
		b.Errorf("%d granted, %d in line", granted, n)
	}
	for _, r := range rows {
		if r.Holder != "owner" {
			b.Fatalf("a row without its holder: %+v", r)
		}
	}
}

func otherLimit(b *bench) {
	b.wins(b.a, lease.Request{})
	failsWith(b, waits(b, b.b, 2), locking.ErrLimit)
	if n := inLine(b); n != 0 {
		b.Errorf("%d in line", n)
	}
}

// The number of slots is lost when the server forgets a lock: the number of the first that gets one counts, for
// those that line up meanwhile, too.
func limitsAfterForgetting(b *bench) {
	b.release(b.wins(b.a, lease.Request{}))
	b.forget()
	first := linesUp(b, b.a, 2)
	other, second, third := linesUp(b, b.b, 3), linesUp(b, b.b, 2), linesUp(b, b.b, 2)
	b.open()
	grantOf(b, first)
	failsWith(b, other, locking.ErrLimit)
	l := grantOf(b, second)
	stillWaits(b, third)
	b.release(l)
	grantOf(b, third)
}

// Clients of a pool whose number of slots is being lowered.
func fewerSlots(b *bench) {
	three := []holding{b.wins(b.a, lease.Request{Slots: 3}), b.wins(b.a, lease.Request{Slots: 3}), b.wins(b.a, lease.Request{Slots: 3})}
	a := linesUp(b, b.b, 2, locking.WithAnyLimit())
	b.release(three[2])
	stillWaits(b, a)
	b.release(three[0])
	if l := grantOf(b, a); l.Slot() != 0 {
		b.Errorf("slot %d", l.Slot())
	}
}
