package scheduler

import (
	"time"

	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// A named is a tick: its identity on every replica, and the instant at which it is due by the zone data of some replica. The two are equal if the
// instant identifies the tick. See [cronspec.Schedule.ID].
type named struct{ name, at time.Time }

// localTime returns the local time that identifies the tick, as if it were UTC; zero if its instant identifies it.
func (n named) localTime() time.Time {
	if n.name.Equal(n.at) {
		return time.Time{}
	}
	return cronspec.LocalTime(n.name)
}
