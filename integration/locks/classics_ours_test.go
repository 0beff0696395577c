package locks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/integration/history"
	"github.com/cronclave/cronclave/locking"
)

// locker is a client of ours that can stand still, die, and have its clock wrong.
type locker struct {
	*scene
	name   string
	gate   *gate
	client *locking.Client
}

// locker starts a client; change, if not nil, changes how it reaches Redis and what it is configured with.
func (s *scene) locker(name string, change func(*redis.Options, *locking.Config)) *locker {
	s.Helper()
	l := &locker{scene: s, name: name, gate: &gate{}}
	options, config := harness.ClientOptions(s.first().Options().Addr), locking.Config{Owner: name, Timeout: harness.Patience}
	options.ReadTimeout, options.WriteTimeout, options.DialTimeout = harness.Patience, harness.Patience, harness.Patience
	if change != nil {
		change(options, &config)
	}
	rdb := redis.NewClient(options)
	rdb.AddHook(l.gate)
	config.Redis = rdb
	var err error
	l.client, err = locking.New(config)
	harness.Must(s.T, err)
	s.Cleanup(func() {
		l.gate.set(dead) // nothing that is left to give back shall hold up the end
		if err := errors.Join(l.client.Close(), rdb.Close()); err != nil {
			s.Error(err)
		}
	})
	return l
}

// asks asks once, and records the answer.
func (l *locker) asks(lease time.Duration) (*locking.Lease, history.Hold) {
	l.Helper()
	call := l.Acquire(l.name)
	got, ok, err := l.client.Semaphore(key, l.slots, locking.WithLease(lease)).TryAcquire(l.ctx)
	if err != nil {
		l.Error(err)
	}
	if !ok {
		call.End(history.Refused)
		return nil, history.Hold{}
	}
	return got, call.Granted(int64(got.Token()), got.Slot())
}

func (l *locker) wins(lease time.Duration) (*locking.Lease, history.Hold) {
	l.Helper()
	got, h := l.asks(lease)
	if got == nil {
		l.Fatalf("%s is refused", l.name)
	}
	return got, h
}

func (l *locker) refused(lease time.Duration) {
	l.Helper()
	if got, _ := l.asks(lease); got != nil {
		l.Fatalf("%s is granted token %d", l.name, got.Token())
	}
}

// comes asks again and again until it is granted.
func (l *locker) comes(lease time.Duration) (got *locking.Lease, h history.Hold) {
	l.Helper()
	harness.Eventually(l.T, harness.Soon, "grant for "+l.name, func() bool {
		got, h = l.asks(lease)
		return got != nil
	})
	return got, h
}

// runsOut notes until when its holder could rely on a lease, once that is over.
func (l *locker) runsOut(lease *locking.Lease, h history.Hold) {
	l.Helper()
	select {
	case <-lease.Context().Done():
	case <-time.After(harness.Soon):
		l.Fatal("the lease does not end")
	}
	now := l.clock()
	l.Expires(h, now+min(lease.Remaining(), 0), history.Never)
}

// wakes lets it go on after its lease has ended: its write and its release must be refused.
func (l *locker) wakes(lease *locking.Lease, h history.Hold, r *resource) {
	l.Helper()
	l.gate.set(open)
	if l.writes(r, h) != history.Refused {
		l.Errorf("the resource took a stale token %d", h.Token)
	}
	call := l.Release(h)
	if err := lease.Release(l.ctx); !errors.Is(err, locking.ErrLost) {
		l.Errorf("a late release: %v", err)
	}
	call.End(history.Refused)
}

// deathInBetweenOurs: there is one command. Its client dies after it, and before it hears of it.
func deathInBetweenOurs(s *scene) {
	a, b := s.locker("a", func(_ *redis.Options, c *locking.Config) { c.Timeout = time.Second }), s.locker("b", nil)
	a.gate.set(lastWord)
	call := a.Acquire("a")
	if _, _, err := a.client.Mutex(key, locking.WithLease(brief)).TryLock(s.ctx); !errors.Is(err, locking.ErrUnknown) {
		s.Fatalf("without an answer: %v", err)
	}
	call.Unanswered(s.clock() + brief)
	b.comes(long)
}

// pausedOurs has a holder stand still until its lease has ended, and write and release when another holds the lock.
func pausedOurs(s *scene) {
	a, b, c := s.locker("a", nil), s.locker("b", nil), s.locker("c", nil)
	guarded := &resource{}
	lease, hold := a.wins(brief)
	a.gate.set(shut)
	_, other := b.comes(long)
	s.writes(guarded, other)
	a.runsOut(lease, hold)
	a.wakes(lease, hold, guarded)
	c.refused(long)
}

func clockAheadOurs(s *scene) {
	a, b := s.locker("a", nil), s.locker("b", wrong(2*time.Hour))
	a.wins(long)
	b.refused(long)
}

// wrong is a local clock that is off.
func wrong(by time.Duration) func(*redis.Options, *locking.Config) {
	base := time.Now().Add(-24 * time.Hour)
	return func(_ *redis.Options, c *locking.Config) {
		c.Clock = func() time.Duration { return time.Since(base) + by }
	}
}

func latestClockFirstOurs(s *scene) {
	inside := 0
	for i := range many {
		if got, _ := s.locker(fmt.Sprint("client ", i), wrong(-time.Duration(i)*time.Millisecond)).asks(long); got != nil {
			inside++
		}
	}
	if inside != s.slots {
		s.Errorf("%d are inside where %d are allowed", inside, s.slots)
	}
}

func fortyAtOnce(s *scene) {
	s.crowd(many, func(name string) *locker { return s.locker(name, nil) })
}

// crowd has so many clients ask at once, and demands that as many are inside as may be.
func (s *scene) crowd(clients int, open func(name string) *locker) {
	s.Helper()
	var inside atomic.Int64
	var work sync.WaitGroup
	for i := range clients {
		l := open(fmt.Sprint("client ", i))
		work.Go(func() {
			if got, _ := l.asks(long); got != nil {
				inside.Add(1)
			}
		})
	}
	work.Wait()
	if int(inside.Load()) != s.slots {
		s.Errorf("%d are inside where %d are allowed", inside.Load(), s.slots)
	}
}

// failoverOurs loses the last grant with the old master. A client that was refused because of it knows of it, and
// restores it on the new master.
func failoverOurs(s *scene) {
	road := &road{to: s.first().Options().Addr}
	s.Cleanup(func() { road.turn("") })
	over := func(o *redis.Options, _ *locking.Config) { o.Dialer = road.dial }
	a, b := s.locker("a", over), s.locker("b", over)
	lease, hold := a.wins(brief) // a server that has forgotten stays closed for the longest lease
	call := s.Release(hold)
	harness.Must(s.T, lease.Release(s.ctx))
	call.End(history.OK)
	s.replicate(0, 1)

	guarded := &resource{}
	lease, hold = a.wins(brief)
	b.refused(long)
	a.gate.set(shut)
	road.turn(s.servers[1].Client.Options().Addr)
	_, other := b.comes(long)
	s.writes(guarded, other)
	s.Logf("token %d on the old master, %d on the new one", hold.Token, other.Token)
	a.runsOut(lease, hold)
	a.wakes(lease, hold, guarded)
}

// forgotOurs has the server forget a lock that no client holds. The next client never knew of it.
func forgotOurs(s *scene) {
	a, b := s.locker("a", nil), s.locker("b", nil)
	guarded := &resource{}
	lease, hold := a.wins(long)
	s.writes(guarded, hold)
	call := s.Release(hold)
	harness.Must(s.T, lease.Release(s.ctx))
	call.End(history.OK)
	harness.Must(s.T, s.first().FlushAll(s.ctx).Err())
	_, other := b.wins(long)
	if s.writes(guarded, other) != history.OK {
		s.Errorf("the resource refused token %d after %d", other.Token, hold.Token)
	}
}

// gate lets a client's commands pass.
type gate struct {
	mu      sync.Mutex
	state   gateState
	changed chan struct{}
}

type gateState int

const (
	open     gateState = iota
	shut               // the client stands still: commands wait
	lastWord           // the next script is its last command, and its reply is not heard
	dead               // no command gets through
)

var errDead = errors.New("the client is dead")

func (g *gate) set(to gateState) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state = to
	if g.changed != nil {
		close(g.changed)
	}
	g.changed = make(chan struct{})
}

// pass returns whether commands get through, and whether their reply is lost.
func (g *gate) pass(ctx context.Context, script bool) (mute bool, err error) {
	for {
		g.mu.Lock()
		state, changed := g.state, g.changed
		if state == lastWord && script {
			g.state = dead
		}
		g.mu.Unlock()
		switch {
		case state == dead:
			return false, errDead
		case state != shut:
			return state == lastWord && script, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

func (g *gate) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if _, err := g.pass(ctx, false); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		mute, err := g.pass(ctx, true)
		if err == nil {
			if err = next(ctx, cmds); !mute {
				return err
			}
			err = errDead
		}
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
		return err
	}
}

// road leads to whichever server is the master.
type road struct {
	mu    sync.Mutex
	to    string
	conns []net.Conn
}

func (r *road) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	conn, err := (&net.Dialer{}).DialContext(ctx, network, r.to)
	if err == nil {
		r.conns = append(r.conns, conn)
	}
	return conn, err
}

// turn lets it lead to another server, and ends the connections to the last.
func (r *road) turn(to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = to
	for _, c := range r.conns {
		c.Close()
	}
	r.conns = nil
}

// quorumLocker starts a client of ours on all servers of the scene, but for those that it does not reach.
func (s *scene) quorumLocker(name string, unreached ...int) *locker {
	s.Helper()
	l := &locker{scene: s, name: name, gate: &gate{}}
	config := locking.Config{Owner: name, Timeout: harness.Patience}
	for i, r := range s.servers {
		options := harness.ClientOptions(r.Client.Options().Addr)
		for _, n := range unreached {
			if i == n {
				options.Addr = "127.0.0.1:1" // where no server listens
			}
		}
		rdb := redis.NewClient(options)
		rdb.AddHook(l.gate)
		config.Quorum = append(config.Quorum, rdb)
	}
	var err error
	l.client, err = locking.New(config)
	harness.Must(s.T, err)
	s.Cleanup(func() {
		l.gate.set(dead)
		err := l.client.Close()
		for _, rdb := range config.Quorum {
			err = errors.Join(err, rdb.Close())
		}
		if err != nil {
			s.Error(err)
		}
	})
	return l
}

// countedByNodeOurs has twelve ask at once where eight are allowed. Each tries the nodes in an order of its own making.
func countedByNodeOurs(s *scene) {
	s.crowd(3*allowed/2, func(name string) *locker { return s.quorumLocker(name) })
}

// nodeForgotOurs: A reached the first two nodes, the second restarts without its memory, and B reaches all three.
func nodeForgotOurs(s *scene) {
	a, b := s.quorumLocker("a", 2), s.quorumLocker("b")
	_, _, err := b.client.Mutex("the first request founds the quorum").TryLock(s.ctx)
	harness.Must(s.T, err)
	a.wins(long)
	b.refused(long)
	s.servers[1].Restart(harness.MemoryLost)
	b.refused(long)
	b.refused(long)
}
