package integration

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// outcomeSample is a line of /metrics that counts outcomes.
var outcomeSample = regexp.MustCompile(`^cronclave_outcomes_total\{job="([^"]*)",outcome="([^"]*)",reason="([^"]*)"\} (\d+)$`)

// TestMetricsCountEachOutcomeOnce: what the replicas count, taken together, is what the history has; who does not bear the token is told nothing (P6).
func TestMetricsCountEachOutcomeOnce(t *testing.T) {
	t.Parallel()
	const token = "s3cr3t-t0ken"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	program(t, cronclaveProgram) // which takes a while, and the jobs expire soon
	program(t, scribeProgram)
	c := newCluster(t, fmt.Sprintf(`
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
`, file, time.Now().Add(15*time.Second).UTC().Format(time.RFC3339)))
	replicas := c.startAll(t, 3)
	urls := make([]string, len(replicas))
	for i, r := range replicas {
		e := r.WaitLog(t, soon, "address", message("answering HTTP requests"))
		urls[i], _ = e["address"].(string)
		urls[i] = "http://" + urls[i] + "/metrics"
	}
	if code, _ := get(t, urls[0], "wrong"); code != http.StatusUnauthorized {
		t.Errorf("with a wrong token: %d", code)
	}
	counted := func() map[string]int {
		sum := map[string]int{}
		for _, url := range urls {
			code, body := get(t, url, token)
			if code != http.StatusOK {
				t.Fatalf("%s: %d", url, code)
			}
			lines := bufio.NewScanner(strings.NewReader(body))
			for lines.Scan() {
				if m := outcomeSample.FindStringSubmatch(lines.Text()); m != nil {
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
			for _, r := range c.history(t, job) {
				switch r.Outcome {
				case "running":
					running++
				case "failed":
					ended[job+": failed"]++ // its reason is a text
				default:
					ended[job+": "+r.verdict()]++
				}
			}
		}
		return ended, running
	}
	var metrics, history map[string]int
	eventually(t, startTimeout, "the same in the metrics as in the history, with nothing running, and of each kind", func() bool {
		var running int
		history, running = recorded()
		metrics = counted()
		return running == 0 && history["good: ok"] > 5 && history["bad: failed"] > 2 && history["slow: skipped overlap"] > 3 && history["late: timeout"] > 1 &&
			maps.Equal(metrics, history)
	})
	t.Logf("%v", metrics)
	stopAll(t, replicas)
}

// get asks for a page as who bears a token does.
func get(t *testing.T, url, token string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
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
