package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// replicaOpts are the settings of a replica.
type replicaOpts struct {
	Name      string   // --replica; must be given
	Config    string   // the text of jobs.toml; replicas of one cluster get the same
	Namespace string   // --namespace; "" leaves it to Config
	RedisURL  string   // CRONCLAVE_REDIS
	Env       []string // NAME=value, added to the test's environment less its CRONCLAVE_ variables
	Program   string   // a main package; "" means cronclave itself
	LogFile   string   // where its log goes, and stays, if it is too long for memory; "" keeps it there
	Stdio     *os.File // its stdout and stderr, in the place of a log that is kept; nil keeps it
}

// replica is a `cronclave run` in a process of its own. All methods may be called from any goroutine, unless they
// take the test.
type replica struct {
	Name   string
	PID    int
	Config string // where its jobs.toml is

	cmd   *exec.Cmd
	log   *lineLog
	ended chan struct{} // closed when the process is reaped and its log is complete
}

// startReplica starts a replica and returns at once; [replica.WaitLog] waits for its progress. After the test it is
// killed if it still runs, its log is shown if the test failed, and a data race in it fails the test.
func startReplica(t *testing.T, opts replicaOpts) *replica {
	t.Helper()
	if opts.Name == "" {
		t.Fatal("a replica needs a name")
	}
	if opts.Program == "" {
		opts.Program = cronclaveProgram
	}
	config := filepath.Join(t.TempDir(), "jobs.toml")
	if err := os.WriteFile(config, []byte(opts.Config), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"run", "--config", config, "--replica", opts.Name, "--log-format", "json"}
	if opts.Namespace != "" {
		args = append(args, "--namespace", opts.Namespace)
	}
	r := startLogging(t, opts.Name, logTo{opts.LogFile, opts.Stdio}, append(opts.Env, "CRONCLAVE_REDIS="+opts.RedisURL), program(t, opts.Program), args...)
	r.Config = config
	return r
}

// logTo is where the log of a process goes: see replicaOpts.
type logTo struct {
	path  string
	stdio *os.File
}

// startObserved starts any program as such a process. Its log goes to a file if there is a name for one.
func startObserved(t *testing.T, name, logFile string, env []string, program string, args ...string) *replica {
	t.Helper()
	return startLogging(t, name, logTo{path: logFile}, env, program, args...)
}

func startLogging(t *testing.T, name string, to logTo, env []string, program string, args ...string) *replica {
	t.Helper()
	r := &replica{Name: name, cmd: exec.Command(program, args...), log: &lineLog{}, ended: make(chan struct{})}
	r.cmd.Env = append(cleanEnv(), env...)
	r.cmd.Stdout, r.cmd.Stderr = r.log, r.log
	switch {
	case to.stdio != nil:
		r.cmd.Stdout, r.cmd.Stderr = to.stdio, to.stdio
	case to.path != "":
		r.log.path = to.path
		f, err := os.OpenFile(to.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close() // the replica has its own
		r.cmd.Stdout, r.cmd.Stderr = f, f
	}
	// A job that outlives its killed replica may hold the pipe open: the log is complete without it.
	r.cmd.WaitDelay = 2 * time.Second
	dieWithUs(r.cmd)
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
func (r *replica) Kill(t *testing.T) { t.Helper(); r.signal(t, syscall.SIGKILL); <-r.ended }

// Term asks the replica to drain.
func (r *replica) Term(t *testing.T) { t.Helper(); r.signal(t, syscall.SIGTERM) }

// Stop freezes the replica, but not its jobs; Cont lets it go on.
func (r *replica) Stop(t *testing.T) { t.Helper(); r.signal(t, syscall.SIGSTOP) }

// Cont lets a frozen replica go on.
func (r *replica) Cont(t *testing.T) { t.Helper(); r.signal(t, syscall.SIGCONT) }

// Wait waits for the replica's end and returns its exit code, -1 if a signal ended it.
func (r *replica) Wait(t *testing.T, within time.Duration) int {
	t.Helper()
	eventually(t, within, "end of replica "+r.Name, r.Ended)
	return r.cmd.ProcessState.ExitCode()
}

// Ended returns whether the process is gone.
func (r *replica) Ended() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

// Log returns what the replica has logged so far, one line an element.
func (r *replica) Log() []string { return r.log.lines() }

// logEntry is one line of the replica's JSON log: "msg", "level", "job", "run_id", "tick", "token" ...
type logEntry map[string]any

// Message is the line's text.
func (e logEntry) Message() string { s, _ := e["msg"].(string); return s }

// LogEntries returns the JSON lines of the log so far. Numbers are [json.Number]: tokens need all their digits.
func (r *replica) LogEntries() []logEntry { return logEntries(r.Log()) }

func logEntries(lines []string) []logEntry {
	var entries []logEntry
	for _, line := range lines {
		var e logEntry
		d := json.NewDecoder(strings.NewReader(line))
		d.UseNumber()
		if d.Decode(&e) == nil {
			entries = append(entries, e)
		}
	}
	return entries
}

// WaitLog waits for the first entry of the log that matches, counted from the replica's start.
func (r *replica) WaitLog(t *testing.T, within time.Duration, what string, matches func(logEntry) bool) logEntry {
	t.Helper()
	var hit logEntry
	eventually(t, within, what+" in the log of replica "+r.Name, func() bool {
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

func (r *replica) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := r.cmd.Process.Signal(sig); err != nil {
		t.Fatalf("send %s to replica %s: %v", sig, r.Name, err)
	}
}

func (r *replica) cleanUp(t *testing.T) {
	if err := r.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("kill replica %s: %v", r.Name, err)
	}
	<-r.ended
	text := strings.Join(r.Log(), "\n")
	if strings.Contains(text, "WARNING: DATA RACE") {
		t.Errorf("replica %s has a data race", r.Name)
	}
	if t.Failed() && r.log.path == "" {
		t.Logf("replica %s logged:\n%s", r.Name, text)
	}
}

// cleanEnv is the test's environment without the settings of a cronclave that its developer may use.
func cleanEnv() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "CRONCLAVE_") {
			env = append(env, v)
		}
	}
	return env
}

// lineLog collects the output of a process.
type lineLog struct {
	path string // the file that has it; "" if it is here

	mu   sync.Mutex
	text bytes.Buffer
}

// Write takes output of the process, whole lines or not.
func (l *lineLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// lines returns the lines so far; the last one may be unfinished while the process runs.
func (l *lineLog) lines() []string {
	if l.path != "" {
		text, _ := os.ReadFile(l.path) // an unreadable file counts as empty
		return strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimRight(l.text.String(), "\n"), "\n")
}
