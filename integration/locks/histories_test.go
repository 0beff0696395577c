package locks

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/integration/history"
	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/locking"
)

var historyOps = flag.Int("histories", 6000, "operations that TestHistoriesOfOneServer records at least; on a quorum, a third of that")

// recording is a real Redis, clients of locks behind links that break, and their observations.
type recording struct {
	t       *testing.T
	ops     int // at least
	servers []*harness.RedisServer
	began   time.Time
	members []*member
	counts  struct{ grants, refusals, unknown, lost atomic.Int64 }
	faults  struct{ links, flushes, restarts atomic.Int64 }
	pace    *pace
}

// pace stretches time-outs and leases where a machine is too busy for them: where every call times out there is nothing to judge.
type pace struct{ times atomic.Int64 }

func newPace() *pace {
	p := &pace{}
	p.times.Store(1)
	return p
}

func (p *pace) of(d time.Duration) time.Duration { return d * time.Duration(p.times.Load()) }

// recordedLocks are recorded beside each other, each in a history of its own.
var recordedLocks = []struct {
	name  string
	slots int
}{{"mutex", 1}, {"pair", 2}, {"five", 5}}

const (
	recordedLease   = 1500 * time.Millisecond
	recordedTimeout = 150 * time.Millisecond
	// pieceOps bounds a history: a lock gets a successor then. A search is about linear as long as all is well. Where
	// tokens order grants only within a slot, an operation without an outcome fits almost anywhere behind it: then
	// histories are short.
	pieceOps, quorumPieceOps = 4000, 250
)

// Each history that clients of a lock see can be explained by a correct lock with so many slots. Clients lock and
// unlock, some of them in line, over links that lose requests, replies and connections, while the server drops its
// scripts, is killed and comes back with its memory, and clients die with leases in their hands. A correct lock has
// at most as many holders, refuses no free slot, obeys only the holder's release, and its tokens grow (P3, P4).
// Promise: P3, P4, P5
func TestHistoriesOfOneServer(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := &recording{t: t, ops: *historyOps, servers: []*harness.RedisServer{harness.StartRedis(t, harness.RedisOpts{Persist: true})}, began: time.Now(), pace: newPace()}
	for i := range 3 {
		s.members = append(s.members, newMember(t, fmt.Sprintf("m%d", i), s.servers, 0, s.pace))
	}
	s.judge()
}

// Each history of a lock on five masters can be explained by a correct lock. Each client reaches three of them over
// links that break, one by one or all at once: then it has no majority. Some of the other clients' links to the same
// masters are whole meanwhile.
// Promise: quorum
func TestHistoriesOnQuorum(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := &recording{t: t, ops: *historyOps / 3, servers: harness.Masters(t), began: time.Now(), pace: newPace()}
	founder := newMember(t, "founder", s.servers, len(s.servers), s.pace) // the first start needs all of them
	harness.Eventually(t, time.Minute, "the masters vote", func() bool {
		_, ok, _ := founder.now().Mutex("founding").TryLock(t.Context())
		return ok
	})
	for i := range 3 {
		s.members = append(s.members, newMember(t, fmt.Sprintf("m%d", i), s.servers, 2, s.pace))
	}
	s.judge()
}

// judge records histories, and judges them.
func (s *recording) judge() {
	t := s.t
	checked := 0
	for piece := 0; checked < s.ops || s.quiet(); piece++ {
		if checked >= s.ops {
			s.pace.times.Add(1)
		}
		ops := min(s.ops/len(recordedLocks), pieceOps)
		if s.onQuorum() {
			ops = min(ops, quorumPieceOps)
		}
		for i, h := range s.record(piece, ops) {
			began := time.Now()
			faults := h.Check(5 * time.Minute)
			t.Logf("piece %d, %s: %d operations, judged in %v", piece, recordedLocks[i].name, h.Len(), time.Since(began).Round(time.Millisecond))
			if len(faults) > 0 {
				t.Fatalf("%s: %v", recordedLocks[i].name, faults)
			}
			checked += h.Len()
		}
	}
	c := &s.counts
	f := &s.faults
	t.Logf("%d operations in %v: %d grants, %d refusals, %d unknown outcomes, %d leases lost; %d faults of links, %d SCRIPT FLUSH, %d restarts", checked,
		time.Since(s.began).Round(time.Second), c.grants.Load(), c.refusals.Load(), c.unknown.Load(), c.lost.Load(),
		f.links.Load(), f.flushes.Load(), f.restarts.Load())
}

// quiet returns whether too little has happened yet to show anything.
func (s *recording) quiet() bool {
	const few = 3
	c, f := &s.counts, &s.faults
	if s.onQuorum() { // where one that restarts does not vote for long
		return min(c.grants.Load(), c.unknown.Load(), f.links.Load(), f.flushes.Load()) < few
	}
	return min(c.grants.Load(), c.refusals.Load(), c.unknown.Load(), c.lost.Load(), f.links.Load(), f.flushes.Load(), f.restarts.Load()) < few
}

func (s *recording) onQuorum() bool { return len(s.servers) > 1 }

func (s *recording) clock() time.Duration { return time.Since(s.began) }

// record lets all work until each lock has so many operations.
func (s *recording) record(piece, ops int) []*history.History {
	all := make([]*history.History, len(recordedLocks))
	var work, weather sync.WaitGroup
	ctx, calm := context.WithCancel(s.t.Context())
	for i, lock := range recordedLocks {
		h := history.New(lock.slots, s.clock)
		if s.onQuorum() {
			h = h.TokensBySlot()
		}
		all[i] = h
		guarded := &resource{}
		for n := range 6 {
			w := worker{recording: s, member: s.members[n%len(s.members)], name: fmt.Sprintf("w%d", n),
				lock: fmt.Sprintf("%s-%d", lock.name, piece), slots: lock.slots, history: h, resource: guarded}
			work.Go(func() {
				for h.Len() < ops && s.t.Context().Err() == nil {
					w.turn(s.t.Context())
				}
			})
		}
	}
	for _, m := range s.members {
		weather.Go(func() { s.breakLinks(ctx, m) })
	}
	weather.Go(func() { s.killClients(ctx) })
	weather.Go(func() { s.dropScripts(ctx) })
	if len(s.servers) == 1 {
		weather.Go(func() { s.restart(ctx) })
	}
	work.Wait()
	calm()
	weather.Wait()
	return all
}

// breakLinks spoils one of a member's links again and again, or all of them, each time in another way.
func (s *recording) breakLinks(ctx context.Context, m *member) {
	faults := []func() harness.Fault{
		func() harness.Fault { return harness.Fault{Replies: harness.LetsAllButOneIn(3)} },
		func() harness.Fault { return harness.Fault{Requests: harness.LetsAllButOneIn(3)} },
		func() harness.Fault { return harness.Fault{Replies: harness.LetsNothingThrough} },
		func() harness.Fault { return harness.Fault{Requests: harness.LetsNothingThrough} },
		func() harness.Fault {
			return harness.Fault{Requests: harness.LetsNothingThrough, Replies: harness.LetsNothingThrough}
		},
		func() harness.Fault { return harness.Fault{Reset: true} },
	}
	for linger(ctx, 30, 200) {
		links := m.links
		if one := rand.N(len(links)); rand.N(3) > 0 {
			links = links[one : one+1]
		}
		for _, link := range links {
			link.Break(faults[rand.N(len(faults))]())
			s.faults.links.Add(1)
		}
		linger(ctx, 50, 600)
		for _, link := range links {
			link.Mend()
		}
	}
}

// killClients closes a client now and then, whose leases are left to run out; another takes its place.
func (s *recording) killClients(ctx context.Context) {
	for linger(ctx, 300, 1000) {
		s.members[rand.N(len(s.members))].restart()
	}
}

func (s *recording) dropScripts(ctx context.Context) {
	for linger(ctx, 50, 150) {
		server := s.servers[rand.N(len(s.servers))]
		if server.Client.ScriptFlush(ctx).Err() == nil { // it may be away
			s.faults.flushes.Add(1)
		}
	}
}

// restart kills the server now and then. It comes back with all that it had said.
func (s *recording) restart(ctx context.Context) {
	for linger(ctx, 1000, 3000) {
		up, cancel := context.WithTimeout(s.t.Context(), harness.StartTimeout)
		server := s.servers[0].Instance
		if err := errors.Join(server.Signal(up, syscall.SIGKILL), server.Start(up, false), harness.AwaitPing(up, server.Addr())); err != nil {
			s.t.Error(err)
		}
		cancel()
		s.faults.restarts.Add(1)
	}
}

// linger lets some milliseconds pass, and returns whether ctx still lives.
func linger(ctx context.Context, least, most int) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(time.Duration(least+rand.N(most-least+1)) * time.Millisecond):
		return true
	}
}

// member is a client behind links of its own, and its successors.
type member struct {
	t     *testing.T
	name  string
	links []*harness.Proxy
	rdb   []redis.UniversalClient
	pace  *pace

	mu     sync.Mutex
	client *locking.Client
}

// newMember starts a client of some servers, the first of which it reaches without a link.
func newMember(t *testing.T, name string, servers []*harness.RedisServer, direct int, p *pace) *member {
	m := &member{t: t, name: name, pace: p}
	for i, s := range servers {
		addr := s.Client.Options().Addr
		if i >= direct {
			m.links = append(m.links, harness.StartProxy(t, addr, nil, nil))
			addr = m.links[i-direct].Addr()
		}
		m.rdb = append(m.rdb, harness.NewClient(t, addr))
	}
	m.restart()
	t.Cleanup(func() { m.now().Close() })
	return m
}

func (m *member) now() *locking.Client {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.client
}

func (m *member) restart() {
	config := locking.Config{Redis: m.rdb[0], Owner: m.name, Timeout: m.pace.of(recordedTimeout)}
	if len(m.rdb) > 1 {
		config.Redis, config.Quorum = nil, m.rdb
	}
	next, err := locking.New(config)
	if err != nil {
		m.t.Error(err)
		return
	}
	m.mu.Lock()
	last := m.client
	m.client = next
	m.mu.Unlock()
	if last != nil {
		if err := last.Close(); err != nil {
			m.t.Error(err)
		}
	}
}

// resource is the resource behind a lock: it refuses tokens that are older than what it has seen.
type resource struct {
	mu       sync.Mutex
	greatest locking.Token
}

func (r *resource) write(t locking.Token) history.Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t < r.greatest {
		return history.Refused
	}
	r.greatest = t
	return history.OK
}

// worker asks for a lock, holds it for a moment, and records its observations.
type worker struct {
	*recording
	member     *member
	name, lock string
	slots      int
	history    *history.History
	resource   *resource
}

// ask tries, or now and then waits in line: a client that waits in vain may have been granted the lock, which it then
// leaves.
func (w worker) ask(ctx context.Context, s *locking.Semaphore) (lease *locking.Lease, ok bool, err error) {
	if rand.N(3) > 0 {
		return s.TryAcquire(ctx)
	}
	lease, err = s.Acquire(ctx)
	return lease, err == nil, err
}

func (w worker) turn(ctx context.Context) {
	const patience = 400 * time.Millisecond
	asking, cancel := context.WithTimeout(ctx, w.pace.of(patience))
	defer cancel()
	s := w.member.now().Semaphore(w.lock, w.slots, locking.WithLease(w.pace.of(recordedLease)))
	call := w.history.Acquire(w.name)
	lease, ok, err := w.ask(asking, s)
	switch {
	case err != nil:
		call.Unanswered(history.Never)
		w.counts.unknown.Add(1)
	case !ok:
		call.End(history.Refused)
		w.counts.refusals.Add(1)
		linger(ctx, 1, 10)
	default:
		w.counts.grants.Add(1)
		w.hold(lease, call.Granted(int64(lease.Token()), lease.Slot()))
	}
}

// hold holds a lease, now and then until it is renewed, and ends it.
func (w worker) hold(l *locking.Lease, hold history.Hold) {
	if rand.N(40) == 0 {
		linger(l.Context(), int(recordedLease.Milliseconds())/3, int(recordedLease.Milliseconds())/2)
	} else {
		linger(l.Context(), 0, 3)
	}
	call := w.history.Write(hold)
	call.End(w.resource.write(l.Token()))
	w.release(l, hold)
}

func (w worker) release(l *locking.Lease, hold history.Hold) {
	now := w.clock()
	over := now + min(l.Remaining(), 0) // until then it relied on the lease
	ended := l.Context().Err() != nil
	call := w.history.Release(hold)
	err := l.Release(w.t.Context())
	switch {
	case err == nil:
		call.End(history.OK)
	case errors.Is(err, locking.ErrLost):
		call.End(history.Refused)
	default:
		call.End(history.Unknown)
	}
	if err != nil || ended {
		w.counts.lost.Add(1)
		w.history.Expires(hold, over, history.Never)
	}
}
