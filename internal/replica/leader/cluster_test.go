package leader

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn/redistest"
	"github.com/cronclave/cronclave/internal/web/metrics"
)

// readerAt returns a reader with the zones built in.
func readerAt(now func() time.Time) *clusterReader {
	return &clusterReader{now: now, config: func() *config.Config { return new(config.Config) }}
}

// The next tick of a job, and the longest time between two: of a job of working days that is a weekend, also on a Monday.
// Promise: P6
func TestNextTicks(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC) // a Monday
	r := readerAt(func() time.Time { return now })
	jobs := []journal.JobInfo{{Name: "work", Schedule: []string{"0 9 * * 1-5"}, Timezone: "UTC", Enabled: true, Digest: "1"},
		{Name: "off", Schedule: []string{"@daily"}, Timezone: "UTC"}, {Name: "after", After: []string{"work"}, Timezone: "UTC", Enabled: true}}
	expect := func(want map[string]metrics.NextTick) {
		t.Helper()
		if next := r.nextTicks(jobs); !maps.Equal(next, want) {
			t.Errorf("at %v: %v, want %v", now, next, want)
		}
	}
	const weekend = 72 * time.Hour
	expect(map[string]metrics.NextTick{"work": {At: now.Add(21 * time.Hour), Period: weekend}})
	now = now.Add(21 * time.Hour)
	expect(map[string]metrics.NextTick{"work": {At: now.Add(24 * time.Hour), Period: weekend}})
	jobs[0].Schedule, jobs[0].Digest = []string{"@hourly"}, "2"
	expect(map[string]metrics.NextTick{"work": {At: now.Add(time.Hour), Period: time.Hour}})
	jobs = jobs[1:]
	expect(map[string]metrics.NextTick{})
}

// The period is the longest gap at every hour of a week: that of the night or the weekend also within it, and with many ticks before it. A reader that
// is new at that hour finds the same as one that has read all week.
// Promise: P6
func TestPeriodAtEachHourOfAWeek(t *testing.T) {
	t.Parallel()
	monday := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	for schedule, want := range map[string]time.Duration{
		"*/10 9-17 * * *":      15*time.Hour + 10*time.Minute,
		"0 9-17 * * 1-5":       64 * time.Hour,
		"* * 9-17 * * 1-5":     63*time.Hour + time.Second,
		"*/15 * * * * *":       15 * time.Second,
		"0,20 * * * *":         40 * time.Minute,
		"30 4 1 * *":           31 * 24 * time.Hour,
		"0 0-11,13-23/2 * * *": 2 * time.Hour,
	} {
		now := monday
		jobs := []journal.JobInfo{{Name: "j", Schedule: []string{schedule}, Timezone: "UTC", Enabled: true}}
		kept := readerAt(func() time.Time { return now })
		for hour := range 7 * 24 {
			now = monday.Add(time.Duration(hour)*time.Hour + 55*time.Minute)
			fresh := readerAt(kept.now)
			if old, anew := kept.nextTicks(jobs)["j"], fresh.nextTicks(jobs)["j"]; old.Period != want || anew != old {
				t.Errorf("%s at %s: %v, and read anew %v; want a period of %v", schedule, now.Format("Mon 15:04"), old, anew, want)
			}
		}
	}
}

// A gap that comes, such as holidays, is in the period a week before it begins at the latest, and until a day after its end, in which the run after it
// has the time to end ok.
// Promise: P6
func TestPeriodBeforeAndAfterHolidays(t *testing.T) {
	t.Parallel()
	day := func(d, hour int) time.Time { return time.Date(2026, 12, d, hour, 30, 0, 0, time.UTC) }
	now := day(1, 12)
	r := readerAt(func() time.Time { return now })
	jobs := []journal.JobInfo{{Name: "j", Schedule: []string{"0 * * * *"}, ExceptDates: []string{"2026-12-15", "2026-12-16"}, Timezone: "UTC", Enabled: true}}
	const holidays = 49 * time.Hour
	for now.Before(day(31, 0)) {
		period := r.nextTicks(jobs)["j"].Period
		switch must, may := !now.Before(day(7, 23)) && now.Before(day(18, 0)), !now.Before(day(6, 22)) && now.Before(day(19, 0)); {
		case must && period != holidays:
			t.Errorf("at %v: %v, want the holidays", now, period)
		case !may && period != time.Hour:
			t.Errorf("at %v: %v, want an hour", now, period)
		}
		now = now.Add(time.Hour)
	}
}

// TestSlowRunStaysAProblem: the problem of a run that hangs is the same at each reading, however many ticks are skipped meanwhile, so its end is not announced.
func TestSlowRunStaysAProblem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t)
		record := func(id string, outcome journal.Outcome, started, finished time.Time) {
			t.Helper()
			r := journal.Record{RunID: id, Job: "hangs", Replica: "a", Outcome: outcome, Started: started, Finished: finished}
			if outcome == journal.OutcomeOK {
				r.DurationMS = new(finished.Sub(started).Milliseconds())
			}
			if err := h.journal.Record(t.Context(), []journal.Record{r}); err != nil {
				t.Fatal(err)
			}
		}
		begin := time.Now()
		for n := range 10 {
			record(fmt.Sprint("ok", n), journal.OutcomeOK, begin.Add(time.Duration(n-60)*time.Minute), begin.Add(time.Duration(n-60)*time.Minute+time.Second))
		}
		record("hung", journal.OutcomeRunning, begin, time.Time{})
		if r := h.elector.Claim(t.Context(), []election.Claim{{Lock: election.JobLock("hangs"), ID: "hung", Slots: 1, Trigger: "manual", Lease: time.Hour}})[0]; r.Verdict != election.Granted {
			t.Fatalf("%+v", r)
		}
		reader := readerAt(time.Now)
		reader.journal, reader.elector = h.journal, h.elector
		jobs := []journal.JobInfo{{Name: "hangs", Schedule: []string{"*/10 * * * * *"}, Timezone: "UTC", Enabled: true}}
		late := func() []jobCondition {
			t.Helper()
			known := new(metrics.Cluster)
			conditions, err := reader.readJobs(t.Context(), jobs, known)
			if err != nil || len(known.Late) != len(conditions) {
				t.Fatalf("%v, %+v, %+v", err, conditions, known.Late)
			}
			return conditions
		}
		if got := late(); len(got) > 0 {
			t.Errorf("at its begin it is %+v", got)
		}
		time.Sleep(time.Minute + time.Second)
		first := late()
		if len(first) != 1 || first[0].Code != cluster.Slow || !first[0].Since.Equal(begin.Add(time.Minute)) {
			t.Fatalf("%+v", first)
		}
		for n := range 60 {
			time.Sleep(10 * time.Second)
			record(fmt.Sprint("tick", n), journal.OutcomeSkipped, time.Time{}, time.Now())
			if got := late(); !slices.Equal(got, first) {
				t.Fatalf("after %d skipped ticks: %+v, want %+v", n+1, got, first)
			}
		}
	})
}

// TestMoreAreLostThanShown passes each lost replica to the notifications, and the newest to the metrics.
func TestMoreAreLostThanShown(t *testing.T) {
	t.Parallel()
	rdb, j := redistest.StartInMemory(t)
	now := time.Now()
	for n := range journal.ShownLost + 5 {
		rdb.ZAdd(t.Context(), "cronclave:default:lost", redis.Z{Score: float64(now.Add(time.Duration(n) * time.Millisecond).UnixMilli()), Member: fmt.Sprint("r", n)})
	}
	r, known := clusterReader{journal: j, now: func() time.Time { return now }}, &metrics.Cluster{Replicas: map[string]int{}, Lost: map[string]time.Time{}}
	away, err := r.readReplicas(t.Context(), known)
	if err != nil || len(away) != journal.ShownLost+5 || len(known.Lost) != journal.ShownLost || !known.Lost["r4"].IsZero() || known.Lost["r5"].IsZero() {
		t.Errorf("%v, %d away, %d shown", err, len(away), len(known.Lost))
	}
}
