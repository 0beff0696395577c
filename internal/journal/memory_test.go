package journal_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/journal"
)

// The formula of the package comment, in bytes.
const (
	usualRecord   = 500
	longestRecord = 2700
	escapedRecord = 9 << 10
	perJob        = 1300
	perBlock      = 200
	perStreak     = 11_000
	longestStreak = 35_000 // of a job with the longest name
)

// memoryNamespace is removed before and after the test: no one else's.
const memoryNamespace = "journal-memory-test"

// usage returns the memory of all keys, as Redis reports it.
func usage(t testing.TB, client redis.UniversalClient) (bytes int64) {
	t.Helper()
	it := client.Scan(t.Context(), 0, "cronclave:"+memoryNamespace+":*", 1000).Iterator()
	for it.Next(t.Context()) {
		n, err := client.MemoryUsage(t.Context(), it.Val(), 0).Result()
		if err != nil {
			t.Fatal(err)
		}
		bytes += n
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return bytes
}

// clean removes the namespace's keys.
func clean(t testing.TB, client redis.UniversalClient) {
	t.Helper()
	it := client.Scan(t.Context(), 0, "cronclave:"+memoryNamespace+":*", 1000).Iterator()
	for it.Next(t.Context()) {
		if err := client.Del(t.Context(), it.Val()).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMemory writes 10^5 runs of 1,000 jobs and checks the memory that Redis reports, without output, with output, and for the longest records.
// Promise: P9
func TestMemory(t *testing.T) {
	client := realRedis(t)
	if _, ok := client.(*redis.ClusterClient); ok {
		t.Skip("not on a Cluster")
	}
	control := strings.Repeat("\x01", journal.MaxText)
	long := strings.Repeat("x", journal.MaxText)
	for name, tt := range map[string]struct {
		jobs, runs int // runs of each job
		spoil      func(r *journal.Record)
		limit      int64
	}{
		"usual": {1000, 100, func(*journal.Record) {}, 1000 * (perJob + 51*usualRecord)},
		"output": {20, 100, func(r *journal.Record) { r.Output = new(strings.Repeat("x", 16<<10)) },
			20 * (perJob + 51*usualRecord + 1<<20 + 400*perBlock)},
		"longest": {20, 100, func(r *journal.Record) {
			r.RunID = strings.Repeat("i", journal.MaxRunID-len(r.RunID)) + r.RunID
			r.Job += strings.Repeat("j", 128-len(r.Job))
			r.Trigger, r.Replica, r.Reason, r.Signal, r.Outcome = long, long, journal.Reason(long), long, journal.Outcome(long)
		}, 20 * (perJob + 51*longestRecord)},
		"escaped": {20, 100, func(r *journal.Record) {
			r.Trigger, r.Replica, r.Reason, r.Signal, r.Outcome = control, control, journal.Reason(control), control, journal.Outcome(control)
		}, 20 * (perJob + 51*escapedRecord)},
	} {
		t.Run(name, func(t *testing.T) {
			clean(t, client)
			defer clean(t, client)
			j := open(t, journal.Config{Redis: client, Namespace: memoryNamespace, Timeout: time.Minute})
			begin := time.Now().Add(-time.Duration(tt.runs) * time.Minute)
			for i := range tt.runs {
				var started, done []journal.Record
				for job := range tt.jobs {
					// A run's id as replicas make it, and its usual words.
					r := ended(fmt.Sprintf("nightly-backup-%04d", job), fmt.Sprintf("%016d", i), begin.Add(time.Duration(i)*time.Minute))
					tt.spoil(&r)
					done = append(done, r)
					r.Outcome, r.ExitCode, r.Finished, r.DurationMS = journal.OutcomeRunning, nil, time.Time{}, nil
					started = append(started, r)
				}
				for _, batch := range [][]journal.Record{started, done} {
					if err := j.Record(t.Context(), batch); err != nil {
						t.Fatal(err)
					}
				}
			}
			got := usage(t, client)
			t.Logf("%d jobs after %d runs each: %d bytes, %d a job", tt.jobs, tt.runs, got, got/int64(tt.jobs))
			if got > tt.limit {
				t.Errorf("%d bytes, the formula says %d", got, tt.limit)
			}
		})
	}
}

// TestMemoryOfStreaks checks the memory of streaks after each failure, for a job with a usual name and for one with the longest name. The name is part of the
// RunID of each missed tick.
// Promise: P9
func TestMemoryOfStreaks(t *testing.T) {
	client := realRedis(t)
	clean(t, client)
	defer clean(t, client)
	j := open(t, journal.Config{Redis: client, Namespace: memoryNamespace, Timeout: time.Minute})
	begin := time.Now().Add(-time.Hour)
	for job, limit := range map[string]int64{"nightly-backup-0001": perStreak, strings.Repeat("j", 44): perStreak, strings.Repeat("j", 128): longestStreak} {
		most := int64(0)
		for i := range 300 {
			r := ended(job, "", begin.Add(time.Duration(i)*time.Second))
			if r.RunID = job + "." + r.Tick.UTC().Format("20060102T150405Z"); i > 0 {
				r.Outcome = journal.OutcomeMissed
			}
			if err := j.Record(t.Context(), []journal.Record{r}); err != nil {
				t.Fatal(err)
			}
			n, err := client.MemoryUsage(t.Context(), "cronclave:"+memoryNamespace+":{"+job+"}:streak", 0).Result()
			if err != nil {
				t.Fatal(err)
			}
			most = max(most, n)
		}
		t.Logf("the streak of a job with a name of %d bytes: %d bytes", len(job), most)
		if most > limit {
			t.Errorf("%d bytes, the formula says %d", most, limit)
		}
	}
}
