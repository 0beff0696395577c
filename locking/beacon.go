package locking

import "sync"

// beacon is lit once, for whoever looks at it. Most leases end without anybody having looked: the channel is made when somebody does. The zero value is
// one that is dark.
type beacon struct {
	mu  sync.Mutex
	on  bool
	lit chan struct{} // nil until somebody looks
}

// light lights the beacon; it stays lit. Without a beacon it does nothing.
func (b *beacon) light() {
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

// isLit tells whether it was lit.
func (b *beacon) isLit() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.on
}

// look is closed when the beacon is lit.
func (b *beacon) look() <-chan struct{} {
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
