//go:build unix

package agenda

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// BenchmarkTimeline runs the timeline and robfig's engine in turn, on the same jobs that do nothing but note how late they
// are, in real time. It reports for both the CPU time of one wake-up (user and system, of the whole process), the 99th
// percentile of the lateness, and their ratios; and how much memory the timeline needs for an entry, jobs and parsed
// schedules aside. It takes about four minutes:
//
//	go test -run '^$' -bench Timeline ./scheduler/internal/agenda
func BenchmarkTimeline(b *testing.B) {
	for _, c := range []struct {
		name  string
		exprs []string
	}{
		{"all-each-second", []string{"* * * * * *"}},
		{"one-in-sixty", secondsOfTheMinute()},
	} {
		for _, n := range []int{1_000, 10_000, 100_000} {
			b.Run(fmt.Sprintf("%s/%d", c.name, n), func(b *testing.B) {
				for range b.N {
					compareEngines(b, c.exprs, n)
				}
			})
		}
	}
}

// secondsOfTheMinute returns sixty expressions, each of which is due in one second of the minute.
func secondsOfTheMinute() []string {
	var exprs []string
	for second := range 60 {
		exprs = append(exprs, fmt.Sprintf("%d * * * * *", second))
	}
	return exprs
}

// BenchmarkTimelineMemory reports the memory of an entry where no two share a schedule: the worst case.
func BenchmarkTimelineMemory(b *testing.B) {
	for _, n := range []int{100_000, 120_000} { // the map has just grown at the second
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			specs := distinctSchedules(b, n, false)
			jobs := make([]*benchJob, n)
			for range b.N {
				_, bytes := fillTimeline(specs, jobs)
				b.ReportMetric(bytes, "ours-B/entry")
			}
		})
	}
}

// BenchmarkTimelineTake reports the time of one tick of one entry, its next one computed, where no two entries share a
// schedule: due at instants of their own, and due all at once.
func BenchmarkTimelineTake(b *testing.B) {
	const n = 100_000
	for _, together := range []bool{false, true} {
		b.Run(fmt.Sprintf("together=%t", together), func(b *testing.B) {
			specs := distinctSchedules(b, n, together)
			line, _ := fillTimeline(specs, make([]*benchJob, n))
			taken := 0
			for b.Loop() {
				at, _ := line.next()
				for again := true; again; {
					buckets := line.takeDue(at)
					taken += len(buckets)
					again = len(buckets) > 0
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(taken), "ns/tick")
		})
	}
}

// distinctSchedules returns schedules of which no two are equal: all due at each full minute, or spread over the day.
func distinctSchedules(b *testing.B, n int, together bool) []*cronspec.Schedule {
	var specs []*cronspec.Schedule
	for i := range n {
		second, minute, hour, day := i%60, i/60%60, i/3600%24, i/86_400+1
		exprs := []string{fmt.Sprintf("%d %d %d * * *", second, minute, hour), fmt.Sprintf("@every %ds", 100_000+i)}
		if together {
			exprs = []string{"0 * * * * *", fmt.Sprintf("%d %d %d %d 1 *", second, minute, hour, day)}
		}
		specs = append(specs, parseSchedule(b, exprs...))
	}
	return specs
}

// benchJob notes how late it is, within its second.
type benchJob struct{ lateness *benchSamples }

// Run implements cron.Job.
func (j *benchJob) Run() { j.lateness.add(time.Now().Nanosecond()) }

// benchSamples collects nanoseconds from any number of goroutines, while it is open.
type benchSamples struct {
	open  atomic.Bool
	count atomic.Int64
	list  []int32
}

func (s *benchSamples) add(nanoseconds int) {
	if s.open.Load() {
		if i := s.count.Add(1) - 1; i < int64(len(s.list)) {
			s.list[i] = int32(nanoseconds)
		}
	}
}

func (s *benchSamples) percentile(percent int) time.Duration {
	taken := s.list[:min(s.count.Load(), int64(len(s.list)))]
	slices.Sort(taken)
	if len(taken) == 0 {
		return 0
	}
	return time.Duration(taken[len(taken)*percent/100])
}

// benchEngine runs jobs until it is stopped; stop waits.
type benchEngine func(exprs []string, jobs []*benchJob) (stop func())

const (
	benchRounds  = 3
	benchSeconds = 4
)

func compareEngines(b *testing.B, exprs []string, n int) {
	var cpu [2]time.Duration
	var late [2]benchSamples
	for i := range late {
		late[i].list = make([]int32, 2*n*benchSeconds*benchRounds/len(exprs))
	}
	for range benchRounds {
		for i, run := range []benchEngine{runTimeline, runRobfig} {
			jobs := make([]*benchJob, n)
			for k := range jobs {
				jobs[k] = &benchJob{&late[i]}
			}
			cpu[i] += measure(run, exprs, jobs, &late[i])
		}
	}
	const wakeups = benchRounds * benchSeconds
	ours, robfig := late[0].percentile(99), late[1].percentile(99)
	_, bytes := fillTimeline(parseEach(exprs), make([]*benchJob, n))
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(cpu[0].Seconds()*1e3/wakeups, "ours-cpu-ms/wake")
	b.ReportMetric(cpu[1].Seconds()*1e3/wakeups, "robfig-cpu-ms/wake")
	b.ReportMetric(float64(cpu[0])/float64(cpu[1]), "cpu-ratio")
	b.ReportMetric(ours.Seconds()*1e3, "ours-p99-ms")
	b.ReportMetric(robfig.Seconds()*1e3, "robfig-p99-ms")
	b.ReportMetric(float64(ours)/float64(robfig), "p99-ratio")
	b.ReportMetric(bytes, "ours-B/entry")
	for i := range late {
		if ran, all := late[i].count.Load(), int64(len(late[i].list)/2); ran < all*9/10 {
			b.Errorf("engine %d ran %d jobs of %d", i, ran, all)
		}
	}
}

// measure runs an engine and returns the CPU time of some whole seconds, from the middle of one to the middle of another,
// after the engine's first wake-up.
func measure(run benchEngine, exprs []string, jobs []*benchJob, late *benchSamples) time.Duration {
	runtime.GC()
	stop := run(exprs, jobs)
	defer stop()
	begin := time.Now().Truncate(time.Second).Add(1500 * time.Millisecond)
	<-time.After(time.Until(begin))
	late.open.Store(true)
	before := cpuTime()
	<-time.After(time.Until(begin.Add(benchSeconds * time.Second)))
	used := cpuTime() - before
	late.open.Store(false)
	return used
}

// cpuTime is the process's user and system time.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func parseEach(exprs []string) []*cronspec.Schedule {
	var specs []*cronspec.Schedule
	for _, expr := range exprs {
		spec, err := cronspec.Parse([]string{expr}, cronspec.Options{})
		if err != nil {
			panic(err)
		}
		specs = append(specs, spec)
	}
	return specs
}

// fillTimeline enters jobs, with the specs in turn, and returns how many bytes an entry needs.
func fillTimeline(specs []*cronspec.Schedule, jobs []*benchJob) (*timeline[*benchJob], float64) {
	before := heapInUse()
	line := &timeline[*benchJob]{}
	now := time.Now()
	for i, j := range jobs {
		line.add(specs[i%len(specs)], j, now)
	}
	after := heapInUse()
	runtime.KeepAlive(specs)
	runtime.KeepAlive(jobs)
	return line, float64(after-before) / float64(len(jobs))
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// runTimeline drives a timeline by a timer, and one consumer that runs the jobs of each bucket.
func runTimeline(exprs []string, jobs []*benchJob) (stop func()) {
	line, _ := fillTimeline(parseEach(exprs), jobs)
	end := make(chan struct{})
	buckets := make(chan []dueBucket[*benchJob], 1)
	var running sync.WaitGroup
	running.Go(func() {
		for taken := range buckets {
			for _, b := range taken {
				for _, j := range b.entries {
					j.Run()
				}
			}
		}
	})
	running.Go(func() {
		defer close(buckets)
		timer := time.NewTimer(0)
		for {
			select {
			case <-end:
				return
			case <-timer.C:
			}
			if taken := line.takeDue(time.Now()); len(taken) > 0 {
				buckets <- taken
			}
			at, _ := line.next()
			timer.Reset(time.Until(at))
		}
	})
	return func() {
		close(end)
		running.Wait()
	}
}

// runRobfig drives robfig's own engine.
func runRobfig(exprs []string, jobs []*benchJob) (stop func()) {
	var specs []cron.Schedule
	parser := cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	for _, expr := range exprs {
		spec, err := parser.Parse(expr)
		if err != nil {
			panic(err)
		}
		specs = append(specs, spec)
	}
	c := cron.New(cron.WithSeconds())
	for i, j := range jobs {
		c.Schedule(specs[i%len(specs)], j)
	}
	c.Start()
	return func() { <-c.Stop().Done() }
}
