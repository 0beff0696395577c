// Package background manages the lifetime of a client, and the work that continues in the background after a call has returned.
package background

import (
	"context"
	"sync"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// A Group has the lifetime and the background work of one client. It is safe for concurrent use.
type Group struct {
	clock func() time.Duration

	mu      sync.Mutex // makes sure that no work begins after End
	work    sync.WaitGroup
	life    context.Context
	cancel  context.CancelFunc
	endedAt time.Duration // the local time at which life ended
}

// New returns a group that lives until [Group.End].
func New(clock func() time.Duration) *Group {
	g := &Group{clock: clock}
	g.life, g.cancel = context.WithCancel(context.Background())
	return g
}

// Life returns a context that ends with [Group.End].
func (g *Group) Life() context.Context { return g.life }

// Over reports whether life has ended.
func (g *Group) Over() bool { return g.life.Err() != nil }

// Ready returns [lease.ErrClosed] once life has ended.
func (g *Group) Ready() error {
	if g.Over() {
		return lease.ErrClosed
	}
	return nil
}

// Sleep waits for d, or until ctx or life ends.
func (g *Group) Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-g.life.Done():
	case <-time.After(d):
	}
}

// EndedAt returns the local time at which life ended. It must not be called before.
func (g *Group) EndedAt() time.Duration { return g.endedAt }

// Begin registers a call for which [Group.Wait] waits until [Group.Done]. It returns false if life has ended.
func (g *Group) Begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.Over() {
		return false
	}
	g.work.Add(1)
	return true
}

// Done ends a call that [Group.Begin] has registered.
func (g *Group) Done() { g.work.Done() }

// Go runs f in the background. It returns false, and does not run f, if life has ended.
func (g *Group) Go(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.Over() {
		return false
	}
	g.work.Go(f)
	return true
}

// End ends life. After End, no work begins.
func (g *Group) End() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.Over() {
		g.endedAt = g.clock()
	}
	g.cancel()
}

// Wait returns when all work is done.
func (g *Group) Wait() { g.work.Wait() }
