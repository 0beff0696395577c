package lease

import (
	"context"
	"sync"
	"time"
)

// A Background has the lifetime and the background work of one client. It is safe for concurrent use.
type Background struct {
	clock func() time.Duration

	mu      sync.Mutex // held while work begins, so that none begins after End
	work    sync.WaitGroup
	life    context.Context
	cancel  context.CancelFunc
	endedAt time.Duration
}

// NewBackground returns a Background that lives until [Background.End]. clock is the local clock of the client.
func NewBackground(clock func() time.Duration) *Background {
	g := &Background{clock: clock}
	g.life, g.cancel = context.WithCancel(context.Background())
	return g
}

// Life returns a context that ends with [Background.End].
func (g *Background) Life() context.Context { return g.life }

// Over reports whether life has ended.
func (g *Background) Over() bool { return g.life.Err() != nil }

// Ready returns [ErrClosed] once life has ended.
func (g *Background) Ready() error {
	if g.Over() {
		return ErrClosed
	}
	return nil
}

// Sleep waits for d, or until ctx or life ends.
func (g *Background) Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-g.life.Done():
	case <-time.After(d):
	}
}

// EndedAt returns the local time of the first call of [Background.End]. It must not be called before that.
func (g *Background) EndedAt() time.Duration { return g.endedAt }

// Begin registers a call for which [Background.Wait] waits until [Background.Done]. It returns false if life has ended.
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

// Go runs f in the background. It returns false, and does not run f, if life has ended.
func (g *Background) Go(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.Over() {
		return false
	}
	g.work.Go(f)
	return true
}

// End ends life. After End, no work begins.
func (g *Background) End() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.Over() {
		g.endedAt = g.clock()
	}
	g.cancel()
}

// Wait returns when all work is done.
func (g *Background) Wait() { g.work.Wait() }
