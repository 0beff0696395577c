package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

// TestFailingSinceTheFirst lets a job fail 70 times in a row, which is more than the history keeps: the problem is as old as the first failure. Skipped and
// canceled ticks in between, and a run under way, change nothing.
func TestFailingSinceTheFirst(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	o := c.operator(t, Config{})
	c.describe(t, journal.JobInfo{Name: "bad", Enabled: true}, journal.JobInfo{Name: "once", Enabled: true}, journal.JobInfo{Name: "good", Enabled: true})
	now := time.Now().UTC().Truncate(time.Second)
	at := func(job, id, outcome string, ago time.Duration) journal.Record {
		r := ended(job, id)
		r.Outcome, r.Started, r.Finished = outcome, now.Add(-ago), now.Add(-ago)
		return r
	}
	records := []journal.Record{at("bad", "ok", "ok", 30*time.Hour), at("once", "ok", "ok", 2*time.Hour), at("once", "f", "timeout", time.Hour),
		at("good", "f", "failed", 2*time.Hour), at("good", "ok", "ok", time.Hour)}
	for n := range 70 {
		ago := time.Duration(70-n) * 10 * time.Minute
		records = append(records, at("bad", fmt.Sprint("f", n), "failed", ago), at("bad", fmt.Sprint("s", n), "skipped", ago-time.Minute), at("bad", fmt.Sprint("c", n), "canceled", ago-time.Minute))
	}
	running := at("bad", "r", "running", 0)
	running.Finished = time.Time{}
	c.record(t, append(records, running)...)
	for _, few := range []int{0, 1} {
		st, err := o.Status(t.Context(), StatusRequest{Recent: few})
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]Problem{}
		for _, p := range st.Problems {
			if p.Code == "job_failed" {
				found[p.Job] = p
			}
		}
		bad, once := found["bad"], found["once"]
		if f := bad.Failures; len(found) != 2 || f == nil || f.Count != 70 || f.AtLeast || !f.Since.Equal(now.Add(-700*time.Minute)) || f.LastOK == nil || !f.LastOK.Equal(now.Add(-30*time.Hour)) || !bad.Since.Equal(f.Since) {
			t.Errorf("of %d: %+v, %+v", len(found), bad, f)
		}
		if want := "job bad failed on a; 70 in a row; last ok at " + now.Add(-30*time.Hour).Format(time.RFC3339); bad.Message != want {
			t.Errorf("%s, want %s", bad.Message, want)
		}
		if f := once.Failures; f == nil || f.Count != 1 || f.AtLeast || !f.Since.Equal(now.Add(-time.Hour)) || !f.LastOK.Equal(now.Add(-2*time.Hour)) {
			t.Errorf("%+v, %+v", once, f)
		}
		for _, j := range st.Jobs {
			if (j.Failures != nil) != (j.Name != "good") {
				t.Errorf("job %s: %+v", j.Name, j.Failures)
			}
		}
	}
}

// TestStreakOfAnEarlierVersion: failures that replicas of a version without streaks recorded are counted as far as they are read, and marked so.
func TestStreakOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_000_000, 0)
	failed := func(n int) (newestFirst []journal.Record) {
		for i := range n {
			newestFirst = append(newestFirst, journal.Record{Outcome: "failed", Finished: at.Add(-time.Duration(i) * time.Second)})
		}
		return newestFirst
	}
	for name, tc := range map[string]struct {
		newestFirst []journal.Record
		kept        journal.Streak
		count       int
		since       time.Duration
		atLeast     bool
	}{
		"nothing kept":               {failed(10), journal.Streak{}, 10, 9 * time.Second, true},
		"all records are read":       {failed(9), journal.Streak{}, 9, 8 * time.Second, false},
		"the end was kept":           {failed(10), journal.Streak{Count: 3, Since: at.Add(-2 * time.Second)}, 10, 9 * time.Second, true},
		"no ok was kept":             {failed(10), journal.Streak{Count: 12, Since: at.Add(-11 * time.Second)}, 12, 11 * time.Second, true},
		"an ok was kept":             {failed(10), journal.Streak{Count: 12, Since: at.Add(-11 * time.Second), LastOK: at.Add(-time.Hour)}, 12, 11 * time.Second, false},
		"a late ok was kept":         {failed(10), journal.Streak{Count: 12, Since: at.Add(-11 * time.Second), LastOK: at.Add(-time.Hour), AtLeast: true}, 12, 11 * time.Second, true},
		"an ok is among the records": {append(failed(4), journal.Record{Outcome: "ok", Finished: at.Add(-time.Minute)}), journal.Streak{Count: 12, Since: at.Add(-time.Hour)}, 4, 3 * time.Second, false},
	} {
		if s := streakOf(tc.newestFirst, tc.kept, 10); s.Count != tc.count || s.Since != at.Add(-tc.since) || s.AtLeast != tc.atLeast {
			t.Errorf("%s: %+v", name, s)
		}
	}
}
