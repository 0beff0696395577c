package engine_test

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/internal/lease/engine"
)

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
	for name, tc := range map[string]struct {
		stop func(c *engine.Client, cancel context.CancelFunc)
		want error
	}{
		"when the client closes": {func(c *engine.Client, _ context.CancelFunc) { _ = c.Close() }, engine.ErrClosed},
		"when it is cancelled":   {func(_ *engine.Client, cancel context.CancelFunc) { cancel() }, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			servers, clients := masters(t, 3)
			var silent mumbling
			for _, c := range clients {
				c.AddHook(&silent)
			}
			c, err := engine.New(engine.Config{Quorum: clients, Timeout: time.Second})
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
				_, err := c.Mutex("m", engine.WithLease(time.Hour)).Lock(ctx)
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
