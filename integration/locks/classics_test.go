package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/integration/classics"
	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/integration/history"
	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/locking"
)

// The checker of histories finds the known fault of each classic lock, and none in ours. The test breaks each
// construction on a real Redis, step by step, and puts ours through the same; the classics are the negative controls.
// Promise: P3, P4, quorum
func TestClassics(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := &stage{}
	for range 3 {
		s.servers = append(s.servers, harness.StartRedis(t, harness.RedisOpts{}))
	}
	for _, tc := range []struct {
		name      string
		slots     int
		act, ours func(*scene)
		broken    []history.Rule // by the classic
	}{
		{"SETNX, then EXPIRE: death in between", 1, deathInBetween, deathInBetweenOurs, []history.Rule{history.Order}},
		{"SET NX EX, DEL: another's lock deleted", 1, deletesAnothers, pausedOurs, []history.Rule{history.Overlap}},
		{"GETSET: a clock that is ahead", 1, clockAhead, clockAheadOurs, []history.Rule{history.Overlap}},
		{"WATCH alone: the refusal comes after the work", 1, toldAfterwards, fortyAtOnce, []history.Rule{history.Overlap}},
		{"semaphore by clocks: the latest clock is first", allowed, latestClockFirst, latestClockFirstOurs, []history.Rule{history.Overlap}},
		{"semaphore by counter: numbers entered backwards", allowed, numbersBackwards, fortyAtOnce, []history.Rule{history.Overlap}},
		{"semaphore on a quorum: counted node by node", allowed, countedByNode, countedByNodeOurs, []history.Rule{history.Overlap}},
		{"Redlock: a holder that stood still", 1, stoodStill, pausedOurs, []history.Rule{history.Order}},
		{"Redlock: a node that forgot", 1, nodeForgot, nodeForgotOurs, []history.Rule{history.Overlap}},
		{"INCR tokens: a failover that lost the last", 1, failoverINCR, failoverOurs, []history.Rule{history.Overlap, history.Tokens}},
		{"INCR tokens: a server that forgot", 1, forgotINCR, forgotOurs, []history.Rule{history.Tokens}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			classic := s.open(t, tc.slots)
			tc.act(classic)
			faults := classic.Check(time.Minute)
			if len(faults) > 0 {
				t.Logf("the classic: %d faults, the last: %v", len(faults), faults[len(faults)-1])
			}
			if rules := history.Broken(faults); !slices.Equal(rules, tc.broken) {
				t.Errorf("the checker finds %q broken, want %q, in\n%v", rules, tc.broken, classic.Ops())
			}
			ours := s.open(t, tc.slots)
			tc.ours(ours)
			if faults := ours.Check(time.Minute); len(faults) > 0 {
				t.Errorf("ours: %v", faults)
			}
		})
	}
}

const (
	key = "lock"
	// allowed are inside a semaphore, of as many as many want.
	allowed, many = 8, 40
	// brief is a time to live that a test waits for; long one that it does not see the end of.
	brief, long = 3 * time.Second, time.Hour
)

// stage has the servers, which each scene finds empty.
type stage struct{ servers []*harness.RedisServer }

// scene is one construction in one scenario, with the observations of its clients.
type scene struct {
	*testing.T
	*history.History
	ctx     context.Context
	servers []*harness.RedisServer
	slots   int
	began   time.Time
	later   time.Duration // how much later it is than the real clock says
}

func (s *stage) open(t *testing.T, slots int) *scene {
	t.Helper()
	sc := &scene{T: t, ctx: t.Context(), servers: s.servers, slots: slots, began: time.Now()}
	sc.History = history.New(slots, sc.clock)
	for _, r := range s.servers {
		harness.Must(t, r.Client.FlushAll(sc.ctx).Err())
	}
	return sc
}

func (s *scene) clock() time.Duration { return time.Since(s.began) + s.later }

// first is the server of those constructions that need but one.
func (s *scene) first() *redis.Client { return s.servers[0].Client }

func (s *scene) nodes() []classics.Node {
	var all []classics.Node
	for _, r := range s.servers {
		all = append(all, r.Client)
	}
	return all
}

// off is a wall clock that is off by so much.
func off(by time.Duration) classics.Clock { return func() time.Time { return time.Now().Add(by) } }

// grants has a client ask once, by acquire, and records the answer. It fails the test if that is not as wanted.
func (s *scene) grants(client string, want bool, acquire func() (bool, error)) (h history.Hold) {
	s.Helper()
	call := s.Acquire(client)
	ok, err := acquire()
	if err != nil || ok != want {
		s.Fatalf("%s: granted %v, %v; want %v", client, ok, err, want)
	}
	if ok {
		return call.Granted(0, history.NoSlot)
	}
	call.End(history.Refused)
	return h
}

// waits has a client ask again and again, until it is granted.
func (s *scene) waits(client string, acquire func() (bool, error)) (h history.Hold) {
	s.Helper()
	harness.Eventually(s.T, harness.Soon, "grant for "+client, func() bool {
		call := s.Acquire(client)
		ok, err := acquire()
		harness.Must(s.T, err)
		if ok {
			h = call.Granted(0, history.NoSlot)
		} else {
			call.End(history.Refused)
		}
		return ok
	})
	return h
}

func deathInBetween(s *scene) {
	a := classics.SetNXExpire{Redis: s.first(), TTL: brief, Gap: func() error { return classics.ErrDied }}
	b := classics.SetNXExpire{Redis: s.first(), TTL: brief}
	call := s.Acquire("a")
	if _, err := a.Acquire(s.ctx, key, "a"); !errors.Is(err, classics.ErrDied) {
		s.Fatal(err)
	}
	call.Unanswered(s.clock() + brief)
	if ttl := s.first().TTL(s.ctx, key).Val(); ttl != -1 {
		s.Fatalf("the lock has a time to live of %v", ttl)
	}
	s.later = 24 * time.Hour // a key without a time to live is no different then
	s.grants("b", false, func() (bool, error) { return b.Acquire(s.ctx, key, "b") })
}

func deletesAnothers(s *scene) {
	short := classics.SetDel{Redis: s.first(), TTL: brief}
	rest := classics.SetDel{Redis: s.first(), TTL: long}
	asked := s.clock()
	a := s.grants("a", true, func() (bool, error) { return short.Acquire(s.ctx, key, "a") })
	s.Expires(a, asked+brief, history.Never)
	s.waits("b", func() (bool, error) { return rest.Acquire(s.ctx, key, "b") })
	call := s.Release(a)
	deleted, err := short.Release(s.ctx, key)
	harness.Must(s.T, err)
	call.End(map[bool]history.Outcome{true: history.OK, false: history.Refused}[deleted])
	s.grants("c", true, func() (bool, error) { return rest.Acquire(s.ctx, key, "c") })
}

func clockAhead(s *scene) {
	const timeout = time.Minute
	a := classics.GetSet{Redis: s.first(), Timeout: timeout, Clock: off(0)}
	b := classics.GetSet{Redis: s.first(), Timeout: timeout, Clock: off(2 * timeout)}
	s.grants("a", true, func() (bool, error) { return a.Acquire(s.ctx, key) })
	s.grants("another whose clock is right", false, func() (bool, error) { return a.Acquire(s.ctx, key) })
	s.grants("b", true, func() (bool, error) { return b.Acquire(s.ctx, key) })
}

// toldAfterwards has each begin its work while those before it are at theirs.
func toldAfterwards(s *scene) {
	l := classics.Watch{Redis: s.first()}
	working, late := 0, 0
	var begin func() error
	begin = func() error {
		if working == allowed {
			return nil
		}
		name := fmt.Sprint("client ", working)
		call := s.Acquire(name)
		err := l.Do(s.ctx, key, func() error {
			working++
			h := call.Granted(0, history.NoSlot)
			err := begin()
			s.Expires(h, s.clock(), history.Never)
			return err
		})
		if errors.Is(err, classics.ErrTooLate) {
			late++
			err = nil
		}
		return err
	}
	harness.Must(s.T, begin())
	s.Logf("%d did the work where 1 is allowed, and %d of them learned of it afterwards", working, late)
	if working != allowed || late != allowed-1 {
		s.Errorf("%d worked, %d were too late", working, late)
	}
}

// latestClockFirst has clients come whose clocks are each a millisecond behind that of the one before.
func latestClockFirst(s *scene) {
	now := time.Now()
	for i := range many {
		sem := classics.UnfairSemaphore{Redis: s.first(), Limit: allowed, Timeout: time.Minute,
			Clock: func() time.Time { return now.Add(-time.Duration(i) * time.Millisecond) }}
		name := fmt.Sprint("client ", i)
		s.grants(name, true, func() (bool, error) { return sem.Acquire(s.ctx, key, name) })
	}
}

// numbersBackwards has each client take its number before those after it, and enter it after them.
func numbersBackwards(s *scene) {
	var enter func(i int) error
	enter = func(i int) error {
		if i == many {
			return nil
		}
		sem := classics.FairSemaphore{Redis: s.first(), Limit: allowed, Timeout: time.Minute, Clock: off(0), Gap: func() error { return enter(i + 1) }}
		name := fmt.Sprint("client ", i)
		s.grants(name, true, func() (bool, error) { return sem.Acquire(s.ctx, key, name) })
		return nil
	}
	harness.Must(s.T, enter(0))
}

// countedByNode has all ask all nodes, and nothing fails. Only that they reach the nodes in different orders.
func countedByNode(s *scene) {
	const third = allowed / 2
	sem := classics.QuorumSemaphore{Nodes: s.nodes(), Limit: allowed, Timeout: time.Minute, Clock: off(0)}
	for i := range 3 * third {
		_, err := sem.Acquire(s.ctx, "in one order", fmt.Sprint(i))
		harness.Must(s.T, err)
	}
	if inside := s.first().ZCard(s.ctx, "in one order").Val(); inside != allowed {
		s.Fatalf("%d inside although all came in one order", inside)
	}
	votes, calls := make([]int, 3*third), make([]history.Pending, 3*third)
	for i := range votes {
		calls[i] = s.Acquire(fmt.Sprint("client ", i))
	}
	for node := range sem.Nodes {
		for n := range votes {
			i := (n + node*third) % len(votes)
			yes, err := sem.Ask(s.ctx, node, key, fmt.Sprint(i))
			harness.Must(s.T, err)
			if yes {
				votes[i]++
			}
		}
	}
	for i, v := range votes {
		if !sem.Enough(v) {
			s.Fatalf("client %d has %d votes", i, v)
		}
		calls[i].Granted(0, history.NoSlot)
	}
}

// stoodStill has a holder of a lock without tokens stand still until another has written, and write then.
func stoodStill(s *scene) {
	short := classics.Redlock{Nodes: s.nodes(), TTL: brief, Clock: off(0)}
	rest := classics.Redlock{Nodes: s.nodes(), TTL: long, Clock: off(0)}
	asked := s.clock()
	a := s.grants("a", true, func() (bool, error) { _, ok := short.Acquire(s.ctx, key, "a"); return ok, nil })
	s.Expires(a, asked+brief, history.Never)
	b := s.waits("b", func() (bool, error) { _, ok := rest.Acquire(s.ctx, key, "b"); return ok, nil })
	s.Write(b).End(history.OK)
	s.Write(a).End(history.OK) // a resource cannot distinguish them
	call := s.Release(a)
	if short.Release(s.ctx, key, "a") {
		s.Error("a late release found its lock")
	}
	call.End(history.Refused)
}

// nodeForgot has one of three nodes restart without its memory. A reached it and another, B reaches it and the third.
func nodeForgot(s *scene) {
	nodes := s.nodes()
	a := classics.Redlock{Nodes: []classics.Node{nodes[0], nodes[1], nil}, TTL: long, Clock: off(0)}
	b := classics.Redlock{Nodes: nodes, TTL: long, Clock: off(0)}
	s.grants("a", true, func() (bool, error) { _, ok := a.Acquire(s.ctx, key, "a"); return ok, nil })
	s.grants("b", false, func() (bool, error) { _, ok := b.Acquire(s.ctx, key, "b"); return ok, nil })
	s.servers[1].Restart(harness.MemoryLost)
	s.grants("b", true, func() (bool, error) { _, ok := b.Acquire(s.ctx, key, "b"); return ok, nil })
}

// counted has a client take the lock with a token from the counter.
func (s *scene) counted(l classics.Incr, client string) history.Hold {
	s.Helper()
	call := s.Acquire(client)
	token, ok, err := l.Acquire(s.ctx, key, client)
	if err != nil || !ok {
		s.Fatalf("%s: granted %v, %v", client, ok, err)
	}
	return call.Granted(token, history.NoSlot)
}

func (s *scene) frees(l classics.Incr, h history.Hold) {
	s.Helper()
	call := s.Release(h)
	own, err := l.Release(s.ctx, key, h.Client)
	if err != nil || !own {
		s.Fatalf("%s: released %v, %v", h.Client, own, err)
	}
	call.End(history.OK)
}

// failoverINCR has the second server take over with all but the last of the first one's grants, as asynchronous
// replication does. It copies the state that a replica has by then.
func failoverINCR(s *scene) {
	before, after := classics.Incr{Redis: s.first(), TTL: long}, classics.Incr{Redis: s.servers[1].Client, TTL: long}
	for range 42 {
		s.frees(before, s.counted(before, "earlier"))
	}
	s.replicate(0, 1)
	guarded := &resource{}
	a := s.counted(before, "a")
	b := s.counted(after, "b")
	s.writes(guarded, b)
	s.writes(guarded, a)
	s.Logf("token %d on the old master, %d on the new one; the resource takes both", a.Token, b.Token)
	if a.Token != 43 || b.Token != 43 {
		s.Error("that is not what INCR does")
	}
}

func forgotINCR(s *scene) {
	l := classics.Incr{Redis: s.first(), TTL: long}
	guarded := &resource{}
	for range 42 {
		s.frees(l, s.counted(l, "earlier"))
	}
	a := s.counted(l, "a")
	s.writes(guarded, a)
	s.frees(l, a)
	harness.Must(s.T, s.first().FlushAll(s.ctx).Err())
	b := s.counted(l, "b")
	if s.writes(guarded, b) != history.Refused {
		s.Errorf("the resource took token %d after %d", b.Token, a.Token)
	}
}

// replicate copies all keys from one server to another.
func (s *scene) replicate(from, to int) {
	s.Helper()
	for _, k := range s.servers[from].Client.Keys(s.ctx, "*").Val() {
		dump, err := s.servers[from].Client.Dump(s.ctx, k).Result()
		harness.Must(s.T, err)
		ttl := max(s.servers[from].Client.PTTL(s.ctx, k).Val(), 0)
		harness.Must(s.T, s.servers[to].Client.RestoreReplace(s.ctx, k, ttl, dump).Err())
	}
}

// writes has a holder write to the resource.
func (s *scene) writes(r *resource, h history.Hold) history.Outcome {
	call := s.Write(h)
	outcome := r.write(locking.Token(h.Token))
	call.End(outcome)
	return outcome
}
