package cluster

import (
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// A NextTick is the next tick of a job. Period is the longest time between two consecutive ticks, see [TickCache]; 0 if there is only one tick.
type NextTick struct {
	At     time.Time
	Period time.Duration
}

// A TickCache computes the next ticks of jobs. It is made for calls every few seconds with all jobs of a cluster: it parses a schedule once, and computes the
// next tick only after the last one has passed. A period involves many ticks, so it is computed once a day for all jobs with equal schedules. Only one
// goroutine may use a TickCache. The zero TickCache is empty.
type TickCache struct {
	zones   *cronspec.Zones
	jobs    map[string]cachedJob    // by name
	periods map[string]cachedPeriod // by the key of the schedule
}

// A cachedJob is a job with the digest of its configuration. Its spec is nil if it has no ticks.
type cachedJob struct {
	digest string
	spec   *cronspec.Schedule
	next   time.Time
}

// A cachedPeriod is a period and the instant at which it was computed.
type cachedPeriod struct {
	longest time.Duration
	at      time.Time
}

// A period is the longest gap between ticks from a day before its computation to eight days after. It is used for a day, so it always covers the next week. It
// also covers the last day, because the first run after a long gap, such as holidays, takes a while to end.
const (
	periodGoodFor = 24 * time.Hour
	periodBack    = 24 * time.Hour
	periodAhead   = 8 * 24 * time.Hour
)

// NextTicks returns the next tick after now of each job in infos that has one. It forgets the jobs that are not in infos. Jobs that are disabled or chained, or
// whose schedule this version cannot parse, have no ticks. If zones changes, everything is computed anew.
func (c *TickCache) NextTicks(zones *cronspec.Zones, infos []journal.JobInfo, now time.Time) map[string]NextTick {
	if zones != c.zones {
		*c = TickCache{zones: zones}
	}
	next, jobs, periods := make(map[string]NextTick, len(infos)), make(map[string]cachedJob, len(infos)), map[string]cachedPeriod{}
	for _, info := range infos {
		job := c.jobFor(info, now)
		jobs[info.Name] = job
		if job.next.IsZero() {
			continue
		}
		key := job.spec.Key()
		period, known := periods[key]
		if !known {
			period = c.periodFor(job.spec, now)
			periods[key] = period
		}
		next[info.Name] = NextTick{job.next, period.longest}
	}
	c.jobs, c.periods = jobs, periods
	return next
}

func (c *TickCache) jobFor(info journal.JobInfo, now time.Time) cachedJob {
	job, known := c.jobs[info.Name]
	if !known || job.digest != info.Digest {
		job = cachedJob{digest: info.Digest}
		if info.Enabled && len(info.After) == 0 {
			job.spec, _, _ = scheduleOf(c.zones, info) // nil if it cannot be parsed
		}
	} else if job.spec == nil || job.next.IsZero() || job.next.After(now) {
		return job
	}
	if job.spec != nil {
		job.next = job.spec.Next(now)
	}
	return job
}

func (c *TickCache) periodFor(spec *cronspec.Schedule, now time.Time) cachedPeriod {
	period, known := c.periods[spec.Key()]
	if age := now.Sub(period.at); known && age >= 0 && age < periodGoodFor { // below 0 if the clock was set back
		return period
	}
	return cachedPeriod{longestGap(spec, now.Add(-periodBack), now.Add(periodAhead)), now}
}

// Gaps longer than twice periodStep are always found, with their exact length. Shorter gaps count only between the first exactTicks ticks. So the period of a
// schedule with many ticks is too short by at most twice periodStep.
const (
	periodStep = 10 * time.Minute
	exactTicks = 25
)

// longestGap returns the longest time between two consecutive ticks, from the last tick before from to the first tick not before end, or to the 25th tick if
// that is later. It does not visit all ticks, which may be a million. Instead, it jumps ahead by a step and then to the next tick, at most 1,400 times. Only a
// jump further than twice the step can contain a longer gap, so only then it computes the length of the gap.
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
