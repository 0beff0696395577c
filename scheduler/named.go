package scheduler

import (
	"time"

	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// named is a tick: its identity on every replica, and the instant at which it is due by some replica's zone data. The two are equal where the
// instant identifies it. See [cronspec.Schedule.ID].
type named struct{ name, at time.Time }

// local is the local time that identifies the tick, as if it were UTC; zero if its instant does.
func (n named) local() time.Time {
	if n.name.Equal(n.at) {
		return time.Time{}
	}
	return cronspec.LocalTime(n.name)
}
