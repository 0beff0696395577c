package integration

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The tokens of an operator and of a viewer.
const (
	annsToken = "ann-has-a-token-of-her-own"
	bobsToken = "bob-has-a-token-of-his-own"
)

// usersFile writes the users ann, an operator, and bob, a viewer.
func usersFile(t *testing.T) string {
	t.Helper()
	line := func(name, role, token string) string {
		hash := sha256.Sum256([]byte(token))
		return name + ":" + role + ":" + hex.EncodeToString(hash[:]) + "\n"
	}
	file := filepath.Join(t.TempDir(), "users")
	must(t, os.WriteFile(file, []byte(line("ann", "operator", annsToken)+line("bob", "viewer", bobsToken)), 0o600))
	return file
}

// apiURL returns where a replica with [server] answers.
func (r *replica) apiURL(t *testing.T) string {
	t.Helper()
	url, _ := r.WaitLog(t, soon, "address", message("answering HTTP requests"))["url"].(string)
	return url
}

// askAPI sends a request with a token, and with headers, each "Name: value".
func askAPI(t *testing.T, method, url, token, body string, headers ...string) (code int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	must(t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	req.Header.Set("Content-Type", "application/json")
	for _, h := range headers {
		name, value, given := strings.Cut(h, ": ")
		if !given {
			continue
		}
		req.Header.Set(name, value)
		if name == "Host" {
			req.Host = value
		}
	}
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(text)
}

// Any replica answers for the whole cluster. An act takes the token of an operator, and is refused from a page of another site or by a foreign name.
func TestAnyReplicaAnswersForTheCluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t, fmt.Sprintf(`
server = { listen = "127.0.0.1:0", token_file = %q }
[jobs.quiet]
schedule = "0 0 1 1 *"
command = ["sh", "-c", "echo first; sleep 1; echo last"]
`, usersFile(t)))
	replicas := c.startAll(t, 2)
	c.awaitReplicas(t, 2)
	var seen []string
	for _, r := range replicas {
		url := r.apiURL(t)
		eventually(t, soon, "readiness", func() bool { code, _ := askAPI(t, "GET", url+"/readyz", "", ""); return code == http.StatusOK })
		code, body := askAPI(t, "GET", url+"/api/v1/status", bobsToken, "")
		var st clusterStatus
		if err := json.Unmarshal([]byte(body), &st); code != http.StatusOK || err != nil || len(st.Replicas) != 2 || st.Jobs[0].Name != "quiet" {
			t.Errorf("status of %s: %d %v %s", url, code, err, body)
		}
		seen = append(seen, url)
	}
	refuseActs(t, seen[0])

	code, body := askAPI(t, "POST", seen[1]+"/api/v1/jobs/quiet/trigger", annsToken, `{"reason":"by hand"}`)
	if code != http.StatusOK {
		t.Fatalf("trigger: %d %s", code, body)
	}
	run := c.awaitRun(t, startTimeout, "quiet", "run by hand", func(r pastRun) bool { return r.Trigger == "manual" })
	for _, url := range seen { // whichever replica has the run
		code, events := askAPI(t, "GET", url+"/api/v1/jobs/quiet/output?run_id="+run.RunID, bobsToken, "")
		if code != http.StatusOK || !strings.Contains(events, `"line":"first"`) || !strings.Contains(events, `"line":"last"`) || !strings.Contains(events, `"outcome":"ok"`) {
			t.Errorf("output by %s: %d %s", url, code, events)
		}
	}
	if code, body := askAPI(t, "GET", seen[0]+"/api/v1/audit", bobsToken, ""); code != http.StatusOK || strings.Count(body, `"by":"ann"`) != 1 || !strings.Contains(body, `"reason":"by hand"`) {
		t.Errorf("audit log: %d %s", code, body)
	}
	stopAll(t, replicas)
}

// refuseActs demands that all ways to act that are not meant are refused.
func refuseActs(t *testing.T, url string) {
	t.Helper()
	for _, route := range []string{"/jobs/quiet/trigger", "/jobs/quiet/cancel", "/pause", "/resume"} {
		for _, refusal := range []struct {
			token, header string
			code          int
		}{
			{"", "", http.StatusUnauthorized},
			{bobsToken, "", http.StatusForbidden},
			{annsToken, "Origin: https://evil.example", http.StatusForbidden},
			{annsToken, "Sec-Fetch-Site: cross-site", http.StatusForbidden},
			{annsToken, "Host: evil.example", http.StatusMisdirectedRequest},
		} {
			if code, body := askAPI(t, "POST", url+"/api/v1"+route, refusal.token, `{"all":true}`, refusal.header); code != refusal.code || strings.Contains(body, "token-of") {
				t.Errorf("%s with %+v: %d %s", route, refusal, code, body)
			}
		}
	}
}

// 200 idle streams, and one whose reader is stuck, cost no run. It runs alone: beside others a small machine has no time left for a tick each second.
func TestStreamsCostNoRun(t *testing.T) { //nolint:paralleltest // see above
	slow(t)
	c := newCluster(t, fmt.Sprintf(`
server = { listen = "127.0.0.1:0", token_file = %q }
[defaults]
command = '"$SCRIBE" -for 100ms'
[jobs.tick]
schedule = "* * * * * *"
[jobs.idle]
schedule = "*/2 * * * * *"
command = ["sh", "-c", "echo hello"]
[jobs.talk]
schedule = "* * * * * *"
command = ["sh", "-c", "head -c 300000 /dev/zero | tr '\\0' '\\n'"]
[jobs.talk.output]
log = false
`, usersFile(t)))
	r := c.startAll(t, 1)[0]
	c.awaitReplicas(t, 1)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	host := strings.TrimPrefix(r.apiURL(t), "http://")
	for i := range 201 {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
		must(t, err)
		defer conn.Close()
		job := "idle"
		if i == 0 {
			job = "talk" // and nothing of it is read
		}
		_, err = fmt.Fprintf(conn, "GET /api/v1/jobs/%s/output HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", job, bobsToken)
		must(t, err)
		if line, err := bufio.NewReaderSize(conn, 16).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
			t.Fatalf("stream %d: %q %v", i, line, err)
		}
	}
	first := c.awaitTick(t, startTimeout, "tick", 0).Tick
	c.awaitTick(t, startTimeout, "tick", first+10)
	stopAll(t, []*replica{r})
	c.checkEachTickOnce(t, "tick")
}
