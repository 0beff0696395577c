package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/replica"
)

// TestStatusShowsTheNextTick finds the next tick in the descriptions of replicas, whatever their jobs except, and in that of a replica older than
// exceptions.
func TestStatusShowsTheNextTick(t *testing.T) {
	t.Parallel()
	s, rdb, j := startJournal(t)
	day := time.Now().UTC().Truncate(24 * time.Hour)
	dates := []string{"2020-01-01"}
	for n := range 6 {
		dates = append(dates, day.AddDate(0, 0, n-1).Format(time.DateOnly))
	}
	daily := config.Job{Enabled: true, Ticks: config.Ticks{Schedule: []string{"0 12 * * *"}, Location: time.UTC}}
	want := map[string]time.Time{}
	var cfg config.Config
	add := func(name string, next time.Time, edit func(j *config.Job)) {
		job := daily
		job.Name = name
		edit(&job)
		cfg.Jobs, want[name] = append(cfg.Jobs, job), next
	}
	noon := func(days int) time.Time { return day.AddDate(0, 0, days).Add(12 * time.Hour) }
	add("dates", noon(5), func(j *config.Job) { j.ExceptDates = dates })
	add("except", noon(5), func(j *config.Job) {
		j.Schedule, j.Except, j.ExceptDates = []string{"0 */12 * * *"}, []string{"0 0 * * *"}, dates
	})
	add("starts", noon(100), func(j *config.Job) { j.StartsAt = day.AddDate(0, 0, 100) })
	add("expired", time.Time{}, func(j *config.Job) { j.ExpiresAt = day.AddDate(0, 0, -1) })
	if err := j.DescribeJobs(t.Context(), replica.DescribeJobs(&cfg, time.Now())); err != nil {
		t.Fatal(err)
	}
	const old = `{"name":"old","schedule":["0 0 1 1 *"],"timezone":"UTC","parallel":1,"per_tick":1,"digest":"x","enabled":true,"seen":"2026-01-01T00:00:00Z"}`
	if err := rdb.HSet(t.Context(), "cronclave:default:jobs", "old", old).Err(); err != nil {
		t.Fatal(err)
	}
	want["old"] = time.Date(day.Year()+1, 1, 1, 0, 0, 0, 0, time.UTC)
	var out, said bytes.Buffer
	if code := runCommandLine(t.Context(), []string{"status", "--json", "--redis", s.URL()}, streams{out: &out, err: &said}); code != 0 {
		t.Fatalf("exit code %d\n%s", code, &said)
	}
	var st cluster.Status
	if err := json.Unmarshal(out.Bytes(), &st); err != nil {
		t.Fatal(err)
	}
	if len(st.Jobs) != len(want) {
		t.Errorf("%d jobs, want %d", len(st.Jobs), len(want))
	}
	for _, got := range st.Jobs {
		var next time.Time
		if got.Next != nil {
			next = *got.Next
		}
		if !next.Equal(want[got.Name]) {
			t.Errorf("%s: next is %v, want %v", got.Name, next, want[got.Name])
		}
	}
}
