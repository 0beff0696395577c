package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A serviceManager reads what a process reports, as systemd does.
type serviceManager struct {
	socket string
	conn   *net.UnixConn
}

func newServiceManager(t *testing.T) serviceManager {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return serviceManager{socket, conn}
}

func (m serviceManager) env() []string {
	return []string{"NOTIFY_SOCKET=" + m.socket, "WATCHDOG_USEC=2000000"}
}

// await reads messages until one has the assignment, and returns that message.
func (m serviceManager) await(t *testing.T, assignment string) string {
	t.Helper()
	_ = m.conn.SetReadDeadline(time.Now().Add(longestProcess))
	for message := make([]byte, 4096); ; {
		size, err := m.conn.Read(message)
		if err != nil {
			t.Fatalf("no %s: %v", assignment, err)
		}
		if text := string(message[:size]); strings.Contains("\n"+text+"\n", "\n"+assignment+"\n") {
			return text
		}
	}
}

// TestReplicaIsReadyWithoutRedis starts a replica while Redis is away: neither `systemctl start` nor the boot of the machine waits for Redis, the watchdog is
// answered, and the status tells the truth.
func TestReplicaIsReadyWithoutRedis(t *testing.T) {
	t.Parallel()
	manager := newServiceManager(t)
	file := filepath.Join(t.TempDir(), "jobs.toml")
	if err := os.WriteFile(file, []byte("[redis]\nurl = \"redis://127.0.0.1:1/0\"\n[jobs.a]\nschedule = \"@yearly\"\ncommand = \"true\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startProcess(t, manager.env(), "cronclave", "run", "-c", file)
	if text := manager.await(t, "READY=1"); !strings.Contains(text, "\nSTATUS=starting: Redis has not answered yet") {
		t.Errorf("ready: %q", text)
	}
	for range 3 {
		manager.await(t, "WATCHDOG=1")
	}
	p.signal(t, syscall.SIGTERM)
	p.end(t, 0)
}

// TestReplicaReportsToTheServiceManager listens as systemd does, while a replica starts, reloads twice, and drains.
func TestReplicaReportsToTheServiceManager(t *testing.T) {
	t.Parallel()
	manager := newServiceManager(t)
	file := filepath.Join(t.TempDir(), "jobs.toml")
	writeJobs := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("[replica]\ndrain_timeout = \"20s\"\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	writeJobs("[jobs.a]\nschedule = \"@yearly\"\ncommand = \"true\"\n")
	p := startProcess(t, manager.env(), "cronclave", "run", "--embedded-redis", "-c", file)
	manager.await(t, "READY=1")
	manager.await(t, "STATUS=scheduling 1 jobs")
	manager.await(t, "WATCHDOG=1")
	var before unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &before)
	p.signal(t, syscall.SIGHUP)
	var usec int64
	if _, err := fmt.Sscanf(manager.await(t, "RELOADING=1"), "RELOADING=1\nMONOTONIC_USEC=%d", &usec); err != nil || usec < before.Nano()/1000 {
		t.Errorf("the reload has the time %d, and the signal was sent at %d: %v", usec, before.Nano()/1000, err)
	}
	manager.await(t, "READY=1")
	writeJobs("[jobs.a]\nfaulty = 1\n")
	manager.await(t, "RELOADING=1")
	manager.await(t, "READY=1")
	p.signal(t, syscall.SIGTERM)
	if text := manager.await(t, "STOPPING=1"); !strings.Contains(text, "\nEXTEND_TIMEOUT_USEC=35000000") {
		t.Errorf("drain: %q", text)
	}
	p.end(t, 0)
	for message := make([]byte, 4096); ; {
		_ = manager.conn.SetReadDeadline(time.Now().Add(time.Millisecond))
		size, err := manager.conn.Read(message)
		if err != nil {
			break
		}
		t.Errorf("after STOPPING=1: %q", message[:size])
	}
}
