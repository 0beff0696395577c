package operator

import (
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// NextTick is when a job is next due, and Period the longest time between two of its ticks that follow each other, see [TickCache]; 0 for a single one.
type NextTick struct {
	At     time.Time
	Period time.Duration
}

// TickCache computes the next ticks of jobs. It is made to be asked every few seconds for all jobs of a cluster: it parses a schedule once, computes the
// next tick once for each tick, and the period, which looks at many ticks, once a day for all jobs with equal schedules. It belongs to one goroutine; the
// zero TickCache is empty.
type TickCache struct {
	zones   *cronspec.Zones
	jobs    map[string]cachedJob    // by name
	periods map[string]cachedPeriod // by the key of the schedule
}

// cachedJob is a job with a digest of its configuration. It has no schedule if it has no ticks.
type cachedJob struct {
	digest string
	spec   *cronspec.Schedule
	next   time.Time
}

// cachedPeriod was computed at an instant.
type cachedPeriod struct {
	longest time.Duration
	at      time.Time
}

// A period covers the gaps from a day before it is computed until eight days after, and is good for a day: so the gaps of the next week are always in it.
// Those of the last day are in it since the first run after a long gap, such as holidays, takes a while to end.
const (
	periodGoodFor = 24 * time.Hour
	periodBack    = 24 * time.Hour
	periodAhead   = 8 * 24 * time.Hour
)

// NextTicks returns the next tick after now of each job that has one, and forgets all other jobs. A job that is not enabled or runs after others, or whose
// schedule this version cannot read, has none. With other zones than before all is computed anew.
func (c *TickCache) NextTicks(zones *cronspec.Zones, infos []journal.JobInfo, now time.Time) map[string]NextTick {
	if zones != c.zones {
		*c = TickCache{zones: zones}
	}
	next, jobs, periods := make(map[string]NextTick, len(infos)), make(map[string]cachedJob, len(infos)), map[string]cachedPeriod{}
	for _, info := range infos {
		job := c.job(info, now)
		jobs[info.Name] = job
		if job.next.IsZero() {
			continue
		}
		key := job.spec.Key()
		period, known := periods[key]
		if !known {
			period = c.period(job.spec, now)
			periods[key] = period
		}
		next[info.Name] = NextTick{job.next, period.longest}
	}
	c.jobs, c.periods = jobs, periods
	return next
}

func (c *TickCache) job(info journal.JobInfo, now time.Time) cachedJob {
	job, known := c.jobs[info.Name]
	if !known || job.digest != info.Digest {
		job = cachedJob{digest: info.Digest}
		if info.Enabled && len(info.After) == 0 {
			job.spec, _, _ = scheduleOf(c.zones, info) // nil if it cannot be read
		}
	} else if job.spec == nil || job.next.IsZero() || job.next.After(now) {
		return job
	}
	if job.spec != nil {
		job.next = job.spec.Next(now)
	}
	return job
}

func (c *TickCache) period(spec *cronspec.Schedule, now time.Time) cachedPeriod {
	period, known := c.periods[spec.Key()]
	if age := now.Sub(period.at); known && age >= 0 && age < periodGoodFor { // below 0 if the clock was put back
		return period
	}
	return cachedPeriod{longestGap(spec, now.Add(-periodBack), now.Add(periodAhead)), now}
}

// A longer gap than twice periodStep is found, and its length is exact. Of shorter ones those between the first exactTicks ticks count, so the period of a
// schedule with many ticks is at most twice periodStep too short.
const (
	periodStep = 10 * time.Minute
	exactTicks = 25
)

// longestGap returns the longest time between two ticks that follow each other, from the last tick before an instant to the first one that is not before
// end, or the 25th if that is later. It does not visit all ticks, which may be a million: it jumps by a step and to the tick that follows, at most 1,400
// times, and looks for the true length of a gap only where a jump went further than twice the step. No longer gap fits between two jumps.
func longestGap(spec *cronspec.Schedule, from, end time.Time) (longest time.Duration) {
	tick := spec.Prev(from)
	if tick.IsZero() {
		tick = spec.Next(from)
	}
	for range exactTicks {
		next := spec.Next(tick)
		if next.IsZero() {
			return longest
		}
		longest = max(longest, next.Sub(tick))
		tick = next
	}
	for tick.Before(end) {
		step := max(periodStep, longest/2)
		next := spec.Next(tick.Add(step))
		if next.IsZero() {
			return longest
		}
		if next.Sub(tick) > 2*step {
			longest = max(longest, next.Sub(spec.Prev(next)))
		}
		tick = next
	}
	return longest
}
