package locktest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

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

// notAfter is the place of a call's not-after: behind name, script, number of keys, the keys and the lease id.
func notAfter(call []any) int { return 3 + call[2].(int) + 1 }

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

// The tests recognize the calls of lua/quorum_renew.lua, quorum_release.lua and quorum_accept.lua by their number of arguments: command, script and number of keys (3), then the
// keys, the arguments of every script of a quorum (3), and its own.
const (
	quorumRenewal = 3 + 3 + 3 + 6
	quorumRelease = 3 + 3 + 3 + 4
	quorumAccept  = 3 + 4 + 3 + 8
)

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
