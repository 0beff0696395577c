package engine

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// misconf is a node that refuses all that writes, as Redis does when its disk is full.
type misconf struct {
	on    atomic.Bool
	asked atomic.Int64 // commands
}

type misconfErr struct{}

func (misconfErr) Error() string {
	return "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk"
}
func (misconfErr) RedisError() {}

func (*misconf) DialHook(next redis.DialHook) redis.DialHook { return next }
func (m *misconf) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if m.on.Load() && strings.HasPrefix(cmd.Name(), "evalsha") {
			cmd.SetErr(misconfErr{})
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}
func (m *misconf) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if m.on.Load() && strings.HasPrefix(cmds[0].Name(), "evalsha") {
			m.asked.Add(int64(len(cmds)))
			for _, c := range cmds {
				c.SetErr(misconfErr{})
			}
			return misconfErr{}
		}
		return next(ctx, cmds)
	}
}

// taught counts how often a node is taught its scripts.
type taught struct{ n atomic.Int32 }

func (*taught) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*taught) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (m *taught) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "script" {
			m.n.Add(1)
		}
		return next(ctx, cmds)
	}
}

// A node that answers with errors does not get the calls that it missed again and again, nor do the others get
// their scripts again.
// Promise: quorum
func TestQuorumLeavesANodeThatRefusesAlone(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, masters, closeAll := w.quorum(3)
		defer closeAll()
		pairs := func(d time.Duration) (n int) {
			for end := w.clock() + d; w.clock() < end; w.pass(50 * time.Millisecond) {
				a := c.Acquire(w.Context(), Request{Lock: "m", Lease: 30 * time.Second})
				if a.Verdict != Granted {
					w.Fatal(a.Verdict, a.Err)
				}
				if err := a.Lease.Release(w.Context()); err != nil && !errors.Is(err, ErrUnknown) {
					w.Fatal(err)
				}
				n++
			}
			return n
		}
		pairs(5 * time.Second)
		sick, healthy := &misconf{}, &taught{}
		masters[0].AddHook(sick)
		masters[1].AddHook(healthy)
		pairs(5 * time.Second)
		healthy.n.Store(0)
		sick.on.Store(true)
		n := pairs(10 * time.Second)
		if healthy.n.Load() > 10 || sick.asked.Load() > int64(2*n) {
			w.Errorf("in %d pairs a healthy node is taught %d times, and the sick one told %d times what it owes", n, healthy.n.Load(), sick.asked.Load())
		}
	})
}
