package engine

import "sync"

// A signal can be set once, which closes its channel. The channel is made on first use, because most leases end before any goroutine waits for it.
// The zero value is not set.
type signal struct {
	mu  sync.Mutex
	on  bool
	lit chan struct{} // nil until first use
}

// setOnce sets the signal, and closes its channel. It does nothing for a nil signal.
func (b *signal) setOnce() {
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

// isSet reports whether the signal is set.
func (b *signal) isSet() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.on
}

// doneChannel returns a channel that is closed once the signal is set.
func (b *signal) doneChannel() <-chan struct{} {
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

// atOnce is a closed channel.
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
