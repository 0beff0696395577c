package operator

import (
	"fmt"

	"github.com/cronclave/cronclave/internal/journal"
)

// MaxClockOffset is the largest offset of a replica's clock, in milliseconds, that needs no warning.
const MaxClockOffset = 500

// ClockOffset is the offset of a clock to that of Redis, in milliseconds. A replica finds it by asking Redis, which takes a while: the true offset is within
// ErrorMS of MS.
type ClockOffset struct{ MS, ErrorMS int64 }

// ClockOffsetOf is the offset that a replica has registered.
func ClockOffsetOf(r journal.Replica) ClockOffset {
	return ClockOffset{r.ClockOffsetMS, r.ClockErrorMS}
}

// Least returns how large the offset is at least, whichever its sign.
func (o ClockOffset) Least() int64 { return max(o.MS, -o.MS) - o.ErrorMS }

// Excessive returns whether the offset is beyond doubt larger than [MaxClockOffset].
func (o ClockOffset) Excessive() bool { return o.Least() > MaxClockOffset }

// String shows the offset, and its error where that is much of MaxClockOffset.
func (o ClockOffset) String() string {
	if o.ErrorMS < MaxClockOffset/10 {
		return fmt.Sprintf("%+dms", o.MS)
	}
	return fmt.Sprintf("%+dms ±%dms", o.MS, o.ErrorMS)
}
