package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// TestClientsThatGiveUpAreNoFault: neither one whose own reading is cut off, nor one that waits for the reading of another.
func TestClientsThatGiveUpAreNoFault(t *testing.T) {
	c := newCluster(t)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for range 50 { // chance decides which of the two it is
		for _, path := range []string{"/status", "/jobs/backup", "/problems", "/runs"} {
			c.api.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, prefix+path, nil).WithContext(gone))
		}
	}
	if c.log.String() != "" {
		t.Errorf("the log has %s", &c.log)
	}
}

// TestDamagedDataIsNamed by the answer to each request, and by the log once.
func TestDamagedDataIsNamed(t *testing.T) {
	c := newCluster(t)
	options, err := redis.ParseURL(c.redis)
	must(t, err)
	client := redis.NewClient(options)
	defer client.Close()
	const records, runs = "cronclave:default:{backup}:records", "cronclave:default:{report}:runs"
	must(t, client.HSet(t.Context(), records, "erun-1", "[1]").Err())
	must(t, client.Set(t.Context(), runs, "x", 0).Err())
	for path, key := range map[string]string{"/runs?job=backup": records, "/jobs/backup/runs/run-1": records, "/runs?job=report": runs} {
		if w := c.send("bob", http.MethodGet, prefix+path, ""); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), key) || !strings.Contains(w.Body.String(), "repair it, or delete the whole key") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if n := strings.Count(c.log.String(), "[ERROR] HTTP requests failed: damaged data in Redis: requests=1"); n != 1 || strings.Count(c.log.String(), "\n") != 1 {
		t.Errorf("the log has %s", &c.log)
	}
}
