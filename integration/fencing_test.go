package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cronclave/cronclave/internal/config"
)

// The examples of docs/fencing.md, each with the schedule that they are for: a holder stands still just before it writes, its
// lease ends, another holds the lock and writes, and the first one goes on.

// stillHolder is a job that waits, right before it writes, for the file go.
const stillHolder = `
[jobs.report]
schedule = "@yearly"
command  = ["sh", "-c", 'echo $$ >"$DIR/$HOLDER.pid"; until [ -e "$DIR/go" ]; do sleep 0.05; done; echo "by $HOLDER" | "$@"', "sh", %s]
lease    = "2s"
on_lease_lost = "continue" # the whole machine stands still, its warden too
`

// still is the folder of two holders of one job, which publish by the same command.
type still struct {
	*testing.T
	dir string
	env []string
}

func newStill(t *testing.T, env []string, publish ...string) *still {
	t.Helper()
	r := sharedRedis(t)
	s := &still{t, t.TempDir(), nil}
	quoted := make([]string, len(publish))
	for i, word := range publish {
		quoted[i] = strconv.Quote(strings.ReplaceAll(word, "DIR", s.dir))
	}
	jobs := filepath.Join(s.dir, "jobs.toml")
	text := fmt.Sprintf("namespace = %q\n[redis]\nurl = %q\n", r.Namespace, r.URL) + fmt.Sprintf(stillHolder, strings.Join(quoted, ", "))
	if err := os.WriteFile(jobs, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Load(jobs, config.Options{}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Dir(program(t, cronclaveProgram)) + ":" + os.Getenv("PATH")
	s.env = append(slices.Concat(cleanEnv(), env), "DIR="+s.dir, "JOBS="+jobs, "PATH="+path, quickExit)
	return s
}

// start starts a holder.
func (s *still) start(name string) (cmd *exec.Cmd, said *lineLog) {
	s.Helper()
	said = &lineLog{}
	cmd = exec.CommandContext(s.Context(), program(s.T, cronclaveProgram), "exec", "report", "-c", filepath.Join(s.dir, "jobs.toml"))
	cmd.Env = append(slices.Clone(s.env), "HOLDER="+name)
	cmd.Stdout, cmd.Stderr = said, said
	dieWithUs(cmd)
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	return cmd, said
}

// run plays the schedule, and returns the exit code of the holder that stood still, and what it said.
func (s *still) run() (code int, said string) {
	s.Helper()
	first, log := s.start("one")
	defer func() { _ = first.Wait() }() // for when the test has failed; the context kills it
	pid, err := strconv.Atoi(waitLines(s.T, filepath.Join(s.dir, "one.pid"), 1, soon)[0])
	if err != nil {
		s.Fatal(err)
	}
	for _, p := range []int{first.Process.Pid, pid} {
		s.kill(p, syscall.SIGSTOP)
	}
	eventually(s.T, soon, "holder that stands still", func() bool { return strings.HasPrefix(processState(pid), "T") })
	if err := os.WriteFile(filepath.Join(s.dir, "go"), nil, 0o600); err != nil {
		s.Fatal(err)
	}
	eventually(s.T, 3*soon, "second holder", func() bool {
		second, log := s.start("two")
		_ = second.Wait() // the exit code is checked instead
		code := second.ProcessState.ExitCode()
		if code != 0 && code != 75 { // 75: the lease of the first has not ended yet
			s.Fatalf("the second holder: exit code %d\n%s", code, strings.Join(log.lines(), "\n"))
		}
		return code == 0
	})
	s.kill(pid, syscall.SIGCONT)
	s.kill(first.Process.Pid, syscall.SIGCONT)
	eventually(s.T, soon, "end of the first holder's job", func() bool { return processState(pid) == "" })
	_ = first.Wait()
	return first.ProcessState.ExitCode(), strings.Join(log.lines(), "\n")
}

func (s *still) kill(pid int, sig syscall.Signal) {
	s.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		s.Fatal(err)
	}
}

// file returns the text of a file in the folder.
func (s *still) file(name string) string {
	s.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		s.Fatal(err)
	}
	return string(text)
}

// example is the path of a script that docs/fencing.md shows.
func example(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", "fencing", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Without a fence a holder that stood still overwrites the newer report unnoticed. This is the damage that fences
// prevent.
// Promise: P4
func TestStillHolderWithoutAFence(t *testing.T) {
	t.Parallel()
	s := newStill(t, nil, "sh", "-c", "cat >DIR/report")
	code, said := s.run()
	if got := s.file("report"); code != 0 || got != "by one\n" {
		t.Errorf("exit code %d, the report is %q: the schedule does no harm here\n%s", code, got, said)
	}
}

// A fence beside a file refuses a holder that stood still.
// Promise: P4
func TestStillHolderAndAFile(t *testing.T) {
	t.Parallel()
	s := newStill(t, nil, "sh", example(t, "publish-file.sh"), "DIR/report")
	code, said := s.run()
	if got := s.file("report"); code != 77 || got != "by two\n" || !strings.Contains(said, "is stale: ") {
		t.Errorf("exit code %d, the report is %q\n%s", code, got, said)
	}
	left, err := filepath.Glob(filepath.Join(s.dir, "report.*"))
	if err != nil || len(left) != 2 {
		t.Errorf("beside the report there are %q (%v), want its fence and its lock", left, err)
	}
}

// The command `cronclave fence` refuses a holder that stood still.
// Promise: P4
func TestStillHolderAndTheFenceCommand(t *testing.T) {
	t.Parallel()
	s := newStill(t, nil, "sh", example(t, "fenced.sh"), "reports", "sh", "-c", "cat >DIR/report")
	code, said := s.run()
	if got := s.file("report"); code != 77 || got != "by two\n" || !strings.Contains(said, "stale fencing token") {
		t.Errorf("exit code %d, the report is %q\n%s", code, got, said)
	}
}

// A file whose fence is damaged refuses every report, and each file refuses a report without a token.
func TestFileWithADamagedFence(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		fence string
		env   []string
		code  int
	}{
		{"5", []string{"CRONCLAVE_FENCING_TOKEN=5"}, 0},
		{"", []string{"CRONCLAVE_FENCING_TOKEN=5"}, 77},
		{"x", []string{"CRONCLAVE_FENCING_TOKEN=5"}, 77},
		{"5", []string{"CRONCLAVE_FENCING_TOKEN="}, 77},
		{"5", nil, 2},
	} {
		file := filepath.Join(t.TempDir(), "report")
		for name, text := range map[string]string{file: "old", file + ".fence": tc.fence} {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.CommandContext(t.Context(), "sh", example(t, "publish-file.sh"), file)
		cmd.Env, cmd.Stdin = append(cleanEnv(), tc.env...), strings.NewReader("new")
		out, _ := cmd.CombinedOutput() // the exit code is checked instead
		got, err := os.ReadFile(file)
		if code := cmd.ProcessState.ExitCode(); err != nil || code != tc.code || (string(got) == "new") != (code == 0) {
			t.Errorf("%+v: exit code %d, %q\n%s", tc, code, got, out)
		}
	}
}

// On a Cluster the fence command inspects only the master that has the fence: other masters may evict keys.
func TestFenceOnACluster(t *testing.T) {
	slow(t)
	t.Parallel()
	const slot = 5152 // of {reports}
	c := startCluster(t)
	fence := func(token string) commandLine {
		return runCommand(t, []string{"CRONCLAVE_REDIS=" + c.URL}, "fence", "reports", token)
	}
	evict := func(n *redisServer) {
		must(t, n.Client.ConfigSet(t.Context(), "maxmemory", "100mb").Err())
		must(t, n.Client.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	}
	keeper := c.owner(t, slot)
	fence("5").want(t, 0, "")
	fence("4").want(t, 77, "5")
	for _, n := range c.nodes {
		if n != keeper {
			evict(n)
		}
	}
	fence("6").want(t, 0, "")
	evict(keeper)
	fence("7").want(t, 1, "allkeys-lru")
}

// The fence command works on a real Redis, in the form in which users call it.
func TestFenceOnRealRedis(t *testing.T) {
	t.Parallel()
	r := sharedRedis(t)
	fence := func(args ...string) commandLine {
		return runCommand(t, nil, append([]string{"fence", "--redis", r.URL, "--namespace", r.Namespace}, args...)...)
	}
	fence("reports", "1795187352000823").want(t, 0, "")
	fence("reports", "1795187352000823").want(t, 0, "")
	if c := fence("reports", "1795187352000822"); c.code != 77 || c.stdout != "1795187352000823\n" {
		t.Errorf("exit code %d, %q, %q", c.code, c.stdout, c.stderr)
	}
	fence("--idle", "30d", "many", "7").want(t, 0, "")
	key := "cronclave:" + r.Namespace + ":{reports}:fence"
	if life, err := r.Client.PTTL(t.Context(), key).Result(); err != nil || life != -1 {
		t.Errorf("the fence goes in %v (%v), want never", life, err)
	}
	if took, err := r.Client.MemoryUsage(t.Context(), key).Result(); err != nil || took > 200 {
		t.Errorf("a fence takes %d bytes (%v)", took, err)
	}
}
