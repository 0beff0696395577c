package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func quietGauges() Gauges {
	return Gauges{Leader: func() bool { return true }, RedisUp: func() bool { return true },
		ClockOffset: func() (time.Duration, bool) { return 1500 * time.Millisecond, true },
		Running:     func() int { return 3 }, ByJob: func() map[string]int { return map[string]int{"a": 2, "b": 1} }, LogDropped: func() uint64 { return 4 }}
}

// serve runs a server until the test ends.
func serve(t *testing.T, token string) (s *Server, m *Metrics) {
	t.Helper()
	return serveMetrics(t, token, quietGauges())
}

func serveMetrics(t *testing.T, token string, g Gauges) (s *Server, m *Metrics) {
	t.Helper()
	m = NewMetrics("v1", g)
	cfg := Config{Listen: "127.0.0.1:0", Metrics: m.Handler()}
	if token != "" {
		users, err := ParseUsers(token)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Users = func() Users { return users }
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s, m
}

func request(t *testing.T, s *Server, method, path, authorization string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addr()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func TestWhoIsLetIn(t *testing.T) {
	guarded, _ := serve(t, "s3cr3t-s3cr3t-s3cr3t")
	open, _ := serve(t, "")
	for _, tt := range []struct {
		server                      *Server
		method, path, authorization string
		want                        int
	}{
		{guarded, "GET", "/metrics", "Bearer s3cr3t-s3cr3t-s3cr3t", 200},
		{guarded, "GET", "/metrics", "bearer  s3cr3t-s3cr3t-s3cr3t", 200},
		{guarded, "GET", "/metrics", "", 401},
		{guarded, "GET", "/metrics", "Bearer", 401},
		{guarded, "GET", "/metrics", "Bearer s3cr3t-s3cr3t-s3cr3", 401},
		{guarded, "GET", "/metrics", "Bearer s3cr3t-s3cr3t-s3cr3tt", 401},
		{guarded, "GET", "/metrics", "Basic s3cr3t-s3cr3t-s3cr3t", 401},
		{guarded, "GET", "/nothing", "", 401}, // a client without the token does not learn which pages there are
		{guarded, "GET", "/nothing", "Bearer s3cr3t-s3cr3t-s3cr3t", 404},
		{open, "GET", "/metrics", "", 200},
		{open, "POST", "/metrics", "", 405},
		{open, "GET", "/", "", 404},
	} {
		if code, body := request(t, tt.server, tt.method, tt.path, tt.authorization); code != tt.want || strings.Contains(body, "s3cr3t-s3cr3t-s3cr3t") {
			t.Errorf("%s %s with %q: %d, want %d: %s", tt.method, tt.path, tt.authorization, code, tt.want, body)
		}
	}
}

func TestFaultyConfig(t *testing.T) {
	taken, m := serve(t, "")
	if _, err := New(Config{Listen: taken.Addr(), Metrics: m.Handler()}); err == nil || !strings.Contains(err.Error(), taken.Addr()) {
		t.Errorf("an address that is taken: %v", err)
	}
	if _, err := New(Config{Listen: "127.0.0.1:0"}); err == nil {
		t.Error("without metrics")
	}
}

// A fault of a request goes to the replica's log.
func TestFaultsAreLogged(t *testing.T) {
	var written bytes.Buffer
	s, err := New(Config{Listen: "127.0.0.1:0", Log: hclog.New(&hclog.LoggerOptions{Output: &written, JSONFormat: true}),
		Metrics: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a fault of ours") })})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	if resp, err := http.Get("http://" + s.Addr() + "/metrics"); err == nil { //nolint:noctx // no server answers it
		resp.Body.Close()
		t.Error("a panic is an answer")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	first, _, _ := strings.Cut(written.String(), "\n")
	var line map[string]any
	if err := json.Unmarshal([]byte(first), &line); err != nil || line["@level"] != "error" || !strings.Contains(first, "a fault of ours") {
		t.Errorf("logged is %s: %v", written.String(), err)
	}
}

func TestMetrics(t *testing.T) {
	s, m := serve(t, "")
	m.Ended(Outcome{Job: "a", Outcome: "ok", Finished: time.Unix(1000, 5e8), Ran: true, Took: 2 * time.Second})
	m.Ended(Outcome{Job: "a", Outcome: "missed", Reason: "down", Ticks: 7})
	m.Ended(Outcome{Job: "b", Outcome: "failed", Ran: true, Took: time.Second})
	m.Ended(Outcome{Job: "b", Outcome: "failed", Ran: true}) // in less than a millisecond
	m.Started(200 * time.Millisecond)
	m.Started(-time.Millisecond) // by clocks that are a little apart
	m.Waited("db", 5*time.Second)
	m.Renewed(5 * time.Second)
	m.Lost()
	m.TryFailed("a")
	m.TryFailed("a")
	_, body := request(t, s, "GET", "/metrics", "")
	for _, want := range []string{
		`cronclave_outcomes_total{job="a",outcome="ok",reason=""} 1`, `cronclave_outcomes_total{job="a",outcome="missed",reason="down"} 7`,
		`cronclave_run_seconds_total{job="a"} 2`, `cronclave_last_ok_timestamp_seconds{job="a"} 1000.5`, `cronclave_lease_renewal_left_seconds_sum 5`,
		`cronclave_run_duration_seconds_bucket{le="0.5"} 1`, `cronclave_run_duration_seconds_bucket{le="1"} 2`, `cronclave_run_duration_seconds_count 3`,
		`cronclave_start_delay_seconds_bucket{le="0.01"} 1`, `cronclave_start_delay_seconds_bucket{le="0.3"} 2`, `cronclave_start_delay_seconds_sum 0.2`,
		`cronclave_pool_wait_seconds_bucket{pool="db",le="1"} 0`, `cronclave_pool_wait_seconds_bucket{pool="db",le="10"} 1`,
		`cronclave_leases_lost_total 1`, `cronclave_tries_failed_total{job="a"} 2`, `cronclave_leader 1`, `cronclave_redis_up 1`, `cronclave_clock_offset_seconds 1.5`, `cronclave_runs 3`,
		`cronclave_job_runs{job="a"} 2`, `cronclave_job_runs{job="b"} 1`, `cronclave_build_info{version="v1"} 1`, `cronclave_log_lines_dropped_total 4`,
		"go_goroutines ", "process_open_fds ",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in\n%s", want, body)
		}
	}
	if faults, err := testutil.GatherAndLint(m.registry); err != nil || len(faults) > 0 {
		t.Errorf("against the conventions: %v, %v", faults, err)
	}
}

// A value that is not known is no number, since an offset of 0 is a good one.
// Promise: P6
func TestUnknownIsNoNumber(t *testing.T) {
	g := quietGauges()
	g.ClockOffset, g.RedisUp = func() (time.Duration, bool) { return time.Hour, false }, func() bool { return false }
	s, _ := serveMetrics(t, "", g)
	_, body := request(t, s, "GET", "/metrics", "")
	for _, want := range []string{"\ncronclave_clock_offset_seconds NaN\n", "\ncronclave_redis_up 0\n"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in\n%s", want, body)
		}
	}
}

// The last run that ended ok is the latest, in whatever order they are told of.
// Promise: P6
func TestLastOKIsTheLatest(t *testing.T) {
	s, m := serve(t, "")
	m.Succeeded("told", time.Unix(1000, 0))
	m.Ended(Outcome{Job: "ran", Outcome: "ok", Finished: time.Unix(2000, 0), Ran: true})
	m.Succeeded("ran", time.Unix(1000, 0)) // the history was read before that, and reports it now
	m.Ended(Outcome{Job: "told", Outcome: "failed", Finished: time.Unix(3000, 0), Ran: true})
	_, body := request(t, s, "GET", "/metrics", "")
	for _, want := range []string{`cronclave_last_ok_timestamp_seconds{job="told"} 1000`, `cronclave_last_ok_timestamp_seconds{job="ran"} 2000`,
		`cronclave_outcomes_total{job="ran",outcome="ok",reason=""} 1`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in\n%s", want, body)
		}
	}
}

// A job that was removed leaves nothing behind, even if its last run ended after that.
func TestMetricsOfRemovedJobsGo(t *testing.T) {
	g := quietGauges()
	g.ByJob = func() map[string]int { return nil } // they have ended
	s, m := serveMetrics(t, "", g)
	for range 2 {
		m.Ended(Outcome{Job: "a", Outcome: "ok", Finished: time.Unix(1000, 0), Ran: true, Took: time.Second}) // the second time it is removed already
		m.Ended(Outcome{Job: "b", Outcome: "failed", Ran: true, Took: time.Second})
		m.Keep(func(job string) bool { return job == "b" })
		if _, body := request(t, s, "GET", "/metrics", ""); strings.Contains(body, `job="a"`) || !strings.Contains(body, `job="b"`) {
			t.Errorf("removed, and still there, or another one is gone:\n%s", body)
		}
	}
}

// TestEachMetricIsDocumented: docs/metrics.md has all of ours, and no others.
func TestEachMetricIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(cronclave_[a-z_]+)").FindAllSubmatch(text, -1) {
		documented = append(documented, string(m[1]))
	}
	m := NewMetrics("v1", quietGauges())
	m.Ended(Outcome{Job: "a", Outcome: "ok", Finished: time.Unix(1000, 0), Ran: true, Took: time.Second})
	m.Waited("p", time.Second)
	m.TryFailed("a")
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var ours []string
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "cronclave_") {
			ours = append(ours, f.GetName())
		}
	}
	slices.Sort(documented)
	if !slices.Equal(documented, ours) {
		t.Errorf("documented are %q, and there are %q", documented, ours)
	}
}
