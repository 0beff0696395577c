package lease

import (
	"context"
	"sync"
	"time"
)

// A Background tracks the lifetime of one client and the work that the client does in the background. It is safe for concurrent use.
type Background struct {
	clock func() time.Duration

	mu      sync.Mutex // held while work is registered, so that no work begins after End
	work    sync.WaitGroup
	life    context.Context
	cancel  context.CancelFunc
	endedAt time.Duration
}

// NewBackground returns a Background that lives until [Background.End]. clock returns the local time.
func NewBackground(clock func() time.Duration) *Background {
	g := &Background{clock: clock}
	g.life, g.cancel = context.WithCancel(context.Background())
	return g
}

// Life returns a context that [Background.End] cancels.
func (g *Background) Life() context.Context { return g.life }

// Over reports whether [Background.End] was called.
func (g *Background) Over() bool { return g.life.Err() != nil }

// Ready returns nil before [Background.End], and [ErrClosed] afterwards.
func (g *Background) Ready() error {
	if g.Over() {
		return ErrClosed
	}
	return nil
}

// Sleep waits for d. It returns early if ctx ends or [Background.End] is called.
func (g *Background) Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-g.life.Done():
	case <-time.After(d):
	}
}

// Begin registers a call for which [Background.Wait] waits until [Background.Done]. It returns false after [Background.End].
func (g *Background) Begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.Over() {
		return false
	}
	g.work.Add(1)
	return true
}

// Done ends a call that [Background.Begin] has registered.
func (g *Background) Done() { g.work.Done() }

// Go runs f in the background. After [Background.End] it returns false and does not run f.
func (g *Background) Go(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.Over() {
		return false
	}
	g.work.Go(f)
	return true
}

// End cancels the context of [Background.Life]. After End, no work begins.
func (g *Background) End() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.Over() {
		g.endedAt = g.clock()
	}
	g.cancel()
}

// Wait waits until every function of [Background.Go] has returned and every call of [Background.Begin] is done.
func (g *Background) Wait() { g.work.Wait() }
