package cluster

import (
	"container/heap"
	"context"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// namingSchedule returns the schedule whose local times identify the ticks of a job; nil if instants identify them. For a chained job it looks at all schedules
// at the start of the chain: local times must identify the ticks of each of them, in the same zone.
func namingSchedule(zones *cronspec.Zones, infos []journal.JobInfo, job journal.JobInfo) (spec *cronspec.Schedule) {
	left, seen := []journal.JobInfo{job}, map[string]bool{}
	for len(left) > 0 {
		info := left[0]
		left = left[1:]
		if seen[info.Name] {
			continue
		}
		seen[info.Name] = true
		for _, name := range info.After {
			before, known := findJob(infos, name)
			if !known {
				return nil
			}
			left = append(left, before)
		}
		if len(info.After) > 0 {
			continue
		}
		of, _, err := scheduleOf(zones, info)
		if err != nil || !of.Nominal() || spec != nil && spec.Zone().String() != of.Zone().String() {
			return nil
		}
		spec = of
	}
	return spec
}

// scheduleOf parses the schedule that a replica has described.
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

// tickHeap is a heap of the jobs' next ticks.
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
