package harness

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// ApiURL returns where a replica with [server] answers.
func (r *Replica) ApiURL(t *testing.T) string {
	t.Helper()
	url, _ := r.WaitLog(t, Soon, "address", MessageHas("answering HTTP requests"))["url"].(string)
	return url
}

// AskAPI sends a request with a token, and with headers, each "Name: value".
func AskAPI(t *testing.T, method, url, token, body string, headers ...string) (code int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	Must(t, err)
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
	Must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	Must(t, err)
	return resp.StatusCode, string(text)
}

// ReplicaNamed finds the replica of a name.
func ReplicaNamed(t *testing.T, replicas []*Replica, name string) *Replica {
	t.Helper()
	i := slices.IndexFunc(replicas, func(r *Replica) bool { return r.Name == name })
	if i < 0 {
		t.Fatalf("no replica %s", name)
	}
	return replicas[i]
}

// WantDead demands that all processes that wrote some lines are dead, and reaped soon.
func WantDead(t *testing.T, lines []Line) {
	t.Helper()
	seen := map[int]bool{}
	for _, l := range lines {
		if seen[l.PID] {
			continue
		}
		seen[l.PID] = true
		if state := ProcessState(l.PID); state != "" && !strings.HasPrefix(state, "Z") {
			t.Errorf("process %d of the job is there still, in state %s: %v", l.PID, state, l)
			continue
		}
		Eventually(t, Slack, "end of a zombie", func() bool { return ProcessState(l.PID) == "" })
	}
}

// WantEnd waits for the end of a lock, and demands its exit code and a text on its stderr; nothing is said if that is "".
func (r *Replica) WantEnd(t *testing.T, within time.Duration, code int, said string) {
	t.Helper()
	got := r.Wait(t, within)
	text := strings.Join(r.Log(), "\n")
	if got != code || !strings.Contains(text, said) || said == "" && text != "" {
		t.Errorf("%s: exit code %d, want %d and %q in\n%s", r.Name, got, code, said, text)
	}
}

// MetricsURL returns the address of the metrics of a replica with [server].
func (r *Replica) MetricsURL(t *testing.T) string {
	t.Helper()
	address, _ := r.WaitLog(t, Soon, "address", MessageHas("answering HTTP requests"))["address"].(string)
	return "http://" + address + "/metrics"
}

// GetPage requests a page with a bearer token.
func GetPage(t *testing.T, url, token string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
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

// ReplicaOpts are the settings of a replica.
type ReplicaOpts struct {
	Name      string   // --replica; must be given
	Config    string   // the text of jobs.toml; replicas of one cluster get the same
	Namespace string   // --namespace; "" leaves it to Config
	RedisURL  string   // CRONCLAVE_REDIS
	Env       []string // NAME=value, added to the test's environment less its CRONCLAVE_ variables
	Program   string   // a main package; "" means cronclave itself
	LogFile   string   // where its log goes, and stays, if it is too long for memory; "" keeps it there
	Stdio     *os.File // its stdout and stderr, in the place of a log that is kept; nil keeps it
}

// Replica is a `cronclave run` in a process of its own. All methods may be called from any goroutine, unless they
// take the test.
type Replica struct {
	Name   string
	PID    int
	Config string // where its jobs.toml is

	cmd    *exec.Cmd
	Output *LineLog
	ended  chan struct{} // closed when the process is reaped and its log is complete
}

// StartReplica starts a replica and returns at once; [replica.WaitLog] waits for its progress. After the test it is
// killed if it still runs, its log is shown if the test failed, and a data race in it fails the test.
func StartReplica(t *testing.T, opts ReplicaOpts) *Replica {
	t.Helper()
	if opts.Name == "" {
		t.Fatal("a replica needs a name")
	}
	if opts.Program == "" {
		opts.Program = CronclaveProgram
	}
	config := filepath.Join(t.TempDir(), "jobs.toml")
	if err := os.WriteFile(config, []byte(opts.Config), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"run", "--config", config, "--replica", opts.Name, "--log-format", "json"}
	if opts.Namespace != "" {
		args = append(args, "--namespace", opts.Namespace)
	}
	r := startLogging(t, opts.Name, logTo{opts.LogFile, opts.Stdio}, append(opts.Env, "CRONCLAVE_REDIS="+opts.RedisURL), Program(t, opts.Program), args...)
	r.Config = config
	return r
}

// logTo is where the log of a process goes: see ReplicaOpts.
type logTo struct {
	path  string
	stdio *os.File
}

// StartObserved starts any program as such a process. Its log goes to a file if there is a name for one.
func StartObserved(t *testing.T, name, logFile string, env []string, program string, args ...string) *Replica {
	t.Helper()
	return startLogging(t, name, logTo{path: logFile}, env, program, args...)
}

func startLogging(t *testing.T, name string, to logTo, env []string, program string, args ...string) *Replica {
	t.Helper()
	r := &Replica{Name: name, cmd: exec.Command(program, args...), Output: &LineLog{}, ended: make(chan struct{})}
	r.cmd.Env = append(CleanEnv(), env...)
	r.cmd.Stdout, r.cmd.Stderr = r.Output, r.Output
	switch {
	case to.stdio != nil:
		r.cmd.Stdout, r.cmd.Stderr = to.stdio, to.stdio
	case to.path != "":
		r.Output.Path = to.path
		f, err := os.OpenFile(to.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close() // the replica has its own
		r.cmd.Stdout, r.cmd.Stderr = f, f
	}
	// A job that outlives its killed replica may hold the pipe open: the log is complete without it.
	r.cmd.WaitDelay = 2 * time.Second
	DieWithUs(r.cmd)
	if err := r.cmd.Start(); err != nil {
		t.Fatal("start replica:", err)
	}
	r.PID = r.cmd.Process.Pid
	go func() {
		defer close(r.ended)
		_ = r.cmd.Wait() // ExitCode has the result; a kill is no error here
	}()
	t.Cleanup(func() { r.cleanUp(t) })
	return r
}

// Kill ends the replica by SIGKILL and waits for its end. Its jobs are not waited for.
func (r *Replica) Kill(t *testing.T) { t.Helper(); r.Signal(t, syscall.SIGKILL); <-r.ended }

// Term asks the replica to drain.
func (r *Replica) Term(t *testing.T) { t.Helper(); r.Signal(t, syscall.SIGTERM) }

// Stop freezes the replica, but not its jobs; Cont lets it go on.
func (r *Replica) Stop(t *testing.T) { t.Helper(); r.Signal(t, syscall.SIGSTOP) }

// Cont lets a frozen replica go on.
func (r *Replica) Cont(t *testing.T) { t.Helper(); r.Signal(t, syscall.SIGCONT) }

// Wait waits for the replica's end and returns its exit code, -1 if a signal ended it.
func (r *Replica) Wait(t *testing.T, within time.Duration) int {
	t.Helper()
	Eventually(t, within, "end of replica "+r.Name, r.Ended)
	return r.cmd.ProcessState.ExitCode()
}

// Ended returns whether the process is gone.
func (r *Replica) Ended() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

// Log returns what the replica has logged so far, one line an element.
func (r *Replica) Log() []string { return r.Output.Lines() }

// LogEntry is one line of the replica's JSON log: "msg", "level", "job", "run_id", "tick", "token" ...
type LogEntry map[string]any

// Message is the line's text.
func (e LogEntry) Message() string { s, _ := e["msg"].(string); return s }

// LogEntries returns the JSON lines of the log so far. Numbers are [json.Number]: tokens need all their digits.
func (r *Replica) LogEntries() []LogEntry { return LogEntries(r.Log()) }

func LogEntries(lines []string) []LogEntry {
	var entries []LogEntry
	for _, line := range lines {
		var e LogEntry
		d := json.NewDecoder(strings.NewReader(line))
		d.UseNumber()
		if d.Decode(&e) == nil {
			entries = append(entries, e)
		}
	}
	return entries
}

// WaitLog waits for the first entry of the log that matches, counted from the replica's start.
func (r *Replica) WaitLog(t *testing.T, within time.Duration, what string, matches func(LogEntry) bool) LogEntry {
	t.Helper()
	var hit LogEntry
	Eventually(t, within, what+" in the log of replica "+r.Name, func() bool {
		for _, e := range r.LogEntries() {
			if matches(e) {
				hit = e
				return true
			}
		}
		return false
	})
	return hit
}

func (r *Replica) Signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := r.cmd.Process.Signal(sig); err != nil {
		t.Fatalf("send %s to replica %s: %v", sig, r.Name, err)
	}
}

func (r *Replica) cleanUp(t *testing.T) {
	if err := r.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("kill replica %s: %v", r.Name, err)
	}
	<-r.ended
	text := strings.Join(r.Log(), "\n")
	if strings.Contains(text, "WARNING: DATA RACE") {
		t.Errorf("replica %s has a data race", r.Name)
	}
	if t.Failed() && r.Output.Path == "" {
		t.Logf("replica %s logged:\n%s", r.Name, text)
	}
}

// CleanEnv is the test's environment without the settings of a cronclave that its developer may use.
func CleanEnv() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "CRONCLAVE_") {
			env = append(env, v)
		}
	}
	return env
}

// LineLog collects the output of a process.
type LineLog struct {
	Path string // the file that has it; "" if it is here

	mu   sync.Mutex
	text bytes.Buffer
}

// Write takes output of the process, whole lines or not.
func (l *LineLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// Lines returns the lines so far; the last one may be unfinished while the process runs.
func (l *LineLog) Lines() []string {
	if l.Path != "" {
		text, _ := os.ReadFile(l.Path) // an unreadable file counts as empty
		return strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimRight(l.text.String(), "\n"), "\n")
}

// AwaitFamily waits until all of them have said something, and returns the first of it.
func (c *Cluster) AwaitFamily(t *testing.T) (first Line) {
	t.Helper()
	first = c.AwaitTick(t, Soon, "family", 0)
	Eventually(t, Soon, "whole family", func() bool {
		pids := map[int]bool{}
		for _, l := range RunLines(first.RunID, c.Lines(t, "family")) {
			pids[l.PID] = true
		}
		return len(pids) == 3
	})
	return first
}

// Warden is the pid of the replica's warden, as its first line says.
func (r *Replica) Warden(t *testing.T) (pid int) {
	t.Helper()
	said := r.WaitLog(t, Soon, "announcement", Announced)["warden"]
	if _, err := fmt.Sscanf(fmt.Sprint(said), "process %d", &pid); err != nil {
		t.Fatalf("the warden is %v: %v", said, err)
	}
	return pid
}

// AwaitDead waits until all processes that wrote some lines are dead. Their parent may be frozen, or dead itself, and
// not reap them.
func AwaitDead(t *testing.T, lines []Line) {
	t.Helper()
	Eventually(t, Soon, "end of all processes", func() bool {
		return !slices.ContainsFunc(lines, func(l Line) bool { return !HasEnded(l.PID) })
	})
}

// HasEnded returns whether a process has ended, reaped or not.
func HasEnded(pid int) bool { s := ProcessState(pid); return s == "" || strings.HasPrefix(s, "Z") }
