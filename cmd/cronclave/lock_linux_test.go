package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/internal/console"
)

// screen is a terminal with a program on it.
type screen struct {
	cmd  *exec.Cmd
	keys *os.File
	mu   sync.Mutex
	text bytes.Buffer
	end  chan struct{} // closed when no process has the terminal open any more
}

// openTerminal returns the two ends of a terminal: what is typed and shown, and the file of the program.
func openTerminal(t *testing.T) (keys, tty *os.File) {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(keys.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return keys, tty
}

// TestTerminalGetsTheWholeOutput has a command whose output ends within a character.
func TestTerminalGetsTheWholeOutput(t *testing.T) {
	keys, tty := openTerminal(t)
	defer keys.Close()
	defer tty.Close()
	out, shown := console.NewOutput(tty), make([]byte, 100)
	if _, err := io.WriteString(out, "漢\xe6\xbc"); err != nil {
		t.Fatal(err)
	}
	if code := runCommandLine(t.Context(), []string{"nosuch"}, streams{nil, out, io.Discard}); code != exitUsage {
		t.Errorf("exit code %d", code)
	}
	if err := tty.Close(); err != nil {
		t.Fatal(err)
	}
	var text []byte
	for n, err := 0, error(nil); err == nil; n, err = keys.Read(shown) {
		text = append(text, shown[:n]...)
	}
	if want := `漢\xe6\xbc`; string(text) != want {
		t.Errorf("%q, want %q", text, want)
	}
}

// openScreen starts a program as the leader of a session that has a terminal of its own.
func openScreen(t *testing.T, env []string, args ...string) *screen {
	t.Helper()
	keys, tty := openTerminal(t)
	defer tty.Close()
	s := &screen{cmd: exec.CommandContext(t.Context(), args[0], args[1:]...), keys: keys, end: make(chan struct{})}
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = tty, tty, tty
	s.cmd.Env = append(append(os.Environ(), "GORACE=atexit_sleep_ms=0"), env...)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go s.read()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.end
		keys.Close()
	})
	return s
}

func (s *screen) read() {
	defer close(s.end)
	for buffer := make([]byte, 4096); ; {
		n, err := s.keys.Read(buffer)
		s.mu.Lock()
		s.text.Write(buffer[:n])
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// shows waits for a text, from which on the next one is looked for.
func (s *screen) shows(t *testing.T, want string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(longestProcess)
	for {
		s.mu.Lock()
		text := s.text.String()
		_, rest, found := strings.Cut(text, want)
		if found {
			s.text.Reset()
			s.text.WriteString(rest)
		}
		s.mu.Unlock()
		if found {
			return
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("no %q on the terminal:\n%s", want, text)
		}
	}
}

func (s *screen) has(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.text.String(), text)
}

func (s *screen) press(t *testing.T, keys string) {
	t.Helper()
	if _, err := s.keys.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

func (s *screen) ends(t *testing.T, code int) {
	t.Helper()
	if got := exitCode(s.cmd.Wait()); got != code {
		s.mu.Lock()
		defer s.mu.Unlock()
		t.Errorf("exit code %d, want %d\n%s", got, code, s.text.String())
	}
}

const ctrlC, ctrlZ = "\x03", "\x1a"

// TestLockOnATerminal has commands that use the terminal of the lock.
func TestLockOnATerminal(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	env := []string{"CRONCLAVE_REDIS=" + server.URL(), "PS1=$ ", "ENV="}
	const asks = `tty >/dev/null && echo u""p; read answer; echo "got $answer"`
	t.Run("reads", func(t *testing.T) {
		s := openScreen(t, env, "cronclave", "lock", "reads", "--", "sh", "-c", asks)
		s.shows(t, "up")
		s.press(t, "hello\n")
		s.shows(t, "got hello")
		s.ends(t, 0)
	})
	t.Run("reads in a pipeline", func(t *testing.T) {
		s := openScreen(t, env, "sh", "-c", `cronclave lock pipe -- sh -c '`+asks+`' | cat`)
		s.shows(t, "up")
		s.press(t, "hello\n")
		s.shows(t, "got hello")
		s.ends(t, 0)
	})
	t.Run("ends by Ctrl-C", func(t *testing.T) {
		s := openScreen(t, env, "cronclave", "lock", "ctrl-c", "--", "sh", "-c", "trap 'exit 5' INT; echo up; while :; do sleep 0.1; done")
		s.shows(t, "up")
		s.press(t, ctrlC)
		s.ends(t, 5)
	})
	t.Run("ends a script by Ctrl-C", func(t *testing.T) {
		s := openScreen(t, env, "sh", "-c", "trap 'exit 6' INT; cronclave lock script -- sh -c 'echo up; exec sleep 100'; echo on; sleep 100")
		s.shows(t, "up")
		s.press(t, ctrlC)
		s.ends(t, 6)
	})
	t.Run("is stopped and goes on", func(t *testing.T) {
		s := openScreen(t, env, "sh", "-i")
		s.press(t, "cronclave lock jobs -- sh -c '"+asks+"'\n")
		s.shows(t, "up\r\n")
		s.press(t, ctrlZ)
		s.shows(t, "topped")
		s.press(t, "fg\n")
		s.press(t, "hello\n")
		s.shows(t, "got hello")
		s.press(t, "exit 3\n")
		s.ends(t, 3)
	})
	t.Run("asks from the background", func(t *testing.T) {
		s := openScreen(t, env, "sh", "-i")
		s.press(t, "cronclave lock jobs -- sh -c '"+asks+"' &\n")
		s.shows(t, "up\r\n")
		for tick := time.NewTicker(200 * time.Millisecond); !s.has("topped"); <-tick.C {
			s.press(t, "jobs\n")
		}
		s.press(t, "fg\n")
		s.press(t, "hello\n")
		s.shows(t, "got hello")
		s.press(t, "exit 3\n")
		s.ends(t, 3)
	})
}
