package lease

import (
	"sync"
	"time"
)

// A ServerClock estimates the clock of a Redis server. Every reply carries the server's time, which lies between the local instants of sending and
// receiving. This bounds the difference between the clocks. The bounds from several replies are intersected (Marzullo, "Maintaining the Time in a
// Distributed System", 1984), and widened by the maximum drift. If a reply contradicts the bounds, the server's clock was stepped, and the new bounds
// replace the old ones.
//
// The zero value has no estimate. A ServerClock is safe for concurrent use.
type ServerClock struct {
	mu       sync.Mutex
	known    bool
	low      time.Duration // the minimum of server time minus local time
	high     time.Duration // the maximum of server time minus local time
	measured time.Duration // the local instant at which low and high were valid
}

// driftPart bounds the drift between two clocks: one part in 2,000, far more than the drift of quartz clocks.
const driftPart = 2000

// Observe records one reply: the server's clock showed micros, in microseconds since 1970, between the local instants sent and received.
func (c *ServerClock) Observe(micros int64, sent, received time.Duration) {
	server := time.Duration(micros) * time.Microsecond
	flight := (received - sent) / driftPart
	low, high := server-received-flight, server-sent+flight
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known {
		at := max(received, c.measured) // replies of two pipelines may be recorded out of order
		own, old := (at-received)/driftPart, (at-c.measured)/driftPart
		if l, h := max(low-own, c.low-old), min(high+own, c.high+old); l <= h {
			low, high = l, h
		} else if received < c.measured {
			return // the reply came before the clock was stepped
		}
		received = at
	}
	c.known, c.low, c.high, c.measured = true, low, high, received
}

// At returns an estimate of the server's time at a local instant, in microseconds since 1970. known is false before the first reply.
func (c *ServerClock) At(local time.Duration) (micros int64, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return (local + c.low + (c.high-c.low)/2).Microseconds(), c.known
}

// Margin returns the maximum error of the estimate at a local instant: half the width of the bounds, plus the drift since they were measured. It is 0
// before the first reply.
func (c *ServerClock) Margin(local time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return 0
	}
	return (c.high-c.low)/2 + max(local-c.measured, 0)/driftPart
}

// FromMicros converts microseconds since 1970 to a time; 0 is the zero time.
func FromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// ToMicros is the inverse of [FromMicros].
func ToMicros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}
