package dashboard

import (
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

// BenchmarkOverview measures the first page of 1,000 jobs with 100 runs each, cold: with a status that is read anew. CRONCLAVE_TEST_REDIS names the Redis;
// an embedded one is slow with so many keys.
func BenchmarkOverview(b *testing.B) {
	url := os.Getenv("CRONCLAVE_TEST_REDIS")
	if url == "" {
		b.Skip("CRONCLAVE_TEST_REDIS names no Redis")
	}
	s := newSite(b, url)
	s.crowd(1000, 100, journal.OutcomeOK)
	for _, path := range []string{"/", "/jobs/job-0500", "/cluster", "/timeline?span=1h", "/calendar"} {
		for name, prepare := range map[string]func(){"cold": func() { s.handler = s.fresh() }, "shared": func() {}} {
			b.Run(path+" "+name, func(b *testing.B) {
				size := 0
				for b.Loop() {
					prepare()
					w := s.get(path)
					if w.Code != http.StatusOK {
						b.Fatal(w.Code)
					}
					size = w.Body.Len()
				}
				b.ReportMetric(float64(size), "bytes")
			})
		}
	}
}

// crowd describes jobs and records runs of each, of which the newest has an outcome.
func (s *site) crowd(jobs, runs int, newest string) {
	s.t.Helper()
	ctx, now := s.t.Context(), time.Now()
	_, err := s.journal.Register(ctx, journal.Replica{ID: "r1-abcdefgh", Name: "r1", Version: "v1", Started: now, Seen: now, ConfigDigest: "a"}, time.Hour)
	s.must(err)
	var infos []journal.JobInfo
	for i := range jobs {
		name := fmt.Sprintf("job-%04d", i)
		infos = append(infos, journal.JobInfo{Name: name, Schedule: []string{fmt.Sprintf("%d * * * *", i%60)}, Timezone: "UTC", Enabled: true, Parallel: 1, PerTick: 1, Seen: now, Tags: []string{"night", "disk"}})
		var records []journal.Record
		for n := range runs {
			at := now.Add(-time.Duration(n+1) * time.Hour)
			records = append(records, journal.Record{RunID: fmt.Sprintf("%s-1795691760-0-1-abcdefghijklmnop-%d", name, n), Job: name, Tick: at, Trigger: "schedule", Slot: slot(0), Attempt: 1, Token: 1795691760001529,
				Replica: "r1", Outcome: []string{newest, "ok", "ok", "failed", "ok"}[min(n, 1+n%4)], Reason: "", Started: at, Finished: at.Add(time.Second), DurationMS: ms(1000), Output: text("hello\n")})
		}
		s.must(s.journal.Record(ctx, records))
	}
	s.must(s.journal.DescribeJobs(ctx, infos))
}
