package locking_test

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/locking"
)

// masters starts independent servers in this process.
func masters(t testing.TB, n int) (servers []*embedded.Server, clients []redis.UniversalClient) {
	t.Helper()
	servers = startServers(t, n)
	for _, s := range servers {
		c := redis.NewClient(&redis.Options{Addr: s.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1})
		t.Cleanup(func() { _ = c.Close() })
		clients = append(clients, c)
	}
	return servers, clients
}

func quorumOf(t testing.TB, clients []redis.UniversalClient) *locking.Client {
	t.Helper()
	c, err := locking.New(locking.Config{Quorum: clients, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// deaf lets no write-back of the register through.
type deaf struct{}

func (deaf) DialHook(next redis.DialHook) redis.DialHook { return next }
func (deaf) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (deaf) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 3 && args[0] == "evalsha" && args[2] == 4 { // the only script of four keys
			<-ctx.Done() // after the others have answered
			cmd.SetErr(ctx.Err())
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

// A grant that only a minority has does not count.
// Promise: P1, quorum
func TestQuorumGrantNeedsTheLedgerOnAMajority(t *testing.T) {
	_, clients := masters(t, 5)
	for _, c := range clients[:3] {
		c.AddHook(deaf{})
	}
	c, err := locking.New(locking.Config{Quorum: clients, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if a := c.Engine().Acquire(t.Context(), lease.Request{Lock: "job", Trigger: "manual"}); a.Verdict != lease.Unknown || !errors.Is(a.Err, locking.ErrUnknown) {
		t.Errorf("%s: %v", a.Verdict, a.Err)
	}
	if l, ok, err := c.Mutex("plain").TryLock(t.Context()); !ok || err != nil { // which needs none
		t.Errorf("%v, %v", l, err)
	}
}

func TestQuorumRefusesWhatCantBe(t *testing.T) {
	_, clients := masters(t, 5)
	for what, cfg := range map[string]locking.Config{
		"an even number":  {Quorum: clients[:4]},
		"two":             {Quorum: clients[:2]},
		"one server, too": {Quorum: clients, Redis: clients[0]},
		"one twice":       {Quorum: []redis.UniversalClient{clients[0], clients[1], clients[0]}},
		"replicas":        {Quorum: clients, AckedReplicas: 1},
		"none":            {},
	} {
		if c, err := locking.New(cfg); err == nil {
			t.Errorf("%s is accepted", what)
			_ = c.Close()
		}
	}
}

func TestQuorumGrantsEachRowOnce(t *testing.T) {
	_, clients := masters(t, 5)
	a, b := quorumOf(t, clients), quorumOf(t, clients)
	var last locking.Token
	for i := range 20 {
		l, ok, err := a.Mutex("m").TryLock(t.Context())
		if err != nil || !ok {
			t.Fatal(i, ok, err)
		}
		if l.Token() <= last {
			t.Fatalf("token %d after %d", l.Token(), last)
		}
		last = l.Token()
		if _, ok, err := b.Mutex("m").TryLock(t.Context()); ok || err != nil {
			t.Fatalf("a second holder: %v, %v", ok, err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var held []*locking.Lease
	for i := range 3 {
		l, ok, err := a.Semaphore("s", 3).TryAcquire(t.Context())
		if err != nil || !ok || l.Slot() != i {
			t.Fatal(i, ok, err)
		}
		held = append(held, l)
	}
	if _, ok, err := b.Semaphore("s", 3).TryAcquire(t.Context()); ok || err != nil {
		t.Fatalf("a fourth holder: %v, %v", ok, err)
	}
	if err := held[1].Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l, ok, err := b.Semaphore("s", 3).TryAcquire(t.Context()); !ok || err != nil || l.Slot() != 1 {
		t.Fatal(fmt.Sprint(l, ok, err))
	}
}

// faulty is a node's connection that can be cut, and a node's clock that can be wrong: the scripts that it is
// taught read the time with an offset.
type faulty struct {
	node   redis.UniversalClient
	cut    atomic.Bool
	shas   sync.Map // SHA that the client uses -> SHA of the node's script
	offset string   // key of the offset in seconds
}

func (f *faulty) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *faulty) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if f.cut.Load() {
			cmd.SetErr(io.ErrUnexpectedEOF)
			return cmd.Err()
		}
		f.rewrite(cmd)
		return next(ctx, cmd)
	}
}

func (f *faulty) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if f.cut.Load() {
				cmd.SetErr(io.ErrUnexpectedEOF)
				continue
			}
			f.rewrite(cmd)
		}
		if f.cut.Load() {
			return io.ErrUnexpectedEOF
		}
		return next(ctx, cmds)
	}
}

func (f *faulty) rewrite(cmd redis.Cmder) {
	args := cmd.Args()
	switch {
	case len(args) > 2 && args[0] == "script" && args[1] == "load":
		text := args[2].(string)
		args[2] = f.wrong(text)
		f.shas.Store(sha(text), sha(args[2].(string)))
	case len(args) > 1 && args[0] == "eval":
		args[1] = f.wrong(args[1].(string))
	case len(args) > 1 && args[0] == "evalsha":
		if other, ok := f.shas.Load(args[1]); ok {
			args[1] = other
		}
	}
}

func (f *faulty) wrong(text string) string {
	return strings.ReplaceAll(text, "redis.call('TIME')",
		"(function() local t = redis.call('TIME'); return {t[1] + tonumber(redis.call('GET', '"+f.offset+"') or 0), t[2]} end)()")
}

func (f *faulty) step(t *testing.T, by time.Duration) {
	t.Helper()
	if err := f.node.Set(t.Context(), f.offset, int(by.Seconds()), 0).Err(); err != nil {
		t.Fatal(err)
	}
}

// forget has the node forget all but its clock.
func (f *faulty) forget(ctx context.Context) error {
	offset := f.node.Get(ctx, f.offset).Val()
	return errors.Join(f.node.FlushAll(ctx).Err(), f.node.Set(ctx, f.offset, offset, 0).Err())
}

func sha(text string) string { return fmt.Sprintf("%x", sha1.Sum([]byte(text))) }

// faultyQuorum is a client of masters that can fail, and the masters as a client sees them.
func faultyQuorum(t *testing.T, n int) (*locking.Client, []*faulty) {
	t.Helper()
	_, clients := masters(t, n)
	var nodes []*faulty
	for _, c := range clients {
		f := &faulty{node: c, offset: "offset"}
		c.AddHook(f)
		nodes = append(nodes, f)
	}
	return quorumOf(t, clients), nodes
}

// Two of five clocks are an hour ahead, and two of the others are silent: of those that answer, most are wrong.
func TestQuorumTrustsNoMinorityOfClocks(t *testing.T) {
	c, nodes := faultyQuorum(t, 5)
	nodes[0].step(t, time.Hour)
	nodes[1].step(t, time.Hour)
	if l, ok, err := c.Mutex("first").TryLock(t.Context()); !ok || err != nil { // all have told the time
		t.Fatal(l, ok, err)
	}
	awaitVotes(t, nodes)
	nodes[3].cut.Store(true)
	nodes[4].cut.Store(true)
	soon := time.Now().Add(10 * time.Minute).Truncate(time.Second)
	a := c.Engine().Acquire(t.Context(), lease.Request{Lock: "job", Permanent: true, AnyLimit: true,
		Tick: &lease.Tick{At: soon, Previous: soon.Add(-time.Minute), Schedule: "every minute"}})
	if a.Verdict != lease.Early {
		t.Errorf("a tick in ten minutes: %s, %v", a.Verdict, a.Err)
	}
}

// awaitVotes waits until all nodes vote.
func awaitVotes(t *testing.T, nodes []*faulty) {
	t.Helper()
	for _, n := range nodes {
		for n.node.HGet(t.Context(), "locking:quorum", "state").Val() != "voting" {
			<-time.After(time.Millisecond)
		}
	}
}

// One clock steps back by ten minutes: nothing stands still, and no token shrinks.
func TestQuorumGoesOnWhenAClockStepsBack(t *testing.T) {
	c, nodes := faultyQuorum(t, 5)
	var last locking.Token
	for i := range 30 {
		if i == 10 {
			nodes[0].step(t, -10*time.Minute)
		}
		l, ok, err := c.Mutex("m").TryLock(t.Context())
		if !ok || err != nil {
			t.Fatal(i, ok, err)
		}
		if l.Token() <= last {
			t.Fatalf("token %d after %d", l.Token(), last)
		}
		last = l.Token()
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(i, err)
		}
	}
}

// Two of three masters are away while one waits.
func TestQuorumLockAfterAnOutage(t *testing.T) {
	c, nodes := faultyQuorum(t, 3)
	held, ok, err := c.Mutex("m").TryLock(t.Context())
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	awaitVotes(t, nodes)
	got := make(chan error, 1)
	go func() {
		l, err := c.Mutex("m").Lock(t.Context())
		if err == nil {
			err = l.Release(t.Context())
		}
		got <- err
	}()
	nodes[0].cut.Store(true)
	nodes[1].cut.Store(true)
	<-time.After(time.Second)
	nodes[0].cut.Store(false)
	nodes[1].cut.Store(false)
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-got:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("not granted")
	}
}

// A waiter without a majority gets an error that says so.
func TestQuorumWaiterLearnsOfSilence(t *testing.T) {
	testtier.Slow(t)
	servers, clients := masters(t, 3)
	c, err := locking.New(locking.Config{Quorum: clients, Timeout: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	held, ok, err := c.Mutex("m").TryLock(t.Context())
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	wait := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := c.Mutex("m").Lock(ctx)
		return err
	}
	if err := wait(); errors.Is(err, locking.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("of a lock that %s holds: %v", held.ID(), err)
	}
	servers[0].Close()
	servers[1].Close()
	if err := wait(); !errors.Is(err, locking.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("of a quorum without a majority: %v", err)
	} else if !strings.Contains(err.Error(), servers[1].Addr()) {
		t.Errorf("it names no node that is away: %v", err)
	}
}

// A client that begins while one of three masters is away knows two clocks, one of which is an hour behind: it takes nothing back that is decided.
// Promise: P1, quorum
func TestQuorumClockThatIsBehindUndoesNothing(t *testing.T) {
	c, nodes := faultyQuorum(t, 3)
	nodes[0].step(t, -time.Hour)
	schedule := "every minute"
	if s := c.Engine().Inspect(t.Context(), []lease.InspectRequest{{Lock: "job", Permanent: true, Schedule: schedule}})[0]; s.Err != nil {
		t.Fatal(s.Err)
	}
	awaitVotes(t, nodes)
	at := time.Now().Add(time.Second).Truncate(time.Second)
	request := lease.Request{Lock: "job", Permanent: true, AnyLimit: true, Tick: &lease.Tick{At: at, Previous: at.Add(-time.Minute), Schedule: schedule}}
	a := c.Engine().Acquire(t.Context(), request)
	for a.Verdict == lease.Early {
		<-time.After(10 * time.Millisecond)
		a = c.Engine().Acquire(t.Context(), request)
	}
	if a.Verdict != lease.Granted {
		t.Fatal(a.Verdict, a.Err)
	}
	if err := a.Run.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	nodes[2].cut.Store(true)
	var clients []redis.UniversalClient
	for _, n := range nodes {
		clients = append(clients, n.node)
	}
	fresh := quorumOf(t, clients)
	if s := fresh.Engine().Inspect(t.Context(), []lease.InspectRequest{{Lock: "job", Permanent: true, Schedule: schedule}})[0]; s.Err != nil {
		t.Fatal(s.Err)
	}
	nodes[2].cut.Store(false)
	if again := c.Engine().Acquire(t.Context(), request); again.Verdict != lease.Decided {
		t.Errorf("asked for again, a tick that was granted: %s", again.Verdict)
	}
}

// A node forgets while its clock is an hour ahead, which is put right then. It votes again all the same.
// Promise: quorum
func TestQuorumNodeVotesAgainAfterAStep(t *testing.T) {
	_, clients := masters(t, 5)
	var nodes []*faulty
	for _, c := range clients {
		f := &faulty{node: c, offset: "offset"}
		c.AddHook(f)
		nodes = append(nodes, f)
	}
	c, err := locking.New(locking.Config{Quorum: clients, Timeout: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	pair := func() {
		t.Helper()
		l, ok, err := c.Mutex("a", locking.WithLease(time.Second)).TryLock(t.Context()) // for which node 0 is asked first
		if err != nil && !errors.Is(err, locking.ErrUnknown) {
			t.Fatal(err)
		}
		if ok {
			_ = l.Release(t.Context())
		}
	}
	state := func() string { return nodes[0].node.HGet(t.Context(), "locking:quorum", "state").Val() }
	pair()
	awaitVotes(t, nodes)
	nodes[0].step(t, time.Hour)
	for state() != "joining" { // it stays that for a second
		if state() == "voting" {
			if err := nodes[0].forget(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		pair()
	}
	nodes[0].step(t, 0)
	for end := time.Now().Add(30 * time.Second); state() != "voting"; {
		if pair(); time.Now().After(end) {
			t.Fatal("it does not vote")
		}
	}
}

// unheard are connections to nodes on which the first replies to releases are lost, when all of those are on their way.
type unheard struct {
	left atomic.Int32
	then func() // happens before it is known that they are lost
	over chan struct{}
}

func (*unheard) DialHook(next redis.DialHook) redis.DialHook { return next }
func (*unheard) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (u *unheard) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		const words = 3 + 3 + 3 + 4 // the command, its keys, what every script has, and what a release has: at last that it is an ordinary one
		if args := cmd.Args(); len(args) != words || args[words-1] != "1" || err != nil {
			return err
		}
		switch left := u.left.Add(-1); {
		case left < 0:
			return err
		case left == 0:
			u.then()
			close(u.over)
		}
		select {
		case <-u.over:
		case <-ctx.Done(): // one of them does not come
		}
		cmd.SetErr(io.ErrUnexpectedEOF)
		return cmd.Err()
	}
}

// A release whose replies were lost has taken effect all the same, also where another client has got the lock
// meanwhile.
// Promise: P4, quorum
func TestQuorumReleaseWithoutReply(t *testing.T) {
	for _, taken := range []bool{false, true} {
		name := map[bool]string{false: "free", true: "taken"}[taken]
		t.Run(name, func(t *testing.T) {
			servers, clients := masters(t, 3)
			var others []redis.UniversalClient
			for _, s := range servers {
				c := redis.NewClient(&redis.Options{Addr: s.Addr(), ContextTimeoutEnabled: true})
				others = append(others, c)
				t.Cleanup(func() { _ = c.Close() })
			}
			other := quorumOf(t, others)
			lossy := &unheard{over: make(chan struct{}), then: func() {
				if !taken {
					return
				}
				if _, ok, err := other.Mutex("m").TryLock(t.Context()); !ok || err != nil {
					t.Errorf("not free: %v, %v", ok, err)
				}
			}}
			const majority = 2
			lossy.left.Store(majority)
			for _, c := range clients {
				c.AddHook(lossy)
			}
			c := quorumOf(t, clients)
			for lossy.left.Load() > 0 { // a lease that more than a majority was asked for is released in another way
				l, ok, err := c.Mutex("m").TryLock(t.Context())
				if !ok || err != nil {
					t.Fatal(ok, err)
				}
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// A release that go-redis sends again by itself, since a connection broke, is the same release.
// Promise: P4, quorum
func TestQuorumReleaseThatIsSentTwice(t *testing.T) {
	_, clients := masters(t, 3)
	for _, c := range clients {
		c.AddHook(twice{})
	}
	l, ok, err := quorumOf(t, clients).Mutex("m").TryLock(t.Context())
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// twice sends each command two times, and hears the second reply.
type twice struct{}

func (twice) DialHook(next redis.DialHook) redis.DialHook { return next }
func (twice) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (twice) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		_ = next(ctx, cmd)
		return next(ctx, cmd)
	}
}

// A waiter leaves nothing on the nodes when its client closes, also if nothing is heard of them; nor does a
// cancelled one.
// Promise: P9, quorum
func TestQuorumWaiterLeavesNothing(t *testing.T) {
	testtier.Slow(t)
	for name, tc := range map[string]struct {
		stop func(c *locking.Client, cancel context.CancelFunc)
		want error
	}{
		"when the client closes": {func(c *locking.Client, _ context.CancelFunc) { _ = c.Close() }, locking.ErrClosed},
		"when it is cancelled":   {func(_ *locking.Client, cancel context.CancelFunc) { cancel() }, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			servers, clients := masters(t, 3)
			var silent mumbling
			for _, c := range clients {
				c.AddHook(&silent)
			}
			c, err := locking.New(locking.Config{Quorum: clients, Timeout: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			if l, ok, err := c.Mutex("warm").TryLock(t.Context()); !ok || err != nil {
				t.Fatal(l, ok, err)
			}
			silent.on.Store(true)
			ctx, cancel := context.WithCancel(t.Context())
			waited := make(chan error, 1)
			go func() {
				_, err := c.Mutex("m", locking.WithLease(time.Hour)).Lock(ctx)
				waited <- err
			}()
			for silent.lost.Load() < 10 {
				<-time.After(time.Millisecond)
			}
			tc.stop(c, cancel)
			if err := <-waited; !errors.Is(err, tc.want) {
				t.Errorf("waited: %v", err)
			}
			cancel()
			if err := c.Close(); err != nil { // it waits for background work
				t.Error(err)
			}
			checkNoVotes(t, servers)
		})
	}
}

func checkNoVotes(t *testing.T, servers []*embedded.Server) {
	t.Helper()
	for _, s := range servers {
		node := redis.NewClient(&redis.Options{Addr: s.Addr()})
		defer node.Close()
		if row := node.HGet(t.Context(), "locking:{m}", "r0").Val(); row != "" {
			t.Errorf("a ghost holds the lock: %q", row)
		}
	}
}

// mumbling connections lose all replies while it is on.
type mumbling struct {
	on   atomic.Bool
	lost atomic.Int32
}

func (*mumbling) DialHook(next redis.DialHook) redis.DialHook { return next }
func (*mumbling) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (m *mumbling) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if !m.on.Load() {
			return err
		}
		m.lost.Add(1)
		cmd.SetErr(io.ErrUnexpectedEOF)
		return cmd.Err()
	}
}
