package process

import (
	"fmt"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

// A run that exceeds its timeout is killed with its child although both ignore SIGTERM.
func TestTimeoutKillsTheTree(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c := harness.NewCluster(t, `
[jobs.stubborn]
schedule = "* * * * * *"
command = 'exec "$SCRIBE" -for 1m -beat 20ms -ignore-term -child'
timeout = "2s"
kill_grace = "1s"
lease = "1m"
`)
	replicas := c.StartAll(t, 2)
	first := c.AwaitTick(t, harness.Soon, "stubborn", 0)
	next := c.Await(t, harness.Soon, "stubborn", "next run", func(l harness.Line) bool { return l.Event == "start" && l.RunID != first.RunID })
	past := c.AwaitRun(t, harness.Soon, "stubborn", "end", func(r harness.PastRun) bool { return r.RunID == first.RunID && r.Outcome != "running" })
	if past.Verdict() != "timeout" || past.Signal != "SIGKILL" || past.ExitCode != nil {
		t.Errorf("%+v, want timeout by SIGKILL", past)
	}
	lines := c.Lines(t, "")
	mine := harness.RunLines(first.RunID, lines)
	if len(harness.LinesOf("term", mine)) != 2 {
		t.Errorf("SIGTERM did not reach both processes:\n%s", harness.TextOf(harness.LinesOf("term", mine)))
	}
	// The scribe of a busy machine writes its first line late, so the record shows the least that the run took.
	if ran, lived := past.Finished.Sub(past.Started), harness.LatestAt(mine).Sub(first.At()); ran < 2*time.Second || lived > 3*time.Second+harness.Slack {
		t.Errorf("the run took %v and its tree lived for %v, want 3s", ran, lived)
	}
	harness.WantDead(t, mine)
	harness.CheckAlone(t, lines)
	if next.Token <= first.Token {
		t.Errorf("the token did not grow:\n%s", harness.TextOf([]harness.Line{first, next}))
	}
	for _, r := range replicas { // no need to wait for the drain
		r.Kill(t)
	}
}

// A command that cannot start is a failed run each time, and the replica goes on.
func TestCommandThatCannotRun(t *testing.T) {
	t.Parallel()
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("no program\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := harness.NewCluster(t, fmt.Sprintf(`
[jobs.missing]
schedule = "* * * * * *"
command = ["no-such-program", "--all"]

[jobs.plain]
schedule = "* * * * * *"
command = [%q]

[jobs.nowhere]
schedule = "* * * * * *"
command = ["true"]
dir = "/no/such/folder"

[jobs.nobody]
schedule = "* * * * * *"
command = ["true"]
user = "no-such-user"

[jobs.good]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
`, plain))
	replicas := c.StartAll(t, 1)
	first := c.AwaitTick(t, harness.Soon, "good", 0)
	c.AwaitTick(t, harness.Soon, "good", first.Tick+3)
	harness.StopAll(t, replicas)
	for job, want := range map[string]struct {
		code   int
		reason string
	}{
		"missing": {127, "not found: no-such-program"},
		"plain":   {126, "no execute permission"},
		"nowhere": {-1, "/no/such/folder"},
		"nobody":  {-1, "no-such-user"},
	} {
		history := slices.DeleteFunc(c.History(t, job), func(r harness.PastRun) bool { return r.Outcome == "skipped" }) // a program that is not there is looked for again for a second
		if len(history) < 2 {
			t.Errorf("job %s: %d runs, want several", job, len(history))
		}
		for _, r := range history {
			code := -1
			if r.ExitCode != nil {
				code = *r.ExitCode
			}
			if r.Outcome != "failed" || code != want.code || !strings.Contains(r.Reason, want.reason) {
				t.Errorf("job %s: exit code %d in %+v, want failed, %d, %q", job, code, r, want.code, want.reason)
			}
		}
	}
}

// An exit code that the job lists in ok_exit_codes counts as a success.
func TestOKExitCodes(t *testing.T) {
	t.Parallel()
	c := harness.NewCluster(t, `
[defaults]
schedule = "* * * * * *"
ok_exit_codes = [0, 3]

[jobs.three]
command = "exit 3"

[jobs.four]
command = "exit 4"

[jobs.signalled]
command = "kill -9 $$"
`)
	replicas := c.StartAll(t, 1)
	for job, want := range map[string]struct {
		verdict, signal string
		code            int
	}{
		"three":     {"ok", "", 3},
		"four":      {"failed exit code 4", "", 4},
		"signalled": {"failed ended by SIGKILL", "SIGKILL", -1},
	} {
		r := c.AwaitRun(t, harness.Soon, job, "end", func(r harness.PastRun) bool {
			return r.Outcome != "running" && r.Outcome != "skipped" // a slow machine runs some for longer than a second
		})
		code := -1
		if r.ExitCode != nil {
			code = *r.ExitCode
		}
		if r.Verdict() != want.verdict || r.Signal != want.signal || code != want.code {
			t.Errorf("job %s: %+v, want %+v", job, r, want)
		}
	}
	harness.StopAll(t, replicas)
}

// A job's environment has all that docs/jobs.md promises, and none of the secrets.
func TestJobsEnvironment(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	harness.WriteFile(t, filepath.Join(dir, "job.env"), "FROM_ENV_FILE='a b'\n")
	harness.WriteFile(t, filepath.Join(dir, "password"), "pg-secret\n")
	// [redis] is overridden by CRONCLAVE_REDIS; that its variable is taken counts all the same.
	c := harness.NewCluster(t, fmt.Sprintf(`
[redis]
url = "redis://:${IT_REDIS_PASSWORD}@127.0.0.1:1/0"

[defaults]
schedule = "* * * * * *"

[jobs.full]
command = '''env > "$OUT.tmp" && mv "$OUT.tmp" "$OUT"'''
env = { OUT = %[1]q, OWN = "from ${IT_VISIBLE}" }
env_file = %[2]q
env_from_file = { PGPASSWORD = %[3]q }
parallel = 2
per_tick = 1

[jobs.bare]
command = '''/usr/bin/env > "$OUT.tmp" && mv "$OUT.tmp" "$OUT"'''
env = { OUT = %[4]q }
inherit_env = false
`, filepath.Join(dir, "full"), filepath.Join(dir, "job.env"), filepath.Join(dir, "password"), filepath.Join(dir, "bare")))
	c.Env = []string{"IT_REDIS_PASSWORD=" + harness.Secret, "IT_VISIBLE=seen"}
	r := c.Start(t, "r1", "CRONCLAVE_CLOCK_OFFSET=0s", "CRONCLAVE_SECRET="+harness.Secret, "IT_PLAIN=plain")

	full := readEnvironment(t, filepath.Join(dir, "full"))
	past := c.AwaitRun(t, harness.Soon, "full", "the run", func(r harness.PastRun) bool { return r.RunID == full["CRONCLAVE_RUN_ID"] && r.Outcome == "ok" })
	for name, want := range map[string]string{
		"CRONCLAVE_JOB": "full", "CRONCLAVE_NAMESPACE": c.Namespace, "CRONCLAVE_REPLICA": "r1", "CRONCLAVE_RUN_ID": past.RunID,
		"CRONCLAVE_TICK": past.Tick.Format("2006-01-02T15:04:05Z"), "CRONCLAVE_TICK_UNIX": strconv.FormatInt(past.Tick.Unix(), 10),
		"CRONCLAVE_ATTEMPT": "1", "CRONCLAVE_FENCING_TOKEN": strconv.FormatInt(past.Token, 10), "CRONCLAVE_SLOT": strconv.Itoa(*past.Slot),
		"CRONCLAVE_SLOTS": "2", "CRONCLAVE_TRIGGER": "schedule",
		"OWN": "from seen", "FROM_ENV_FILE": "a b", "PGPASSWORD": "pg-secret", "IT_PLAIN": "plain", "IT_VISIBLE": "seen", "PATH": os.Getenv("PATH"),
	} {
		if full[name] != want {
			t.Errorf("%s is %q, want %q", name, full[name], want)
		}
	}
	wantOurs(t, full)
	if _, taken := full["IT_REDIS_PASSWORD"]; taken {
		t.Error("a variable that [redis] took is handed on")
	}

	bare := readEnvironment(t, filepath.Join(dir, "bare"))
	wantOurs(t, bare)
	for name := range bare {
		if !strings.HasPrefix(name, "CRONCLAVE_") && !strings.HasPrefix(name, "SCRIBE") &&
			!slices.Contains([]string{"PATH", "HOME", "LANG", "TZ", "OUT", "PWD", "_", "SHLVL", "OLDPWD"}, name) { // the last four are the shell's
			t.Errorf("inherit_env = false, but %s is handed on", name)
		}
	}
	harness.StopAll(t, []*harness.Replica{r})
	if strings.Contains(strings.Join(r.Log(), "\n"), harness.Secret) {
		t.Error("the log shows a secret")
	}
}

// readEnvironment waits for what `env` has printed.
func readEnvironment(t *testing.T, path string) map[string]string {
	t.Helper()
	env := map[string]string{}
	for _, text := range harness.WaitLines(t, path, 1, harness.Soon) {
		name, value, _ := strings.Cut(text, "=")
		env[name] = value
	}
	return env
}

// wantOurs demands that a job has the variables of docs/jobs.md, no other that begins with CRONCLAVE_, and no secret.
func wantOurs(t *testing.T, env map[string]string) {
	t.Helper()
	want := []string{
		"CRONCLAVE_ATTEMPT", "CRONCLAVE_FENCING_TOKEN", "CRONCLAVE_JOB", "CRONCLAVE_NAMESPACE", "CRONCLAVE_REPLICA",
		"CRONCLAVE_RUN_ID", "CRONCLAVE_SLOT", "CRONCLAVE_SLOTS", "CRONCLAVE_TICK", "CRONCLAVE_TICK_UNIX", "CRONCLAVE_TRIGGER",
	}
	var got []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if strings.HasPrefix(name, "CRONCLAVE_") {
			got = append(got, name)
		}
		if strings.Contains(env[name], harness.Secret) {
			t.Errorf("%s has a secret of the daemon", name)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the job has %v,\nwant %v", got, want)
	}
}

// A job runs in its folder, with its umask, as its user. Where the tests are not root it cannot, and the run says so.
func TestWhereAndAsWhom(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("/tmp", "cronclave-it-") // a folder of the other user must be reachable for it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(nobody.Uid)
	gid, _ := strconv.Atoi(nobody.Gid)
	root := os.Geteuid() == 0
	if root {
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	c := harness.NewCluster(t, fmt.Sprintf(`
[jobs.who]
schedule = "* * * * * *"
command = 'umask > made; (pwd; id -u; id -g; echo "$HOME $USER $LOGNAME $SHELL") > out.tmp; mv out.tmp out'
dir = %q
user = "nobody"
umask = "027"
`, dir))
	replicas := c.StartAll(t, 1)
	past := c.AwaitRun(t, harness.Soon, "who", "end", func(r harness.PastRun) bool { return r.Outcome != "running" })
	if !root {
		if past.Outcome != "failed" || !strings.Contains(past.Reason, "only root may change the user") {
			t.Errorf("%+v, want a failure that says why", past)
		}
		return
	}
	home := nobody.HomeDir
	got := strings.Join(harness.WaitLines(t, filepath.Join(dir, "out"), 4, harness.Soon), "\n")
	want := fmt.Sprintf("%s\n%d\n%d\n%s nobody nobody ", dir, uid, gid, home)
	if !strings.HasPrefix(got, want) {
		t.Errorf("the job sees\n%s\nwant\n%s...", got, want)
	}
	info, err := os.Stat(filepath.Join(dir, "made"))
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("a file made with umask 027: %v, %v", info, err)
	}
	harness.StopAll(t, replicas)
}

// The output of a job is in the log line by line, and its end is in the history.
func TestOutput(t *testing.T) {
	t.Parallel()
	c := harness.NewCluster(t, `
[jobs.loud]
schedule = "* * * * * *"
command = 'echo first; echo second >&2; i=0; while [ $i -lt 50 ]; do echo "line $i"; i=$((i+1)); done; printf last'
output = { keep = "64B" }

[jobs.quiet]
schedule = "* * * * * *"
command = 'echo not for the log'
output = { log = false }
`)
	r := c.StartAll(t, 1)[0]
	past := c.AwaitRun(t, harness.Soon, "loud", "good end", func(r harness.PastRun) bool { return r.Outcome == "ok" })
	stdout := strings.Replace(value(past.Output), "second\n", "", 1) // the streams race
	if len(value(past.Output)) > 64 || !strings.HasSuffix(stdout, "line 48\nline 49\nlast") {
		t.Errorf("history has the output %q, want the last 64 bytes", value(past.Output))
	}
	if past.OutputCut == 0 {
		t.Error("the history does not say that output was left out")
	}
	c.Command(t, "logs", "loud", "--run", past.RunID).Want(t, 0, fmt.Sprintf("… %d bytes left out …\n", past.OutputCut))
	for _, h := range c.History(t, "loud") {
		if h.Output != nil {
			t.Errorf("history without --output has output: %q", *h.Output)
		}
	}
	for text, stream := range map[string]string{"first": "stdout", "second": "stderr", "line 49": "stdout", "last": "stdout"} {
		e := r.WaitLog(t, harness.Soon, text, func(e harness.LogEntry) bool { return e.Message() == text && e["run_id"] == past.RunID })
		if e["stream"] != stream || e["job"] != "loud" || e["replica"] != "r1" || e["tick"] == nil || fmt.Sprint(e["token"]) != strconv.FormatInt(past.Token, 10) {
			t.Errorf("line %q in the log: %v", text, e)
		}
	}
	quiet := c.AwaitRun(t, harness.Soon, "quiet", "good end", func(r harness.PastRun) bool { return r.Outcome == "ok" })
	if value(quiet.Output) != "not for the log\n" {
		t.Errorf("history has the output %q of the quiet job", value(quiet.Output))
	}
	harness.StopAll(t, []*harness.Replica{r})
	if strings.Contains(strings.Join(r.Log(), "\n"), "not for the log") {
		t.Error("output.log is false, but the output is in the log")
	}
}

func value(s *string) string {
	if s == nil {
		return "<none>"
	}
	return *s
}
