package integration

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

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
	env := []string{quickExit, "TMPDIR=" + folder, "HOME=" + folder}
	r := startObserved(t, "trial", "", env, program(t, cronclaveProgram), "run", jobs, "--embedded-redis", "--log-format", "json")
	say := r.WaitLog(t, soon, "how to look at it", message("look at this trial from another terminal"))
	try, _ := say["try"].(string)
	args := strings.Fields(strings.TrimPrefix(try, "cronclave status "))
	if len(args) != 2 || args[0] != "--redis" {
		t.Fatalf("try %q", try)
	}
	socket := strings.TrimPrefix(args[1], "unix://")
	if info, err := os.Stat(filepath.Dir(socket)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the socket's folder: %v, %v", info, err)
	}
	look := func(words ...string) commandLine { return runCommand(t, env, append(words, args...)...) }
	eventually(t, time.Minute, "run in the history", func() bool { return strings.Contains(look("history", "hello", "--json").stdout, `"ok"`) })
	look("status").want(t, 0, "hello")
	look("status", "hello").want(t, 0, "hello")
	look("history").want(t, 0, "ok")
	look("audit").want(t, 0, "")
	var past []pastRun
	look("history", "hello", "--outcome", "ok", "-n", "1", "--json").decode(t, &past)
	look("logs", "hello", "--run", past[0].RunID).want(t, 0, "world")
	look("why", "hello", past[0].Tick.Format(time.RFC3339)).want(t, 0, "ran on")
	follow := startObserved(t, "follower", "", env, program(t, cronclaveProgram), append([]string{"logs", "hello", "-f"}, args...)...)
	eventually(t, time.Minute, "followed output", func() bool { return strings.Contains(strings.Join(follow.Log(), "\n"), "world") })
	url := r.apiURL(t)
	for path, want := range map[string]string{"/": `href="/jobs/hello"`, "/jobs/hello": "View only", "/cluster": "An embedded server", "/api/v1/status": `"name":"hello"`, "/metrics": `cronclave_outcomes_total{job_name="hello",outcome="ok"}`} {
		if code, body := askAPI(t, "GET", url+path, "", ""); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d without %q: %s", path, code, want, body)
		}
	}
	if code, body := askAPI(t, "POST", url+"/api/v1/jobs/hello/trigger", "", "{}"); code != http.StatusForbidden {
		t.Errorf("trigger without a token: %d %s", code, body)
	}
	for _, act := range [][]string{{"trigger", "hello"}, {"pause", "hello"}} {
		look(act...).want(t, 69, "the embedded Redis of a trial")
	}
	r.Term(t)
	if code := r.Wait(t, time.Minute); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Stat(filepath.Dir(socket)); !os.IsNotExist(err) {
		t.Errorf("the socket's folder is still there: %v", err)
	}
}
