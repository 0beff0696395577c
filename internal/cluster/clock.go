package cluster

import (
	"fmt"

	"github.com/cronclave/cronclave/internal/journal"
)

// MaxClockOffset is the largest offset of a replica's clock that causes no warning, in milliseconds.
const MaxClockOffset = 500

// A ClockOffset is the difference between a clock and the clock of Redis, in milliseconds. A replica measures it by a call to Redis. Because the call takes
// time, the true difference is only known to be within ErrorMS of MS.
type ClockOffset struct{ MS, ErrorMS int64 }

// ClockOffsetOf returns the offset that a replica has registered.
func ClockOffsetOf(r journal.Replica) ClockOffset {
	return ClockOffset{r.ClockOffsetMS, r.ClockErrorMS}
}

// Least returns the smallest absolute value that the true offset can have.
func (o ClockOffset) Least() int64 { return max(o.MS, -o.MS) - o.ErrorMS }

// Excessive reports whether the offset is certainly larger than [MaxClockOffset].
func (o ClockOffset) Excessive() bool { return o.Least() > MaxClockOffset }

// String returns the offset. If the error is a large part of MaxClockOffset, the text includes it.
func (o ClockOffset) String() string {
	if o.ErrorMS < MaxClockOffset/10 {
		return fmt.Sprintf("%+dms", o.MS)
	}
	return fmt.Sprintf("%+dms ±%dms", o.MS, o.ErrorMS)
}
