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

// TestReplicaReportsToTheServiceManager listens as systemd does, while a replica starts, reloads twice, and drains.
func TestReplicaReportsToTheServiceManager(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	socket := filepath.Join(folder, "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	// awaitMessage reads messages until one has the assignment.
	awaitMessage := func(assignment string) string {
		t.Helper()
		_ = manager.SetReadDeadline(time.Now().Add(longestProcess))
		for message := make([]byte, 4096); ; {
			size, err := manager.Read(message)
			if err != nil {
				t.Fatalf("no %s: %v", assignment, err)
			}
			if text := string(message[:size]); strings.Contains("\n"+text+"\n", "\n"+assignment+"\n") {
				return text
			}
		}
	}
	file := filepath.Join(folder, "jobs.toml")
	writeJobs := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("[replica]\ndrain_timeout = \"20s\"\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	writeJobs("[jobs.a]\nschedule = \"@yearly\"\ncommand = \"true\"\n")
	p := startProcess(t, []string{"NOTIFY_SOCKET=" + socket, "WATCHDOG_USEC=2000000"}, "cronclave", "run", "--embedded-redis", "-c", file)
	if text := awaitMessage("READY=1"); !strings.Contains(text, "STATUS=scheduling 1 jobs") {
		t.Errorf("ready: %q", text)
	}
	awaitMessage("WATCHDOG=1")
	var before unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &before)
	p.signal(t, syscall.SIGHUP)
	var usec int64
	if _, err := fmt.Sscanf(awaitMessage("RELOADING=1"), "RELOADING=1\nMONOTONIC_USEC=%d", &usec); err != nil || usec < before.Nano()/1000 {
		t.Errorf("the reload has the time %d, and the signal was sent at %d: %v", usec, before.Nano()/1000, err)
	}
	awaitMessage("READY=1")
	writeJobs("[jobs.a]\nfaulty = 1\n")
	awaitMessage("RELOADING=1")
	awaitMessage("READY=1")
	p.signal(t, syscall.SIGTERM)
	if text := awaitMessage("STOPPING=1"); !strings.Contains(text, "\nEXTEND_TIMEOUT_USEC=35000000") {
		t.Errorf("drain: %q", text)
	}
	p.end(t, 0)
	for message := make([]byte, 4096); ; {
		_ = manager.SetReadDeadline(time.Now().Add(time.Millisecond))
		size, err := manager.Read(message)
		if err != nil {
			break
		}
		t.Errorf("after STOPPING=1: %q", message[:size])
	}
}
