package config

import (
	"strings"
	"time"
)

// noMax is the number of tries that nobody has set.
const noMax = -1

func retryKeys() section[Retry] {
	return section[Retry]{keys: map[string]func(*reader, value, *Retry){
		"max":       func(r *reader, v value, to *Retry) { assign(&to.Max)(r.integer(v, 0, 100)) },
		"delay":     func(r *reader, v value, to *Retry) { assign(&to.Delay)(r.duration(v, time.Millisecond)) },
		"max_delay": func(r *reader, v value, to *Retry) { assign(&to.MaxDelay)(r.duration(v, time.Millisecond)) },
	}}
}

// finishRetry looks at the job's own retry and that of [defaults] together: each key of the one takes the place of the other's.
func (r *reader) finishRetry(d *draft) {
	v, set := d.at["retry"]
	switch {
	case !set || d.wrong["retry"]:
	case d.Retry.Max == noMax && strings.HasPrefix(v.path, "jobs."):
		r.fault(v, "retry has no max; set how many more tries a failed run gets, such as retry = { max = 3 }")
	case d.Retry.Max > 0 && d.Retry.MaxDelay > 0 && d.Retry.MaxDelay < d.Retry.Delay:
		r.fault(v, "retry.max_delay is less than retry.delay, from which the pauses grow")
	}
	if d.Retry.Max <= 0 {
		d.Retry = Retry{}
	}
}
