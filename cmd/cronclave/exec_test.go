package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/journal"
)

// execLine is the command line that runs one job in the foreground, under its lock if there is a Redis.
func execLine(t *testing.T, url, job string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "jobs.toml")
	if err := os.WriteFile(file, []byte("[jobs.j]\nschedule = \"@yearly\"\n"+job), 0o600); err != nil {
		t.Fatal(err)
	}
	if url == "" {
		return []string{"cronclave", "exec", "j", "--config", file, "--no-lock"}
	}
	return []string{"cronclave", "exec", "j", "--config", file, "--redis", url}
}

func startExec(t *testing.T, url, job string) *program {
	t.Helper()
	return startProcess(t, nil, execLine(t, url, job)...)
}

// hearHangups makes what the test starts react to SIGHUP, also if the test itself runs under nohup.
func hearHangups(t *testing.T) {
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(heard) })
}

// Jobs that print a line when they may be signalled. They sleep in the background, since a shell runs its traps between commands.
const (
	obedient = `command = "echo up; exec sleep 100"` + "\n"
	orderly  = `command = "trap 'exit 3' TERM; sleep 100 & echo up; wait"` + "\n"
	content  = `command = "trap 'exit 0' TERM; sleep 100 & echo up; wait"` + "\n"
	deaf     = `command = "trap '' TERM; echo up; exec sleep 100"` + "\nkill_grace = \"100ms\"\n"
	// stubborn says that it was told to stop, and goes on until there is the file "go".
	stubborn = `command = "trap 'echo told' TERM; echo up; until [ -e go ]; do sleep 0.1 & wait; done; exit 4"` + "\nkill_grace = \"1h\"\n"
)

// TestExecStopsAtASignal sends one signal: the job is told to stop, and the exit code is what it made of that.
func TestExecStopsAtASignal(t *testing.T) {
	t.Parallel()
	hearHangups(t)
	for _, tc := range []struct {
		name, job string
		signal    os.Signal
		code      int
	}{
		{"ended by SIGTERM", obedient, syscall.SIGINT, 143},
		{"with a code of its own", orderly, syscall.SIGTERM, 3},
		{"as if it were done", content, syscall.SIGINT, 1},
		{"not in its grace", deaf, syscall.SIGTERM, 137},
		{"the terminal has gone", obedient, syscall.SIGHUP, 143},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := startExec(t, "", tc.job)
			p.read(t, "^up$")
			p.signal(t, tc.signal)
			p.end(t, tc.code)
			p.nothingLeft(t)
			if said := p.stderr.String(); !strings.Contains(said, "a second one kills it") || !strings.Contains(said, "job j: canceled: user") {
				t.Errorf("it does not say what it does:\n%s", said)
			}
		})
	}
}

// TestExecKillsAtTheSecondSignal has a job that would have an hour of grace.
func TestExecKillsAtTheSecondSignal(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	for name, url := range map[string]string{"without a lock": "", "under its lock": server.URL()} {
		t.Run(name, func(t *testing.T) {
			p := startExec(t, url, stubborn)
			p.read(t, "^up$")
			p.signal(t, syscall.SIGINT)
			p.read(t, "^told$")
			p.signal(t, syscall.SIGINT)
			p.end(t, 137)
			p.nothingLeft(t)
		})
	}
	t.Run("and gives the lock back", func(t *testing.T) {
		p := startExec(t, server.URL(), orderly)
		p.read(t, "^up$")
		p.signal(t, syscall.SIGTERM)
		p.end(t, 3)
	})
}

// TestExecWhenTheTerminalGoes has SIGHUP twice, from the kernel and from the shell: that is no second word of the user's.
func TestExecWhenTheTerminalGoes(t *testing.T) {
	t.Parallel()
	hearHangups(t)
	dir := t.TempDir()
	p := startExec(t, "", stubborn+"dir = \""+dir+"\"\n")
	p.read(t, "^up$")
	p.signal(t, syscall.SIGHUP)
	p.read(t, "^told$")
	p.signal(t, syscall.SIGHUP)
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.end(t, 4)
	p.nothingLeft(t)
}

// TestExecWithoutAReader closes the pipe that the job's output goes to, as head does when it has enough.
func TestExecWithoutAReader(t *testing.T) {
	t.Parallel()
	p := startExec(t, "", `command = "while :; do echo up; sleep 0.1; done"`+"\n")
	p.read(t, "^up$")
	if err := p.stdout.Close(); err != nil {
		t.Fatal(err)
	}
	p.end(t, 143)
	p.nothingLeft(t)
}

// TestExecUnderNohup is started with SIGHUP ignored, and leaves it so.
func TestExecUnderNohup(t *testing.T) {
	t.Parallel()
	p := startProcess(t, nil, append([]string{"sh", "-c", `trap '' HUP; exec "$@"`, "sh"}, execLine(t, "", stubborn)...)...)
	p.read(t, "^up$")
	p.signal(t, syscall.SIGHUP)
	p.signal(t, syscall.SIGINT)
	p.read(t, "^told$")
	p.signal(t, syscall.SIGTERM)
	p.end(t, 137)
	p.nothingLeft(t)
	if said := p.stderr.String(); !strings.Contains(said, "interrupt") || strings.Contains(said, "hangup") {
		t.Errorf("what it takes for signals:\n%s", said)
	}
}

// TestExecInterruptedWhileItAsks has a Redis that never answers the claim: nothing is known to be wrong with it, so this is no
// case of 69.
func TestExecInterruptedWhileItAsks(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	url, asked := silentProxy(t, server.Addr())
	p := startExec(t, url, obedient)
	select {
	case <-asked:
	case <-time.After(longestProcess):
		t.Fatal("the lock was not asked for")
	}
	p.signal(t, syscall.SIGINT)
	p.end(t, 1)
	if said := p.stderr.String(); !strings.Contains(said, "job j: not started: interrupted while asking for its lock") {
		t.Errorf("it does not say what it did:\n%s", said)
	}
}

// TestExecBeyondTheRate: a run of a user that has acted too often is not started, as it would be in no audit log.
func TestExecBeyondTheRate(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	for _, day := range []time.Time{time.Now(), time.Now().Add(24 * time.Hour)} { // midnight may pass meanwhile
		if err := client.HSet(t.Context(), "cronclave:default:acts:"+day.UTC().Format(time.DateOnly), thisRequester().By, journal.ActsADay).Err(); err != nil {
			t.Fatal(err)
		}
	}
	p := startExec(t, server.URL(), `command = "echo up"`+"\n")
	out := p.end(t, 1)
	if said := p.stderr.String(); out != "" || !strings.Contains(said, "job j: not started: too many acts of one user: 2000 are allowed a day (UTC)") {
		t.Errorf("it printed %q and says:\n%s", out, said)
	}
}

// silentProxy stands before a Redis, and hands nothing on from the first script on, when asked is closed.
func silentProxy(t *testing.T, addr string) (url string, asked <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	script := make(chan struct{})
	first := sync.OnceFunc(func() { close(script) })
	serving.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { relay(ctx, client, addr, first) })
		}
	})
	t.Cleanup(func() {
		cancel()
		l.Close()
		serving.Wait()
	})
	return "redis://" + l.Addr().String() + "/0", script
}

// relay serves one client until ctx or the client ends.
func relay(ctx context.Context, client net.Conn, addr string, script func()) {
	defer client.Close()
	var d net.Dialer
	redis, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { client.Close() })()
	var replies sync.WaitGroup
	replies.Go(func() { _, _ = io.Copy(client, redis) })
	defer replies.Wait()
	defer redis.Close()
	buffer := make([]byte, 64<<10)
	for silent := false; ; {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		if silent = silent || bytes.Contains(bytes.ToLower(buffer[:n]), []byte("\r\neval")); silent {
			script()
			continue
		}
		if _, err := redis.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// TestExecAndLockStopWhatIsLeftBehind runs a command that ends and leaves a program in the background. exec without and with a lock, and lock, stop it, name it, and
// have the exit code of the command.
func TestExecAndLockStopWhatIsLeftBehind(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	const script = `sh -c 'touch held.lock; trap "rm held.lock; exit" TERM; while :; do sleep 0.1; done' & until [ -e held.lock ]; do sleep 0.1; done; exit 3`
	for name, line := range map[string]func(dir string) []string{
		"exec": func(dir string) []string {
			return execLine(t, "", "dir = \""+dir+"\"\ncommand = '''"+script+"'''\n")
		},
		"exec under its lock": func(dir string) []string {
			return execLine(t, server.URL(), "dir = \""+dir+"\"\ncommand = '''"+script+"'''\n")
		},
		"lock": func(dir string) []string {
			return []string{"cronclave", "lock", "l", "--redis", server.URL(), "--", "sh", "-c", "cd " + dir + "; " + script}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			p := startProcess(t, nil, line(dir)...)
			p.end(t, 3)
			p.nothingLeft(t)
			if said := p.stderr.String(); strings.Count(said, "run left processes behind; stopping them") != 1 || !strings.Contains(said, "sh") {
				t.Errorf("stderr does not name the program:\n%s", said)
			}
		})
	}
}

// TestExecSendsARequest has a job without a command. Neither --print nor the error of the run shows its secrets.
func TestExecSendsARequest(t *testing.T) {
	t.Parallel()
	answers := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/hunter2" || r.Header.Get("X-Key") != "hunter2" || r.Header.Get("Cronclave-Job") != "j" || r.Header.Get("Cronclave-Fencing-Token") != "" {
			t.Errorf("%s with %v", r.URL, r.Header)
		}
		if r.Method == http.MethodPut {
			w.WriteHeader(http.StatusTeapot)
		}
		_, _ = io.WriteString(w, "answered\n")
	}))
	defer answers.Close()
	const table = "http = { url = '%s/hunter2', headers = { X-Key = 'hunter2' }, method = '%s' }\n"
	for method, code := range map[string]int{"GET": 0, "PUT": 1} {
		p := startExec(t, "", fmt.Sprintf(table, answers.URL, method))
		p.read(t, "^answered$")
		p.end(t, code)
		if said := p.stderr.String(); strings.Contains(said, "hunter2") || code != 0 && !strings.Contains(said, "job j: failed: the answer is 418 I'm a teapot") {
			t.Errorf("%s", said)
		}
	}
	for _, more := range [][]string{{"--print"}, {"--print", "--args"}} {
		p := startProcess(t, nil, slices.Concat(execLine(t, "", fmt.Sprintf(table, answers.URL, "GET")), more)...)
		if out := p.end(t, 0); strings.Contains(out, "hunter2") != (len(more) > 1) || !strings.Contains(out, "request  GET "+answers.URL) || !strings.Contains(out, "X-Key") {
			t.Errorf("%q:\n%s", more, out)
		}
	}
}
