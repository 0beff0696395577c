package cluster

import (
	"container/heap"
	"context"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// namingSchedule returns the schedule whose local times identify the ticks of a job; nil if instants identify them. A chained job has the ticks of the jobs at
// the start of its chain. Its result is nil if one of these jobs is unknown, has ticks that are identified by instants, or has another zone than the others.
func namingSchedule(zones *cronspec.Zones, infos []journal.JobInfo, job journal.JobInfo) (spec *cronspec.Schedule) {
	for _, of := range schedulesOf(zones, infos, job) {
		if !of.Nominal() || spec != nil && spec.Zone().String() != of.Zone().String() {
			return nil
		}
		spec = of
	}
	return spec
}

// lineOf returns a job and all jobs before it, through `after`. whole is false if one of these jobs is unknown.
func lineOf(infos []journal.JobInfo, job journal.JobInfo) (line []journal.JobInfo, whole bool) {
	seen := map[string]bool{job.Name: true}
	line, whole = []journal.JobInfo{job}, true
	for i := 0; i < len(line); i++ {
		for _, name := range line[i].After {
			if seen[name] {
				continue
			}
			seen[name] = true
			before, known := findJob(infos, name)
			if whole = whole && known; known {
				line = append(line, before)
			}
		}
	}
	return line, whole
}

// schedulesOf returns the schedules whose common instants are the ticks of a job: its own or, for a chained job, the schedules of the jobs at the start of its
// chain. It returns nil if one of these jobs is unknown, or has a schedule that this version cannot parse.
func schedulesOf(zones *cronspec.Zones, infos []journal.JobInfo, job journal.JobInfo) (specs []*cronspec.Schedule) {
	line, whole := lineOf(infos, job)
	if !whole {
		return nil
	}
	for _, info := range line {
		if len(info.After) > 0 {
			continue
		}
		spec, _, err := scheduleOf(zones, info)
		if err != nil {
			return nil
		}
		specs = append(specs, spec)
	}
	return specs
}

// mostSteps limits the search for a common instant of several schedules, which may have none for centuries.
const mostSteps = 1000

// tickBefore returns the last common instant of schedules before t; zero if there is none, or if none is found.
func tickBefore(specs []*cronspec.Schedule, t time.Time) time.Time {
	return commonTick(specs, t, (*cronspec.Schedule).Prev, time.Time.Before, time.Second)
}

// tickAfter returns the first common instant of schedules after t; zero if there is none, or if none is found.
func tickAfter(specs []*cronspec.Schedule, t time.Time) time.Time {
	return commonTick(specs, t, (*cronspec.Schedule).Next, time.Time.After, -time.Second)
}

// commonTick steps from t to the furthest of the schedules' next ticks until they are all the same. back leads from a tick to a time whose next tick may be it.
func commonTick(specs []*cronspec.Schedule, t time.Time, next func(*cronspec.Schedule, time.Time) time.Time, further func(time.Time, time.Time) bool, back time.Duration) time.Time {
	for range mostSteps {
		var furthest time.Time
		same := true
		for i, spec := range specs {
			at := next(spec, t)
			if at.IsZero() {
				return at
			}
			same = same && (i == 0 || at.Equal(furthest))
			if i == 0 || further(at, furthest) {
				furthest = at
			}
		}
		if same {
			return furthest
		}
		t = furthest.Add(back)
	}
	return time.Time{}
}

// hasTicksLeft reports whether each schedule has a tick after now. It returns true for no schedules, which are unknown.
func hasTicksLeft(specs []*cronspec.Schedule, now time.Time) bool {
	return !slices.ContainsFunc(specs, func(s *cronspec.Schedule) bool { return s.Next(now).IsZero() })
}

// problemOfExpired is the time for which the last failure or tick of an expired job can be a problem. No later run could end the problem.
const problemOfExpired = 7 * 24 * time.Hour

// isOver reports whether a failure or a tick of a job at t is no problem any more, because the job has expired.
func isOver(specs []*cronspec.Schedule, t, now time.Time) bool {
	return now.Sub(t) > problemOfExpired && !hasTicksLeft(specs, now)
}

func scheduleOf(zones *cronspec.Zones, info journal.JobInfo) (spec *cronspec.Schedule, zone *time.Location, err error) {
	if zone, err = zones.Location(info.Timezone); err != nil {
		return nil, nil, err
	}
	spec, err = cronspec.Parse(info.Schedule, cronspec.Options{Name: info.Name, Location: zone,
		Except: info.Except, ExceptDates: info.ExceptDates, StartsAt: info.StartsAt, ExpiresAt: info.ExpiresAt})
	return spec, zone, err
}

// nextTick returns the next tick of a job in its zone; nil if it has none, or if its schedule cannot be parsed.
func nextTick(zones *cronspec.Zones, info journal.JobInfo, now time.Time) *time.Time {
	if !info.Enabled {
		return nil
	}
	spec, zone, err := scheduleOf(zones, info)
	if err != nil {
		return nil
	}
	next := spec.Next(now)
	if next.IsZero() {
		return nil
	}
	next = next.In(zone)
	return &next
}

// A Scheduled is a job with its parsed schedule.
type Scheduled struct {
	Job  string
	Spec *cronspec.Schedule
	Zone *time.Location
}

// A Window selects ticks: From < tick <= Until, and at most Limit of them. A zero Until means no end.
type Window struct {
	From, Until time.Time
	Limit       int
}

// A Tick is a tick of a job.
type Tick struct {
	Scheduled
	At time.Time
}

// Upcoming returns the ticks of jobs within a window, in time order. Ticks of one instant are sorted by job.
func Upcoming(jobs []Scheduled, w Window) []Tick {
	var next tickHeap
	for _, j := range jobs {
		if t := j.Spec.Next(w.From); !t.IsZero() {
			next = append(next, Tick{j, t})
		}
	}
	heap.Init(&next)
	var ticks []Tick
	for len(next) > 0 && len(ticks) < w.Limit {
		first := next[0]
		if !w.Until.IsZero() && first.At.After(w.Until) {
			break
		}
		ticks = append(ticks, first)
		if next[0].At = first.Spec.Next(first.At); next[0].At.IsZero() {
			heap.Pop(&next)
			continue
		}
		heap.Fix(&next, 0)
	}
	return ticks
}

// NextTicks returns the ticks within a window of the named jobs, or of all jobs if names is empty. It uses the schedules that replicas have described. Jobs
// that are disabled or chained, or whose schedule this version cannot parse, have no ticks.
func (o *Operator) NextTicks(ctx context.Context, names []string, w Window) ([]Tick, error) {
	infos, err := o.describedJobs(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if slices.ContainsFunc(infos, func(info journal.JobInfo) bool { return info.Name == name }) {
			continue
		}
		if err := o.mustKnow(ctx, name); err != nil {
			return nil, err
		}
	}
	jobs := scheduledJobs(o.Zones(), infos)
	if len(names) > 0 {
		jobs = slices.DeleteFunc(jobs, func(j Scheduled) bool { return !slices.Contains(names, j.Job) })
	}
	return Upcoming(jobs, w), nil
}

// Schedules returns the schedules of enabled jobs by name, for the same jobs as [Operator.NextTicks].
func (o *Operator) Schedules(ctx context.Context) (map[string]Scheduled, error) {
	infos, err := o.describedJobs(ctx)
	if err != nil {
		return nil, err
	}
	jobs := map[string]Scheduled{}
	for _, j := range scheduledJobs(o.Zones(), infos) {
		jobs[j.Job] = j
	}
	return jobs, nil
}

// scheduledJobs returns the enabled jobs with a schedule that this version can parse.
func scheduledJobs(zones *cronspec.Zones, infos []journal.JobInfo) (jobs []Scheduled) {
	for _, info := range infos {
		if !info.Enabled || len(info.After) > 0 {
			continue
		}
		if spec, zone, err := scheduleOf(zones, info); err == nil {
			jobs = append(jobs, Scheduled{info.Name, spec, zone})
		}
	}
	return jobs
}

// A tickHeap has the next tick of each job, the earliest first.
type tickHeap []Tick

func (h tickHeap) Len() int { return len(h) }
func (h tickHeap) Less(i, j int) bool {
	if c := h[i].At.Compare(h[j].At); c != 0 {
		return c < 0
	}
	return h[i].Job < h[j].Job
}
func (h tickHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push adds a tick, for package heap.
func (h *tickHeap) Push(x any) { *h = append(*h, x.(Tick)) }

// Pop removes the last tick, for package heap.
func (h *tickHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

// A NextTick is the next tick of a job. Period is the longest time between two consecutive ticks, see [TickCache]; 0 if there is only one tick.
type NextTick struct {
	At     time.Time
	Period time.Duration
}

// A TickCache computes the next ticks and the periods of jobs, for callers that need them every few seconds for all jobs of a cluster. It parses a schedule
// once, and computes the next tick only after the last one has passed. A period takes many ticks to compute, so it is computed once a day, and jobs with equal
// schedules share it. Only one goroutine may use a TickCache. The zero TickCache is empty.
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

type cachedPeriod struct {
	longest time.Duration
	at      time.Time // time of the computation
}

// A period is the longest gap between ticks from a day before its computation to eight days after. It is cached for a day, so it always covers the next week.
// It begins a day back so that it does not shrink while the first run after a long gap, such as holidays, is in progress.
const (
	periodGoodFor = 24 * time.Hour
	periodBack    = 24 * time.Hour
	periodAhead   = 8 * 24 * time.Hour
)

// NextTicks returns the next tick after now for each job in infos. Jobs that are disabled or chained, or whose schedule this version cannot parse, have no
// ticks. NextTicks removes jobs that are not in infos from the cache. If zones changes, everything is computed anew.
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
	if age := now.Sub(period.at); known && age >= 0 && age < periodGoodFor { // age is negative if the clock was set back
		return period
	}
	return cachedPeriod{longestGap(spec, now.Add(-periodBack), now.Add(periodAhead)), now}
}

// longestGap measures the first exactTicks gaps. After them, it may miss gaps of up to twice periodStep. So the period of a schedule with many ticks is too
// short by at most twice periodStep.
const (
	periodStep = 10 * time.Minute
	exactTicks = 25
)

// longestGap returns the longest time between two consecutive ticks, from the last tick before from to the first tick not before end, or to the 25th tick if
// that is later. There may be a million ticks, so it does not visit all of them. It jumps ahead by a step and then to the next tick, at most 1,400 times. Only
// a jump of more than two steps can contain a longer gap, so it measures only the gaps at the end of such jumps.
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
