package main

import (
	"fmt"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/journal"
)

// farOff is the clock offset from which on a replica is warned of, in milliseconds.
const farOff = 500

// offsetEstimate is a clock's offset to that of Redis, in milliseconds. It was found by asking Redis, which takes a while: the true offset is within err of it.
type offsetEstimate struct{ ms, err int64 }

func offsetOf(r journal.Replica) offsetEstimate {
	return offsetEstimate{r.ClockOffsetMS, r.ClockErrorMS}
}

// least is how large the offset is at least, whichever its sign.
func (o offsetEstimate) least() int64 { return max(o.ms, -o.ms) - o.err }

// far tells whether the clock is wrong beyond doubt.
func (o offsetEstimate) far() bool { return o.least() > farOff }

// String shows the offset, and its error where that is much of farOff.
func (o offsetEstimate) String() string {
	if o.err < farOff/10 {
		return fmt.Sprintf("%+dms", o.ms)
	}
	return fmt.Sprintf("%+dms ±%dms", o.ms, o.err)
}

// clockWatch warns of this machine's clock, once until it is right again.
type clockWatch struct{ off bool }

// look takes the offset of this machine's clock. After a warning the clock is right again well below farOff, so that an offset near it does not fill the log.
func (w *clockWatch) look(o offsetEstimate, log hclog.Logger) {
	switch {
	case !w.off && o.far():
		w.off = true
		log.Warn("this machine's clock differs from that of Redis; promises hold, but set it right", "code", "clock_off", "offset_ms", o.ms, "error_ms", o.err)
	case w.off && o.least() < farOff/2:
		w.off = false
		log.Info("this machine's clock agrees with that of Redis again", "offset_ms", o.ms, "error_ms", o.err)
	}
}
