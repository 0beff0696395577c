package locktest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/locking"
)

type theorem struct {
	name  string
	test  func(b *bench)
	needs capability
}

// capability is what a theorem speaks of, and not all kinds of servers have.
type capability int

const (
	queue        capability = 1 << iota // waiters in line, first come, first served
	sets                                // several locks at once
	transactions                        // WATCH, MULTI and EXEC
	fenced                              // a fence kept in Redis
	memory                              // a lock that is forgotten as a whole is closed for a lease
	layout                              // the past is faked in the keys of one server
	votes                               // nodes, some of which may be away or have forgotten

	nothing capability = 0

	oneServer = queue | sets | transactions | fenced | memory | layout
	ofQuorum  = votes
)

func (c capability) String() string {
	var all []string
	for i, name := range []string{"a fair queue", "sets of locks", "transactions", "fences", "one server's memory", "one server's keys", "several nodes"} {
		if c&(1<<i) != 0 {
			all = append(all, name)
		}
	}
	return strings.Join(all, ", ")
}

const (
	// long is a lease that outlasts any test, so that neither its end nor a renewal comes in between.
	long = 10 * time.Minute
	// renewing is a lease that is renewed after a third of it. The rest is for a machine that has other things to do.
	renewing = 5 * time.Second
	// timeout bounds a round trip on a machine that has other things to do.
	timeout = 20 * time.Second
	// quorumTimeout does so on a quorum, where a node that has forgotten does not vote for longer than that.
	quorumTimeout = 4 * time.Second
	// schedule is the digest that ticks of the bench carry.
	schedule = "every minute"
)

// holding is a held lease: a [locking.Lease] or a [lease.Run].
type holding interface {
	lease.Span
	ID() string
	Slot() int
	Token() lease.Token
	Confirmed() <-chan struct{}
	Release(ctx context.Context) error
}

// bench is one lock, the clients that ask for it, and the means to fake its past.
type bench struct {
	*testing.T
	ctx    context.Context
	rdb    redis.UniversalClient   // the only server, or the first
	nodes  []redis.UniversalClient // all of them
	sent   *recorder
	prefix string
	first  time.Time // instant of tick 0
	a, b   *locking.Client
}

// lock is the name of the lock that most tests ask for.
const lock = "lock"

func newBench(t *testing.T, nodes []redis.UniversalClient) *bench {
	t.Helper()
	b := &bench{T: t, ctx: t.Context(), rdb: nodes[0], nodes: nodes, sent: &recorder{arrived: make(chan struct{}, 1)},
		prefix: "locktest:" + rand.Text()[:10] + ":"}
	for _, rdb := range nodes {
		if cluster, ok := rdb.(*redis.ClusterClient); ok { // whose nodes are asked one by one
			cluster.OnNewNode(func(node *redis.Client) { node.AddHook(b.sent) })
		} else {
			rdb.AddHook(b.sent)
		}
		t.Cleanup(func() { b.clean(rdb) })
	}
	b.first = b.now().Truncate(time.Minute).Add(-2 * time.Hour)
	b.a, b.b = b.client("a"), b.client("b")
	if b.onQuorum() { // it begins with the first request
		b.ask(b.a, lease.Request{Lock: "first", Abstain: true})
		founded(b)
	}
	return b
}

// clean deletes what the test wrote.
func (b *bench) clean(rdb redis.UniversalClient) {
	defer rdb.Close()
	ctx := context.WithoutCancel(b.ctx)
	node := func(ctx context.Context, node *redis.Client) error {
		keys := node.Scan(ctx, 0, b.prefix+"*", 1000).Iterator()
		var err error
		for keys.Next(ctx) {
			err = errors.Join(err, node.Del(ctx, keys.Val()).Err())
		}
		return errors.Join(err, keys.Err())
	}
	var err error
	switch c := rdb.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(ctx, node)
	case *redis.Client:
		err = node(ctx, c)
	}
	if err != nil {
		b.Errorf("delete the keys: %v", err)
	}
}

// client returns a client that has observed nothing.
func (b *bench) client(owner string) *locking.Client {
	b.Helper()
	c, err := locking.New(b.config(owner))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	return c
}

func (b *bench) config(owner string) locking.Config {
	cfg := locking.Config{Redis: b.rdb, Prefix: b.prefix, Owner: owner, Timeout: timeout}
	if b.onQuorum() {
		cfg.Redis, cfg.Quorum, cfg.Timeout = nil, b.nodes, quorumTimeout
	}
	return cfg
}

func (b *bench) onQuorum() bool { return len(b.nodes) > 1 }

// now is the server's clock.
func (b *bench) now() time.Time {
	b.Helper()
	now, err := b.rdb.Time(b.ctx).Result()
	if err != nil {
		b.Fatal(err)
	}
	return now.UTC()
}

// tick is the n-th tick of a schedule that the lock has known for hours: see [bench.known].
func (b *bench) tick(n int) *lease.Tick {
	at := b.first.Add(time.Duration(n) * time.Minute)
	return &lease.Tick{At: at, Previous: at.Add(-time.Minute), Schedule: schedule}
}

// known makes the lock know the bench's schedule since just before tick 0.
func (b *bench) known() {
	b.Helper()
	b.look(b.client("announcer"), lease.InspectRequest{Lock: lock, Permanent: true, Schedule: schedule})
	b.setSince(b.first.Add(-time.Second))
}

// setSince fakes when the schedule was announced to the lock.
func (b *bench) setSince(at time.Time) {
	b.Helper()
	if b.onQuorum() {
		setRegister(b, "since", at.UnixMicro())
		return
	}
	b.set("since", at.UnixMicro())
}

// same reports whether two instants are one. The nodes of a quorum have clocks of their own.
func (b *bench) same(x, y time.Time) bool {
	return x.Equal(y) || b.onQuorum() && x.Sub(y).Abs() < timeout
}

// entries returns the number of ticks that the ledger has out of turn.
func (b *bench) entries() int64 {
	b.Helper()
	if b.onQuorum() {
		ticks, _ := registerOf(b, b.rdb)["ticks"].(map[string]any)
		return int64(len(ticks))
	}
	return b.rdb.HLen(b.ctx, b.ledgerKey()).Val()
}

// ask fills in what the test does not care for: the lock and a long lease.
func (b *bench) ask(c *locking.Client, r lease.Request) lease.Result {
	b.Helper()
	if r.Lock == "" {
		r.Lock = lock
	}
	if r.Lease == 0 {
		r.Lease = long
	}
	if r.Tick != nil {
		r.Permanent, r.AnyLimit = true, true
	}
	return c.Engine().Acquire(b.ctx, r)
}

// wins asks, and fails the test unless the request is granted.
func (b *bench) wins(c *locking.Client, r lease.Request) lease.Run {
	b.Helper()
	a := b.ask(c, r)
	b.wants(a, lease.Granted)
	return a.Run
}

// gets asks, and fails the test unless the verdict is the one wanted.
func (b *bench) gets(c *locking.Client, r lease.Request, want lease.Verdict) lease.Result {
	b.Helper()
	a := b.ask(c, r)
	b.wants(a, want)
	return a
}

func (b *bench) wants(a lease.Result, want lease.Verdict) {
	b.Helper()
	if a.Verdict != want {
		b.Fatalf("verdict %q (until %v, holder %q, outcome %q, error %v), want %q",
			a.Verdict, a.Until, a.Holder, a.Outcome, a.Err, want)
	}
}

func (b *bench) release(l holding) {
	b.Helper()
	if err := l.Release(b.ctx); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) giveBack(l lease.Run) {
	b.Helper()
	if err := l.Undo(b.ctx); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) look(c *locking.Client, r lease.InspectRequest) lease.State {
	b.Helper()
	if r.Lock == "" {
		r.Lock = lock
	}
	s := c.Engine().Inspect(b.ctx, []lease.InspectRequest{r})[0]
	if s.Err != nil {
		b.Fatal(s.Err)
	}
	return s
}

// state is what the lock knows, told to a client that carries no memories of its own.
func (b *bench) state() lease.State {
	b.Helper()
	return b.look(b.client("observer"), lease.InspectRequest{Permanent: true})
}

// ends waits for the end of a lease and fails the test unless it has the cause wanted.
func (b *bench) ends(l holding, cause error) {
	b.Helper()
	select {
	case <-l.Context().Done():
	case <-time.After(timeout):
		b.Fatalf("the lease has not ended after %v", timeout)
	}
	if got := context.Cause(l.Context()); !errors.Is(got, cause) {
		b.Fatalf("the lease ended with %v, want %v", got, cause)
	}
}

// waitUntil waits for an instant that the server told.
func (b *bench) waitUntil(at time.Time) {
	b.Helper()
	select {
	case <-time.After(at.Sub(b.now())):
	case <-b.ctx.Done():
		b.Fatal("the test is over")
	}
}

// eventually waits for a condition.
func eventually(b *bench, what string, holds func() bool) {
	b.Helper()
	for giveUp := time.Now().Add(timeout); !holds(); {
		if time.Now().After(giveUp) {
			b.Fatalf("not within %v: %s", timeout, what)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// heldAgain waits until a lease has a row again.
func heldAgain(b *bench, l holding) lease.Row {
	b.Helper()
	for n := 2; ; n++ {
		b.await(l.ID(), n)
		for _, row := range b.state().Running {
			if row.ID == l.ID() {
				return row
			}
		}
	}
}

// The keys of the lock, as in lua/state.lua.
func (b *bench) base() string { return b.prefix + "{" + lock + "}" }
func (b *bench) keys() []string {
	if b.onQuorum() {
		return []string{b.base()}
	}
	return append([]string{b.base()}, b.parts()...)
}
func (b *bench) ledgerKey() string { return b.base() + ":ledger" }
func (b *bench) parts() []string {
	return []string{b.ledgerKey(), b.base() + ":orphans"}
}

// set fakes a field of the lock.
func (b *bench) set(field string, value any) {
	b.Helper()
	if err := b.rdb.HSet(b.ctx, b.base(), field, value).Err(); err != nil {
		b.Fatal(err)
	}
}

// field reads a number of the lock.
func (b *bench) field(name string) int64 {
	b.Helper()
	s, err := b.rdb.HGet(b.ctx, b.base(), name).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		b.Fatal(err)
	}
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

// expire lets a lease end now by the server's clock.
func (b *bench) expire(l holding) {
	b.Helper()
	b.setExpiry(l, b.now().Add(-time.Millisecond))
}

func (b *bench) setExpiry(l holding, at time.Time) {
	b.Helper()
	if b.onQuorum() {
		setRowExpiry(b, l, at)
		return
	}
	b.set(fmt.Sprint("e", l.Slot()), at.UnixMicro())
}

// forget does to the lock what FLUSHALL does to all.
func (b *bench) forget() {
	b.Helper()
	if err := b.rdb.Del(b.ctx, b.keys()...).Err(); err != nil {
		b.Fatal(err)
	}
}

// open ends the time for which a lock stays closed after it was forgotten.
func (b *bench) open() { b.Helper(); b.set("closed", 1) }

// snapshot keeps the lock as it is; restore makes the server forget all that came after.
func (b *bench) snapshot() (restore func()) {
	b.Helper()
	hashes := map[string]map[string]string{}
	for _, key := range []string{b.base(), b.ledgerKey(), b.base() + ":orphans"} {
		fields, err := b.rdb.HGetAll(b.ctx, key).Result()
		if err != nil {
			b.Fatal(err)
		}
		hashes[key] = fields
	}
	return func() {
		b.Helper()
		b.forget()
		var err error
		for key, fields := range hashes {
			if len(fields) > 0 {
				err = errors.Join(err, b.rdb.HSet(b.ctx, key, fields).Err())
			}
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
