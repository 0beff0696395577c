package engine

import "sync"

// signal is lit once, for any goroutine that looks at it. Most leases end before any goroutine has looked, so
// the channel is made at the first look. The zero value is one that is dark.
type signal struct {
	mu  sync.Mutex
	on  bool
	lit chan struct{} // nil until the first look
}

// light lights the signal; it stays lit. Without a signal it does nothing.
func (b *signal) light() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.on && b.lit != nil {
		close(b.lit)
	}
	b.on = true
}

// isLit reports whether it was lit.
func (b *signal) isLit() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.on
}

// look is closed when the signal is lit.
func (b *signal) look() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.lit != nil:
	case b.on:
		b.lit = atOnce
	default:
		b.lit = make(chan struct{})
	}
	return b.lit
}

// atOnce is a channel that is closed.
var atOnce = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
