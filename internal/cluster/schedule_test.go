package cluster

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// visitAll is longestGap by a visit of each tick.
func visitAll(spec *cronspec.Schedule, from, end time.Time) (longest time.Duration) {
	tick := spec.Prev(from)
	for n := 0; n < exactTicks || tick.Before(end); n++ {
		next := spec.Next(tick)
		longest, tick = max(longest, next.Sub(tick)), next
	}
	return longest
}

// The jumps of longestGap find the same gap as a visit of each tick, if it is longer than twice a step, and otherwise one that is shorter by less than that.
func TestLongestGapIsFound(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	between := func(n int) string { a := random.IntN(n); return fmt.Sprintf("%d-%d", a, a+random.IntN(n-a)) }
	start, tried, exact := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), 0, 0
	for range 800 {
		exprs := []string{fmt.Sprintf("%s/%d %s * * %s", between(60), 1+random.IntN(30), between(24), between(7))}
		if random.IntN(2) == 0 {
			exprs = append(exprs, fmt.Sprintf("%d %s * * %d", random.IntN(60), between(24), random.IntN(7)))
		}
		spec, err := cronspec.Parse(exprs, cronspec.Options{Except: []string{fmt.Sprintf("* %s * * %d", between(24), random.IntN(7))}})
		if err != nil {
			continue // all is excepted
		}
		tried++
		from := start.Add(time.Duration(random.IntN(365*24*60)) * time.Minute)
		end := from.AddDate(0, 0, 9)
		got, want := longestGap(spec, from, end), visitAll(spec, from, end)
		if got > want || got < want && want > 2*periodStep {
			t.Errorf("%q from %v: %v, want %v", exprs, from, got, want)
		}
		if got == want {
			exact++
		}
	}
	if tried < 300 || exact < tried*9/10 {
		t.Errorf("%d of %d are exact", exact, tried)
	}
}

// A schedule may begin and end, also between two steps.
func TestNextTicksOfBoundedSchedules(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	info := journal.JobInfo{Name: "j", Schedule: []string{"@hourly"}, Timezone: "UTC", Enabled: true}
	for _, tt := range []struct {
		starts, expires time.Time
		want            NextTick
	}{
		{now.AddDate(0, 1, 0), time.Time{}, NextTick{now.AddDate(0, 1, 0), time.Hour}},
		{time.Time{}, now.AddDate(0, 0, 2), NextTick{now.Add(time.Hour), time.Hour}},
		{now.Add(time.Hour), now.Add(2 * time.Hour), NextTick{At: now.Add(time.Hour)}},
		{time.Time{}, now, NextTick{}},
	} {
		info.StartsAt, info.ExpiresAt = tt.starts, tt.expires
		if got := new(TickCache).NextTicks(nil, []journal.JobInfo{info}, now)["j"]; got != tt.want {
			t.Errorf("from %v to %v: %v, want %v", tt.starts, tt.expires, got, tt.want)
		}
	}
}

// BenchmarkTickCache asks for a thousand jobs, as a leader does every 15 s: with periods to compute, which is once a day, and without.
func BenchmarkTickCache(b *testing.B) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	for name, schedule := range map[string]string{"equal": "* * * * * *", "different": "* %d-59 %d * * *"} {
		infos := make([]journal.JobInfo, 1000)
		for i := range infos {
			text := schedule
			if name == "different" {
				text = fmt.Sprintf(schedule, i%50, i/50)
			}
			infos[i] = journal.JobInfo{Name: fmt.Sprint("j", i), Schedule: []string{text}, Timezone: "UTC", Enabled: true}
		}
		b.Run(name+"/first", func(b *testing.B) {
			for b.Loop() {
				new(TickCache).NextTicks(nil, infos, now)
			}
		})
		b.Run(name+"/again", func(b *testing.B) {
			var c TickCache
			c.NextTicks(nil, infos, now)
			for i := 0; b.Loop(); i++ {
				c.NextTicks(nil, infos, now.Add(time.Duration(i%5000)*15*time.Second))
			}
		})
	}
}
