// Package locktest is the conformance suite of package locking. Each promise of a lock is one subtest, whose
// name is the theorem. Run it against every kind of server that is to keep them.
//
// A test of leases has to see them end, a ledger grow old and a server forget. Nothing waits for that here: the past is
// faked by writing the lock's keys, whose layout lua/state.lua of package locking documents. So a slow machine makes
// the suite slow, not wrong.
//
// Run it under the race detector: that takes half a minute on a server, two on a quorum. It is for Redis 5 or later, on a quorum 7.
package locktest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Run runs the suite. connect returns a client of the server under test, which is closed after the test and which the suite adds a
// hook to: it must be a new one at each call, with ContextTimeoutEnabled. All keys written begin with "locktest:"
// and a random part, and are deleted, so the server may serve others too; only its scripts are flushed, before the rest of the
// suite runs, in parallel.
func Run(t *testing.T, connect func(t *testing.T) redis.UniversalClient) {
	run(t, oneServer, func(t *testing.T) []redis.UniversalClient { return []redis.UniversalClient{connect(t)} })
}

// RunQuorum is [Run] for a quorum: connect returns a client of each of its masters. The subtest NotOnAQuorum
// lists the theorems that a quorum can't serve, and demands that their calls return [locking.ErrQuorum].
func RunQuorum(t *testing.T, connect func(t *testing.T) []redis.UniversalClient) {
	run(t, ofQuorum, connect)
	t.Run("NotOnAQuorum", func(t *testing.T) {
		t.Parallel()
		for _, th := range theorems() {
			if th.needs&^ofQuorum != 0 {
				t.Logf("%s needs %v", th.name, th.needs&^ofQuorum)
			}
		}
		refuses(newBench(t, connect(t)))
	})
}

func theorems() []theorem {
	return slices.Concat(granting(), tokens(), ledger(), fanOut(), orphans(), chains(), forgetting(), lifetime(), stopping(), waiting(), delays(), pausing(), entering(), several(), updating(),
		fences(), removing(), damages(), quorums(), named())
}

func run(t *testing.T, has capability, connect func(t *testing.T) []redis.UniversalClient) {
	for _, th := range batches() {
		t.Run(th.name, func(t *testing.T) { th.test(newBench(t, connect(t))) })
	}
	for _, th := range theorems() {
		if th.needs&^has != 0 {
			continue
		}
		t.Run(th.name, func(t *testing.T) {
			t.Parallel()
			th.test(newBench(t, connect(t)))
		})
	}
}

// recorder is a hook that keeps the scripts' calls, so that a test can send one again as the network might.
type recorder struct {
	arrived chan struct{}

	mu    sync.Mutex
	calls [][]any
}

func (r *recorder) DialHook(next redis.DialHook) redis.DialHook { return next }
func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		r.record(cmd)
		return err
	}
}
func (r *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		r.record(cmds...)
		return err
	}
}

func (r *recorder) record(cmds ...redis.Cmder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, cmd := range cmds {
		if cmd.Err() == nil && strings.HasPrefix(cmd.Name(), "eval") {
			r.calls = append(r.calls, cmd.Args())
		}
	}
	select {
	case r.arrived <- struct{}{}:
	default:
	}
}

// of returns the calls that were made with a lease id, alone or with others, in order.
func (r *recorder) of(id string) (calls [][]any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, args := range r.calls {
		if at := notAfter(args); at <= len(args) && slices.Contains(args[at-1:], any(id)) {
			calls = append(calls, args)
		}
	}
	return calls
}

// await returns the n-th call that was made with a lease id, from 1.
func (b *bench) await(id string, n int) []any {
	b.Helper()
	giveUp := time.After(timeout)
	for {
		if calls := b.sent.of(id); len(calls) >= n {
			return calls[n-1]
		}
		select {
		case <-b.sent.arrived:
		case <-giveUp:
			b.Fatalf("no call %d for lease %s", n, id)
		}
	}
}

// again sends a call once more, as it was.
func (b *bench) again(args []any) (verdict string, rest []any) {
	b.Helper()
	for _, node := range b.nodes { // of a quorum each says the same
		reply, err := node.Do(b.ctx, args...).Slice()
		if err != nil {
			b.Fatal(err)
		}
		if verdict != "" && verdict != reply[0] {
			b.Fatalf("one node says %q, another %q", verdict, reply[0])
		}
		verdict, rest = fmt.Sprint(reply[0]), reply[1:]
	}
	return verdict, rest
}

// renewal returns the first renewal of a lease.
func (b *bench) renewal(id string) []any {
	b.Helper()
	if !b.onQuorum() {
		return b.await(id, 2)
	}
	for n := 2; ; n++ {
		if call := b.await(id, n); len(call) == quorumRenewal {
			return call
		}
	}
}

// releaseOf returns the release of a lease, which is its last call; but a quorum's keeper may be told meanwhile that a renewal was late.
func (b *bench) releaseOf(id string) []any {
	b.Helper()
	calls := b.sent.of(id)
	if b.onQuorum() {
		calls = slices.DeleteFunc(calls, func(args []any) bool { return len(args) == quorumRenewal })
	}
	return calls[len(calls)-1]
}

// notAfter is the place of a call's not-after: behind name, script, number of keys, the keys and the lease id.
func notAfter(call []any) int { return 3 + call[2].(int) + 1 }

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
