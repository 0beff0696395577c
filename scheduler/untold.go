package scheduler

import (
	"slices"
	"time"
)

// untold is what this replica has recorded of ticks that were settled without a run, and has not said yet: until then the cluster knows it, too, in
// case that whoever settled them has not lived to record it.
type untold struct {
	tick    time.Time
	written []*receipt
}

// tellAfter is how long after it was recorded it is said, together with what came meanwhile.
const tellAfter = 10 * time.Second

// mostUntold is how many the cluster knows of a job: the newest.
const mostUntold = 100

// toTell has the cluster told, as soon as they are written, that the records of what was settled up to a tick are.
func (s *Scheduler) toTell(t *task, tick, now time.Time, written ...*receipt) {
	t.untold = append(t.untold, untold{tick, written})
	t.untold = slices.Clone(t.untold[max(len(t.untold)-mostUntold, 0):])
	s.watch(t, now.Add(tellAfter))
}

// tells says whether this replica has recorded what was settled up to a tick.
func (t *task) tells(tick time.Time) bool {
	return slices.ContainsFunc(t.untold, func(u untold) bool { return u.tick.Equal(tick) })
}

// told are the ticks whose records are written.
func (t *task) told() (ticks []time.Time) {
	for _, u := range t.untold {
		if !slices.ContainsFunc(u.written, func(r *receipt) bool { return !r.succeeded() }) {
			ticks = append(ticks, u.tick)
		}
	}
	return ticks
}

// wasTold forgets what the cluster was told, and what was not recorded after all: whoever looks next does that.
func (s *Scheduler) wasTold(t *task, ticks []time.Time, now time.Time) {
	t.untold = slices.DeleteFunc(t.untold, func(u untold) bool {
		return slices.ContainsFunc(ticks, u.tick.Equal) || slices.ContainsFunc(u.written, (*receipt).failed)
	})
	if len(t.untold) > 0 {
		s.watch(t, now.Add(tellAfter))
	}
}
