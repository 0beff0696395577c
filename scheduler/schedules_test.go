package scheduler_test

import (
	"iter"
	"time"
)

// spelled are schedules by hand: functions that return whether an instant is a tick, without any parser.
var spelled = map[string]func(t time.Time) bool{
	"often":       func(t time.Time) bool { return t.Second()%2 == 0 },
	"overlaps":    func(t time.Time) bool { return t.Second()%5 == 0 },
	"parallel":    func(t time.Time) bool { return t.Second()%10 == 0 },
	"short-lease": func(t time.Time) bool { return t.Second()%10 == 0 },
	"queues":      func(t time.Time) bool { return t.Second()%5 == 0 },
	"replaces":    func(t time.Time) bool { return t.Second()%10 == 0 },
	"pooled":      func(t time.Time) bool { return t.Second()%10 == 0 },
	"caught-up":   func(t time.Time) bool { return t.Second()%10 == 0 },
	"stubborn":    func(t time.Time) bool { return t.Second() == 0 },
	"stumbles":    func(t time.Time) bool { return t.Second()%20 == 0 },
}

// due lists the ticks of a job after the start of the test up to an instant, second by second.
func (c *cluster) due(job string, until time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		for t := c.start.Add(time.Second); !t.After(until); t = t.Add(time.Second) {
			if spelled[job](t.UTC()) && !yield(t) {
				return
			}
		}
	}
}
