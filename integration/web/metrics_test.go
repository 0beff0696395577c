package web

import (
	"bufio"
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

// outcomeSample is a line of /metrics that counts outcomes.
var outcomeSample = regexp.MustCompile(`^cronclave_outcome(?:s|_reasons)_total\{job_name="([^"]*)",outcome="([^"]*)"(?:,reason="([^"]*)")?\} (\d+)$`)

// The metrics of all replicas together count each outcome of the history once (P6). A request without the token gets
// no metrics.
// Promise: P6
func TestMetricsCountEachOutcomeOnce(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const token = "s3cr3t-t0ken-of-some-length"
	file := tokenFile(t, token)
	harness.Program(t, harness.CronclaveProgram) // which takes a while, and the jobs expire soon
	harness.Program(t, harness.ScribeProgram)
	c := harness.NewCluster(t, fmt.Sprintf(`
server = { listen = "127.0.0.1:0", token_file = %q }
history.runs = 500
[defaults]
expires_at = %q
[jobs.good]
schedule = "* * * * * *"
command = "true"
[jobs.bad]
schedule = "*/2 * * * * *"
command = ["sh", "-c", "echo no; exit 3"]
[jobs.slow]
schedule = "* * * * * *"
command = ["sleep", "2.5"]
[jobs.late]
schedule = "*/3 * * * * *"
command = ["sleep", "9"]
timeout = "1s"
`, file, time.Now().Add(40*time.Second).UTC().Format(time.RFC3339)))
	replicas := c.StartAll(t, 3)
	urls := make([]string, len(replicas))
	for i, r := range replicas {
		urls[i] = r.MetricsURL(t)
	}
	if code, _ := harness.GetPage(t, urls[0], "wrong"); code != http.StatusUnauthorized {
		t.Errorf("with a wrong token: %d", code)
	}
	counted := func() map[string]int {
		sum := map[string]int{}
		for _, url := range urls {
			code, body := harness.GetPage(t, url, token)
			if code != http.StatusOK {
				t.Fatalf("%s: %d", url, code)
			}
			lines := bufio.NewScanner(strings.NewReader(body))
			for lines.Scan() {
				if m := outcomeSample.FindStringSubmatch(lines.Text()); m != nil && m[4] != "0" {
					n, _ := strconv.Atoi(m[4])
					sum[m[1]+": "+strings.TrimSpace(m[2]+" "+m[3])] += n
				}
			}
		}
		return sum
	}
	recorded := func() (ended map[string]int, running int) {
		ended = map[string]int{}
		for _, job := range []string{"good", "bad", "slow", "late"} {
			for _, r := range c.History(t, job) {
				if r.Outcome == "running" {
					running++
					continue
				}
				ended[job+": "+r.Outcome]++
				if r.Outcome == "skipped" || r.Outcome == "missed" { // the reasons of others are texts
					ended[job+": "+r.Verdict()]++
				}
			}
		}
		return ended, running
	}
	var metrics, history map[string]int
	harness.Eventually(t, 2*harness.StartTimeout, "the same in the metrics as in the history, with nothing running, and of each kind", func() bool {
		var running int
		history, running = recorded()
		metrics = counted()
		return running == 0 && history["good: ok"] > 5 && history["bad: failed"] > 2 && history["slow: skipped overlap"] > 3 && history["late: timeout"] > 1 &&
			maps.Equal(metrics, history)
	})
	t.Logf("%v", metrics)
	harness.StopAll(t, replicas)
}

// The metrics of a replica are true before Redis was ever there, while it is, and after it is gone (P6).
// Promise: P6
func TestMetricsOfAReplica(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const token = "s3cr3t-t0ken-of-some-length"
	s := harness.StartRedis(t, harness.RedisOpts{})
	c := harness.NewClusterOn(t, s, fmt.Sprintf(`
server = { listen = "127.0.0.1:0", token_file = %q }
[pools.db]
slots = 1
[jobs.known]
schedule = "* * * * * *"
command = ["sleep", "1.5"]
pool = "db"
`, tokenFile(t, token)))
	s.Stop()
	r := c.Start(t, "r1")
	url := r.MetricsURL(t)
	if code, body := harness.GetPage(t, url, ""); code != http.StatusUnauthorized || strings.Contains(body, "cronclave_") {
		t.Errorf("without a token: %d\n%s", code, body)
	}
	var now map[string]float64
	shows := func(holds func() bool) func() bool {
		return func() bool {
			now = samples(t, url, token)
			return holds()
		}
	}
	const up, offset = "cronclave_redis_up", "cronclave_clock_offset_seconds"
	if shows(func() bool { return now[up] != 0 || !math.IsNaN(now[offset]) })() {
		t.Errorf("without Redis it is up: %v, and the clock's offset is %v", now[up], now[offset])
	}
	s.Start(harness.MemoryLost)
	harness.Eventually(t, harness.StartTimeout, "sign of Redis, and of a run", shows(func() bool {
		return now[up] == 1 && math.Abs(now[offset]) < 1 && now[`cronclave_job_runs{job_name="known"}`] == 1 && now["cronclave_runs"] >= 1
	}))
	const took, delay, wait = "cronclave_run_duration_seconds", "cronclave_start_delay_seconds", "cronclave_pool_wait_seconds"
	harness.Eventually(t, harness.StartTimeout, "runs that have ended, a punctual one and one of less than 5s among them, and each waited for its pool", shows(func() bool {
		return now[took+"_count"] >= 2 && now[took+`_bucket{le="5"}`] >= 1 && now[delay+`_bucket{le="1"}`] >= 1 && now[wait+`_count{pool="db"}`] >= 2
	}))
	if now[took+`_bucket{le="1"}`] != 0 || now[delay+"_count"] < now[took+"_count"] {
		t.Errorf("runs of 1.5s took: %v", now)
	}
	s.Stop()
	harness.Eventually(t, harness.Soon, "sign of its end", shows(func() bool { return now[up] == 0 && math.Abs(now[offset]) < 1 }))
	s.Start(harness.MemoryLost)
	harness.Eventually(t, harness.Soon, "sign of its return", shows(func() bool { return now[up] == 1 }))
	harness.StopAll(t, []*harness.Replica{r})
}

// A take-over shows in the metrics of the replica that does it, and the leader reports the state of the cluster (P6). While Redis hangs a scrape ends soon, and
// has nothing that was read from Redis.
// Promise: P6
func TestMetricsOfTakeOverAndHang(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const token = "s3cr3t-t0ken-of-some-length"
	s := harness.StartRedis(t, harness.RedisOpts{})
	c := harness.NewClusterOn(t, s, fmt.Sprintf(`
server = { listen = "127.0.0.1:0", token_file = %q }
[jobs.long]
schedule = "*/5 * * * * *"
command = 'test "$CRONCLAVE_ATTEMPT" = 2 || exec sleep 6'
recover = true
lease = "3s"
[jobs.calm]
schedule = "0 0 1 1 *"
command = "true"
`, tokenFile(t, token)))
	c.Insist(t, "pause", "calm")
	replicas := c.StartAll(t, 2)
	urls := []string{replicas[0].MetricsURL(t), replicas[1].MetricsURL(t)}
	// find waits for the replica of which something holds.
	find := func(what string, holds func(now map[string]float64) bool) (i int) {
		t.Helper()
		harness.Eventually(t, harness.StartTimeout, what, func() bool {
			i = slices.IndexFunc(urls, func(url string) bool { return holds(samples(t, url, token)) })
			return i >= 0
		})
		return i
	}
	const up = "cronclave_redis_up"
	leader := find("state of the cluster", func(now map[string]float64) bool {
		return now["cronclave_leader"] == 1 && now[`cronclave_replicas{state="up"}`] >= 1 && now[`cronclave_job_paused{job_name="calm"}`] == 1 &&
			now[`cronclave_job_next_tick_timestamp_seconds{job_name="calm"}`] > float64(time.Now().Unix())
	})
	s.Pause()
	asked := time.Now()
	now := samples(t, urls[leader], token)
	took := time.Since(asked)
	s.Unpause()
	for series := range now {
		if now[up] != 0 || took > 5*time.Second || strings.HasPrefix(series, "cronclave_replicas") || strings.HasPrefix(series, "cronclave_job_paused") {
			t.Errorf("while Redis hangs a scrape takes %v, %s is %v, and there is %s", took, up, now[up], series)
		}
	}
	holder := find("run", func(now map[string]float64) bool {
		return now[up] == 1 && now[`cronclave_job_runs{job_name="long"}`] == 1
	})
	replicas[holder].Kill(t)
	urls = []string{urls[1-holder]}
	find("take-over in the metrics", func(now map[string]float64) bool {
		return now[`cronclave_recoveries_total{job_name="long"}`] == 1 && now[`cronclave_outcomes_total{job_name="long",outcome="abandoned"}`] == 1 &&
			now[`cronclave_last_ok_timestamp_seconds{job_name="long"}`] > now[`cronclave_last_failure_timestamp_seconds{job_name="long"}`]
	})
	harness.StopAll(t, []*harness.Replica{replicas[1-holder]})
}

// A replica that gets a job by a reload reports when it last ended ok, on whichever replica (P6).
// Promise: P6
func TestReloadRecallsLastOK(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const server, token = "server = { listen = \"127.0.0.1:0\", token_file = %q }\n", "s3cr3t-t0ken-of-some-length"
	const stays, comes = "[jobs.stays]\nschedule = \"0 0 1 1 *\"\ncommand = \"true\"\n", "[jobs.comes]\nschedule = %q\ncommand = \"true\"\n"
	file := tokenFile(t, token)
	c := harness.NewCluster(t, fmt.Sprintf(server+stays+comes, file, "* * * * * *"))
	r := c.Start(t, "r1")
	url := r.MetricsURL(t)
	const lastOK = `cronclave_last_ok_timestamp_seconds{job_name="comes"}`
	told := func() bool { return samples(t, url, token)[lastOK] > 0 }
	harness.Eventually(t, harness.StartTimeout, "run that ends ok", told)
	c.Edit(t, fmt.Sprintf(server+stays, file), r)
	harness.Eventually(t, harness.StartTimeout, "end of its metrics", func() bool { return r.Reloads() == 1 && !told() })
	c.Edit(t, fmt.Sprintf(server+stays+comes, file, "0 0 1 1 *"), r)
	harness.Eventually(t, harness.StartTimeout, "the same of its past", told)
	harness.StopAll(t, []*harness.Replica{r})
}

// tokenFile writes a token into a file.
func tokenFile(t *testing.T, token string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// samples are the metrics of a replica, by their names with labels.
func samples(t *testing.T, url, token string) map[string]float64 {
	t.Helper()
	code, body := harness.GetPage(t, url, token)
	if code != http.StatusOK {
		t.Fatalf("%s: %d", url, code)
	}
	all := map[string]float64{}
	for line := range strings.Lines(body) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil && strings.HasPrefix(series, "cronclave_") {
			all[series] = v
		}
	}
	return all
}
