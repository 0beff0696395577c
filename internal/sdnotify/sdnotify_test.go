package sdnotify

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func environment(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

// TestSendReachesTheSocket sends to a real socket, as systemd listens to one.
func TestSendReachesTheSocket(t *testing.T) {
	t.Parallel()
	for _, name := range []string{filepath.Join(t.TempDir(), "notify"), "@cronclave-test-" + t.Name()} {
		conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		n := New(environment(map[string]string{"NOTIFY_SOCKET": name}), 1)
		if err := n.Send(Ready, Status("one\ntwo"), ExtendTimeout(time.Minute)); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		message := make([]byte, 500)
		size, err := conn.Read(message)
		if got := string(message[:size]); err != nil || got != "READY=1\nSTATUS=one two\nEXTEND_TIMEOUT_USEC=60000000" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestSendWithoutListener demands an error, not a pause, if the service manager is away or reads nothing.
func TestSendWithoutListener(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "notify")
	n := New(environment(map[string]string{"NOTIFY_SOCKET": name}), 1)
	if err := n.Send(Ready); err == nil || !strings.Contains(err.Error(), "notify the service manager") {
		t.Errorf("without a socket: %v", err)
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	begun := time.Now()
	for err = nil; err == nil && time.Since(begun) < time.Minute; {
		err = n.Send(Ready)
	}
	if err == nil {
		t.Error("a full socket took messages for a minute")
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	const socket = "/run/systemd/notify"
	for _, c := range []struct {
		vars     map[string]string
		enabled  bool
		watchdog time.Duration
	}{
		{nil, false, 0},
		{map[string]string{"WATCHDOG_USEC": "30000000"}, false, 0},
		{map[string]string{"NOTIFY_SOCKET": socket}, true, 0},
		{map[string]string{"NOTIFY_SOCKET": socket, "WATCHDOG_USEC": "30000000"}, true, 30 * time.Second},
		{map[string]string{"NOTIFY_SOCKET": socket, "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, true, 30 * time.Second},
		{map[string]string{"NOTIFY_SOCKET": socket, "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"}, true, 0},
		{map[string]string{"NOTIFY_SOCKET": socket, "WATCHDOG_USEC": "-1"}, true, 0},
	} {
		n := New(environment(c.vars), 7)
		if n.Enabled() != c.enabled || n.Watchdog() != c.watchdog {
			t.Errorf("%v: enabled %v, watchdog %v", c.vars, n.Enabled(), n.Watchdog())
		}
	}
	if err := (Notifier{}).Send(Ready); err != nil {
		t.Errorf("without a service manager: %v", err)
	}
}
