package locking

import (
	"sync"
	"time"
)

// serverClock estimates the server's clock. Every reply tells the server's time, which lies between the
// local instants of sending and receiving; the difference is therefore known up to the round trip. Bounds of
// several replies are intersected (Marzullo, "Maintaining the Time in a Distributed System", 1984), and widened
// by the drift that clocks may have. A reply that contradicts them means that the server's clock was stepped.
type serverClock struct {
	mu       sync.Mutex
	known    bool
	low      time.Duration // server time minus local time is at least this,
	high     time.Duration // and at most this,
	measured time.Duration // as of this local instant
}

// driftPart is how far two clocks drift apart at most: one part in 2,000, well above what crystals do.
const driftPart = 2000

// observe takes in one reply: the server said micros (since 1970) between the local instants sent and received.
func (c *serverClock) observe(micros int64, sent, received time.Duration) {
	server := time.Duration(micros) * time.Microsecond
	flight := (received - sent) / driftPart
	low, high := server-received-flight, server-sent+flight
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known {
		at := max(received, c.measured) // replies of two pipelines may be taken in out of order
		own, old := (at-received)/driftPart, (at-c.measured)/driftPart
		if l, h := max(low-own, c.low-old), min(high+own, c.high+old); l <= h {
			low, high = l, h
		} else if received < c.measured {
			return // from before the step
		}
		received = at
	}
	c.known, c.low, c.high, c.measured = true, low, high, received
}

// at is the estimate of the server's time, in microseconds since 1970, at a local instant.
func (c *serverClock) at(local time.Duration) (micros int64, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return (local + c.low + (c.high-c.low)/2).Microseconds(), c.known
}

// margin is how far the estimate may be off at a local instant: half of the round trip that it comes from, and the drift since.
func (c *serverClock) margin(local time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return 0
	}
	return (c.high-c.low)/2 + max(local-c.measured, 0)/driftPart
}

// fromMicros turns the server's microseconds into a time; 0 is the zero time.
func fromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// toMicros is the inverse of fromMicros.
func toMicros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}
