package locks

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

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/testtier"
)

// Each block of docs/fencing.md is tested code. It is a file of testdata/fencing, or whole lines of the tests that
// run these files; each such file is shown, and run.
func TestFencingDocQuotesWhatIsRun(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(harness.Root + "/docs/fencing.md")
	if err != nil {
		t.Fatal(err)
	}
	sources, err := filepath.Glob("fencing_*test.go")
	if err != nil || len(sources) == 0 {
		t.Fatal("no tests of the examples: ", err)
	}
	tests := "\n"
	for _, name := range sources {
		tests += readFile(t, name)
	}
	blocks := codeBlocks(string(doc))
	files, err := filepath.Glob("testdata/fencing/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		i := slices.Index(blocks, readFile(t, name))
		if i < 0 {
			t.Errorf("docs/fencing.md does not show %s as it is", name)
			continue
		}
		blocks = slices.Delete(blocks, i, i+1)
		if !strings.Contains(tests, `"`+filepath.Base(name)+`"`) {
			t.Errorf("no test runs %s", name)
		}
	}
	for _, block := range blocks {
		if !strings.Contains(tests, "\n"+block) {
			t.Errorf("docs/fencing.md shows what no test runs:\n%s", block)
		}
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// codeBlocks are the texts between lines of backquotes.
func codeBlocks(doc string) []string {
	const fence = "```"
	var blocks []string
	inside := false
	for line := range strings.Lines(doc) {
		switch {
		case strings.HasPrefix(line, fence):
			if inside = !inside; inside {
				blocks = append(blocks, "")
			}
		case inside:
			blocks[len(blocks)-1] += line
		}
	}
	return blocks
}

func TestExamplesAreGoodShell(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob("testdata/fencing/*.sh")
	if err != nil || len(scripts) == 0 {
		t.Fatal("no scripts: ", err)
	}
	for _, name := range scripts {
		if out, err := exec.CommandContext(t.Context(), "sh", "-n", name).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

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
	r := harness.SharedRedis(t)
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
	path := filepath.Dir(harness.Program(t, harness.CronclaveProgram)) + ":" + os.Getenv("PATH")
	s.env = append(slices.Concat(harness.CleanEnv(), env), "DIR="+s.dir, "JOBS="+jobs, "PATH="+path, harness.QuickExit)
	return s
}

// start starts a holder.
func (s *still) start(name string) (cmd *exec.Cmd, said *harness.LineLog) {
	s.Helper()
	said = &harness.LineLog{}
	cmd = exec.CommandContext(s.Context(), harness.Program(s.T, harness.CronclaveProgram), "exec", "report", "-c", filepath.Join(s.dir, "jobs.toml"))
	cmd.Env = append(slices.Clone(s.env), "HOLDER="+name)
	cmd.Stdout, cmd.Stderr = said, said
	harness.DieWithUs(cmd)
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
	pid, err := strconv.Atoi(harness.WaitLines(s.T, filepath.Join(s.dir, "one.pid"), 1, harness.Soon)[0])
	if err != nil {
		s.Fatal(err)
	}
	for _, p := range []int{first.Process.Pid, pid} {
		s.kill(p, syscall.SIGSTOP)
	}
	harness.Eventually(s.T, harness.Soon, "holder that stands still", func() bool { return strings.HasPrefix(harness.ProcessState(pid), "T") })
	if err := os.WriteFile(filepath.Join(s.dir, "go"), nil, 0o600); err != nil {
		s.Fatal(err)
	}
	harness.Eventually(s.T, 3*harness.Soon, "second holder", func() bool {
		second, log := s.start("two")
		_ = second.Wait() // the exit code is checked instead
		code := second.ProcessState.ExitCode()
		if code != 0 && code != 75 { // 75: the lease of the first has not ended yet
			s.Fatalf("the second holder: exit code %d\n%s", code, strings.Join(log.Lines(), "\n"))
		}
		return code == 0
	})
	s.kill(pid, syscall.SIGCONT)
	s.kill(first.Process.Pid, syscall.SIGCONT)
	harness.Eventually(s.T, harness.Soon, "end of the first holder's job", func() bool { return harness.ProcessState(pid) == "" })
	_ = first.Wait()
	return first.ProcessState.ExitCode(), strings.Join(log.Lines(), "\n")
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
		cmd.Env, cmd.Stdin = append(harness.CleanEnv(), tc.env...), strings.NewReader("new")
		out, _ := cmd.CombinedOutput() // the exit code is checked instead
		got, err := os.ReadFile(file)
		if code := cmd.ProcessState.ExitCode(); err != nil || code != tc.code || (string(got) == "new") != (code == 0) {
			t.Errorf("%+v: exit code %d, %q\n%s", tc, code, got, out)
		}
	}
}

// On a Cluster the fence command inspects only the master that has the fence: other masters may evict keys.
func TestFenceOnACluster(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const slot = 5152 // of {reports}
	c := harness.StartCluster(t)
	fence := func(token string) harness.CommandLine {
		return harness.RunCommand(t, []string{"CRONCLAVE_REDIS=" + c.URL}, "fence", "reports", token)
	}
	evict := func(n *harness.RedisServer) {
		harness.Must(t, n.Client.ConfigSet(t.Context(), "maxmemory", "100mb").Err())
		harness.Must(t, n.Client.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	}
	keeper := c.Owner(t, slot)
	fence("5").Want(t, 0, "")
	fence("4").Want(t, 77, "5")
	for _, n := range c.Nodes {
		if n != keeper {
			evict(n)
		}
	}
	fence("6").Want(t, 0, "")
	evict(keeper)
	fence("7").Want(t, 1, "allkeys-lru")
}

// The fence command works on a real Redis, in the form in which users call it.
func TestFenceOnRealRedis(t *testing.T) {
	t.Parallel()
	r := harness.SharedRedis(t)
	fence := func(args ...string) harness.CommandLine {
		return harness.RunCommand(t, nil, append([]string{"fence", "--redis", r.URL, "--namespace", r.Namespace}, args...)...)
	}
	fence("reports", "1795187352000823").Want(t, 0, "")
	fence("reports", "1795187352000823").Want(t, 0, "")
	if c := fence("reports", "1795187352000822"); c.Code != 77 || c.Stdout != "1795187352000823\n" {
		t.Errorf("exit code %d, %q, %q", c.Code, c.Stdout, c.Stderr)
	}
	fence("--idle", "30d", "many", "7").Want(t, 0, "")
	key := "cronclave:" + r.Namespace + ":{reports}:fence"
	if life, err := r.Client.PTTL(t.Context(), key).Result(); err != nil || life != -1 {
		t.Errorf("the fence goes in %v (%v), want never", life, err)
	}
	if took, err := r.Client.MemoryUsage(t.Context(), key).Result(); err != nil || took > 200 {
		t.Errorf("a fence takes %d bytes (%v)", took, err)
	}
}
