package quorum

import (
	"sync"
	"time"
)

// workers runs functions in goroutines that are kept for the next ones for a while: the stack of a new one would have to grow each time.
type workers struct {
	work chan func()
	over chan struct{} // closed once
	once sync.Once

	mu         sync.Mutex // not a sync.WaitGroup, which must not be added to while it is waited for: leases are released while the client closes
	under      int        // functions under way
	goroutines int        // goroutines
	fewer      *sync.Cond // of the one or the other there are none any more
}

// idleAfter is for how long a goroutine without work is kept.
const idleAfter = time.Second

func newWorkers() *workers {
	c := &workers{work: make(chan func()), over: make(chan struct{})}
	c.fewer = sync.NewCond(&c.mu)
	return c
}

// launch runs f in the background, also while the client closes, since a last release is made then; close waits for it.
func (c *workers) launch(f func()) {
	c.count(&c.under, 1)
	select {
	case c.work <- f:
	default:
		c.count(&c.goroutines, 1)
		go c.serve(f)
	}
}

func (c *workers) count(of *int, more int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *of += more; *of == 0 {
		c.fewer.Broadcast()
	}
}

// serve is one goroutine.
func (c *workers) serve(f func()) {
	defer c.count(&c.goroutines, -1)
	idle := time.NewTimer(idleAfter)
	defer idle.Stop()
	for {
		c.do(f)
		idle.Reset(idleAfter)
		select {
		case f = <-c.work:
		case <-idle.C:
			return
		case <-c.over:
			return
		}
	}
}

func (c *workers) do(f func()) {
	defer c.count(&c.under, -1)
	f()
}

// close waits for round trips under way; they end with their time-out.
func (c *workers) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.under > 0 {
		c.fewer.Wait()
	}
	c.once.Do(func() { close(c.over) })
	for c.goroutines > 0 {
		c.fewer.Wait()
	}
}
