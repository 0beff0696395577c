package web

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
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
	harness.Must(t, os.WriteFile(file, []byte(line("ann", "operator", annsToken)+line("bob", "viewer", bobsToken)), 0o600))
	return file
}

// Any replica answers for the whole cluster. An act takes the token of an operator, and is refused from a page of another site or by a foreign name.
func TestAnyReplicaAnswersForTheCluster(t *testing.T) {
	t.Parallel()
	c := harness.NewCluster(t, fmt.Sprintf(`
server = { listen = "127.0.0.1:0", token_file = %q }
[jobs.quiet]
schedule = "0 0 1 1 *"
command = ["sh", "-c", "echo first; sleep 1; echo last"]
`, usersFile(t)))
	replicas := c.StartAll(t, 2)
	c.AwaitReplicas(t, 2)
	var seen []string
	for _, r := range replicas {
		url := r.ApiURL(t)
		harness.Eventually(t, harness.Soon, "readiness", func() bool { code, _ := harness.AskAPI(t, "GET", url+"/readyz", "", ""); return code == http.StatusOK })
		code, body := harness.AskAPI(t, "GET", url+"/api/v1/status", bobsToken, "")
		var st harness.ClusterStatus
		if err := json.Unmarshal([]byte(body), &st); code != http.StatusOK || err != nil || len(st.Replicas) != 2 || st.Jobs[0].Name != "quiet" {
			t.Errorf("status of %s: %d %v %s", url, code, err, body)
		}
		seen = append(seen, url)
	}
	refuseActs(t, seen[0])

	code, body := harness.AskAPI(t, "POST", seen[1]+"/api/v1/jobs/quiet/trigger", annsToken, `{"reason":"by hand"}`)
	if code != http.StatusOK {
		t.Fatalf("trigger: %d %s", code, body)
	}
	run := c.AwaitRun(t, harness.StartTimeout, "quiet", "run by hand", func(r harness.PastRun) bool { return r.Trigger == "manual" })
	for _, url := range seen { // whichever replica has the run
		code, events := harness.AskAPI(t, "GET", url+"/api/v1/jobs/quiet/output?run_id="+run.RunID, bobsToken, "")
		if code != http.StatusOK || !strings.Contains(events, `"line":"first"`) || !strings.Contains(events, `"line":"last"`) || !strings.Contains(events, `"outcome":"ok"`) {
			t.Errorf("output by %s: %d %s", url, code, events)
		}
	}
	if code, body := harness.AskAPI(t, "GET", seen[0]+"/api/v1/audit", bobsToken, ""); code != http.StatusOK || strings.Count(body, `"by":"ann"`) != 1 || !strings.Contains(body, `"reason":"by hand"`) {
		t.Errorf("audit log: %d %s", code, body)
	}
	harness.StopAll(t, replicas)
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
			if code, body := harness.AskAPI(t, "POST", url+"/api/v1"+route, refusal.token, `{"all":true}`, refusal.header); code != refusal.code || strings.Contains(body, "token-of") {
				t.Errorf("%s with %+v: %d %s", route, refusal, code, body)
			}
		}
	}
}

// 200 idle streams, and one whose reader is stuck, cost no run. It runs alone: beside others a small machine has no time left for a tick each second.
func TestStreamsCostNoRun(t *testing.T) { //nolint:paralleltest // see above
	testtier.Slow(t)
	c := harness.NewCluster(t, fmt.Sprintf(`
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
	r := c.StartAll(t, 1)[0]
	c.AwaitReplicas(t, 1)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	host := strings.TrimPrefix(r.ApiURL(t), "http://")
	for i := range 201 {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
		harness.Must(t, err)
		defer conn.Close()
		job := "idle"
		if i == 0 {
			job = "talk" // and nothing of it is read
		}
		_, err = fmt.Fprintf(conn, "GET /api/v1/jobs/%s/output HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", job, bobsToken)
		harness.Must(t, err)
		if line, err := bufio.NewReaderSize(conn, 16).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
			t.Fatalf("stream %d: %q %v", i, line, err)
		}
	}
	first := c.AwaitTick(t, harness.StartTimeout, "tick", 0).Tick
	c.AwaitTick(t, harness.StartTimeout, "tick", first+10)
	harness.StopAll(t, []*harness.Replica{r})
	c.CheckEachTickOnce(t, "tick")
}

// Another terminal looks at a trial, by the command that its replica logs, and changes nothing in it. A browser and a program look at it by [server].
func TestTrialIsLookedAtFromAnotherTerminal(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	jobs := filepath.Join(folder, "jobs.toml")
	text := `
[server]
listen = "127.0.0.1:0"
[jobs.hello]
schedule = "* * * * * *"
command  = "echo hello; sleep 0.2; echo world"
`
	if err := os.WriteFile(jobs, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{harness.QuickExit, "TMPDIR=" + folder, "HOME=" + folder}
	r := harness.StartObserved(t, "trial", "", env, harness.Program(t, harness.CronclaveProgram), "run", jobs, "--embedded-redis", "--log-format", "json")
	say := r.WaitLog(t, harness.Soon, "how to look at it", harness.MessageHas("look at this trial from another terminal"))
	try, _ := say["try"].(string)
	args := strings.Fields(strings.TrimPrefix(try, "cronclave status "))
	if len(args) != 2 || args[0] != "--redis" {
		t.Fatalf("try %q", try)
	}
	socket := strings.TrimPrefix(args[1], "unix://")
	if info, err := os.Stat(filepath.Dir(socket)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the socket's folder: %v, %v", info, err)
	}
	look := func(words ...string) harness.CommandLine {
		return harness.RunCommand(t, env, append(words, args...)...)
	}
	harness.Eventually(t, time.Minute, "run in the history", func() bool { return strings.Contains(look("history", "hello", "--json").Stdout, `"ok"`) })
	look("status").Want(t, 0, "hello")
	look("status", "hello").Want(t, 0, "hello")
	look("history").Want(t, 0, "ok")
	look("audit").Want(t, 0, "")
	var past []harness.PastRun
	look("history", "hello", "--outcome", "ok", "-n", "1", "--json").Decode(t, &past)
	look("logs", "hello", "--run", past[0].RunID).Want(t, 0, "world")
	look("why", "hello", past[0].Tick.Format(time.RFC3339)).Want(t, 0, "ran on")
	follow := harness.StartObserved(t, "follower", "", env, harness.Program(t, harness.CronclaveProgram), append([]string{"logs", "hello", "-f"}, args...)...)
	harness.Eventually(t, time.Minute, "followed output", func() bool { return strings.Contains(strings.Join(follow.Log(), "\n"), "world") })
	url := r.ApiURL(t)
	for path, want := range map[string]string{"/": `href="/jobs/hello"`, "/jobs/hello": "View only", "/cluster": "An embedded server", "/api/v1/status": `"name":"hello"`, "/metrics": `cronclave_outcomes_total{job_name="hello",outcome="ok"}`} {
		if code, body := harness.AskAPI(t, "GET", url+path, "", ""); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d without %q: %s", path, code, want, body)
		}
	}
	if code, body := harness.AskAPI(t, "POST", url+"/api/v1/jobs/hello/trigger", "", "{}"); code != http.StatusForbidden {
		t.Errorf("trigger without a token: %d %s", code, body)
	}
	for _, act := range [][]string{{"trigger", "hello"}, {"pause", "hello"}} {
		look(act...).Want(t, 69, "the embedded Redis of a trial")
	}
	r.Term(t)
	if code := r.Wait(t, time.Minute); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Stat(filepath.Dir(socket)); !os.IsNotExist(err) {
		t.Errorf("the socket's folder is still there: %v", err)
	}
}
