package replica

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/internal/httpapi"
	"github.com/cronclave/cronclave/internal/journal"
)

// TestLastOKOutlivesReplicas: a replica that starts knows when each of its jobs last ended ok, as far as the history does.
// Promise: P6
func TestLastOKOutlivesReplicas(t *testing.T) {
	t.Parallel()
	server, err := embedded.Start(embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer func() { _ = rdb.Close() }()
	r := &Replica{log: hclog.NewNullLogger()}
	if r.journal, err = journal.New(journal.Config{Redis: rdb, Namespace: "x"}); err != nil {
		t.Fatal(err)
	}
	begin := time.Now().Add(-time.Hour).Truncate(time.Second)
	ends := map[string]string{"well": "ok ok", "ill": "ok ok failed failed failed failed missed", "never": "failed failed", "busy": "ok running", "removed": "ok"}
	for job, outcomes := range ends {
		for i, outcome := range strings.Fields(outcomes) {
			at := begin.Add(time.Duration(i) * time.Minute)
			rec := journal.Record{RunID: fmt.Sprint(job, i), Job: job, Outcome: outcome, Started: at}
			if outcome != journal.OutcomeRunning {
				rec.Finished = at
			}
			if err := r.journal.Record(t.Context(), []journal.Record{rec}); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.cfg.Store(&config.Config{Jobs: []config.Job{{Name: "well"}, {Name: "ill"}, {Name: "never"}, {Name: "busy"}, {Name: "new"}}})
	r.monitor.metrics = httpapi.NewMetrics("v", httpapi.Gauges{
		Leader: func() bool { return false }, RedisUp: func() bool { return true }, ClockOffset: func() (time.Duration, bool) { return 0, true },
		Running: func() int { return 0 }, ByJob: func() map[string]int { return nil }, LogDropped: func() uint64 { return 0 }})
	if err := r.monitor.recallAll(t.Context(), r.journal, names(r.cfg.Load())); err != nil {
		t.Fatal(err)
	}
	page := httptest.NewRecorder()
	r.monitor.metrics.Handler().ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	const name = "cronclave_last_ok_timestamp_seconds{"
	for job, after := range map[string]time.Duration{"well": time.Minute, "ill": time.Minute, "busy": 0} {
		if want := fmt.Sprintf("%sjob=%q} %v\n", name, job, float64(begin.Add(after).Unix())); !strings.Contains(page.Body.String(), want) {
			t.Errorf("no %s", want)
		}
	}
	if n := strings.Count(page.Body.String(), "\n"+name); n != 3 {
		t.Errorf("%d jobs have ended ok once:\n%s", n, page.Body)
	}
}
