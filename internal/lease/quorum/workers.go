package quorum

import (
	"sync"
	"time"
)

// A workers runs functions in goroutines that it reuses, because the stack of a new goroutine would have to grow each time.
type workers struct {
	work chan func()
	over chan struct{} // closed once
	once sync.Once

	mu         sync.Mutex // not a sync.WaitGroup, which must not grow during Wait: leases are released while the client closes
	under      int        // the number of functions under way
	goroutines int        // the number of goroutines
	fewer      *sync.Cond // signals that under or goroutines became 0
}

// idleAfter is the time for which a goroutine without work is kept.
const idleAfter = time.Second

func newWorkers() *workers {
	c := &workers{work: make(chan func()), over: make(chan struct{})}
	c.fewer = sync.NewCond(&c.mu)
	return c
}

// launch runs f in the background, even while the client closes, because leases are released then. close waits for f.
func (c *workers) launch(f func()) {
	c.addCount(&c.under, 1)
	select {
	case c.work <- f:
	default:
		c.addCount(&c.goroutines, 1)
		go c.serve(f)
	}
}

func (c *workers) addCount(of *int, more int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *of += more; *of == 0 {
		c.fewer.Broadcast()
	}
}

// serve is the main function of a goroutine.
func (c *workers) serve(f func()) {
	defer c.addCount(&c.goroutines, -1)
	idle := time.NewTimer(idleAfter)
	defer idle.Stop()
	for {
		c.runOne(f)
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

func (c *workers) runOne(f func()) {
	defer c.addCount(&c.under, -1)
	f()
}

// close waits for round trips under way, which end with their timeout.
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
