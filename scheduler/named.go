package scheduler

import (
	"time"

	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// A named identifies a tick. name is the same on every replica. at is the instant of the tick, computed from one replica's zone data. Both are equal
// if the schedule identifies ticks by their instants. See [cronspec.Schedule.ID].
type named struct{ name, at time.Time }

// localTime returns the local time that identifies the tick, with UTC as its zone, or zero if the instant identifies the tick.
func (n named) localTime() time.Time {
	if n.name.Equal(n.at) {
		return time.Time{}
	}
	return cronspec.LocalTime(n.name)
}
