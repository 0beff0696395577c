package replica

import (
	"bytes"
	"context"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/sdnotify"
)

// superviseWith returns a supervision that sends to a real socket, and a function that returns the messages so far.
func superviseWith(t *testing.T, watchdog string) (*supervision, func() []string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	vars := map[string]string{"NOTIFY_SOCKET": name, "WATCHDOG_USEC": watchdog}
	s := &supervision{to: sdnotify.New(func(name string) string { return vars[name] }, 1), log: hclog.NewNullLogger()}
	return s, func() (messages []string) {
		for message := make([]byte, 4096); ; {
			_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)) // what was sent is there at once
			size, err := conn.Read(message)
			if err != nil {
				return messages
			}
			messages = append(messages, string(message[:size]))
		}
	}
}

// TestWatchdogEndsWithTheLoop demands two messages in the time of the watchdog while the scheduler's loop works, and none while it hangs.
func TestWatchdogEndsWithTheLoop(t *testing.T) {
	t.Parallel()
	s, messages := superviseWith(t, "30000000")
	var log bytes.Buffer
	s.log = hclog.New(&hclog.LoggerOptions{Output: &log})
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		hangsFrom := begun.Add(31 * time.Second)
		s.sinceIteration = func() (time.Duration, bool) { return max(time.Since(hangsFrom), time.Second), true }
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		s.runWatchdog(ctx)
	})
	got := messages()
	if want := []string{"WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1"}; !slices.Equal(got, want) { // at 0 s, 15 s, 30 s, and 45 s, when the loop has hung for 14 s
		t.Errorf("%q", got)
	}
	if !strings.Contains(log.String(), "the scheduler's loop hangs") {
		t.Errorf("the log: %s", &log)
	}
}

// TestNothingFollowsStopping ends a reload after the drain has begun: READY=1 would take back STOPPING=1.
func TestNothingFollowsStopping(t *testing.T) {
	t.Parallel()
	s, messages := superviseWith(t, "")
	done := s.announceReload()
	s.announceDrain(time.Hour)
	done()
	got := messages()
	if len(got) != 2 || !strings.HasPrefix(got[0], "RELOADING=1\nMONOTONIC_USEC=") ||
		got[1] != "STOPPING=1\nSTATUS=draining: the last runs have 1h0m0s\nEXTEND_TIMEOUT_USEC=3615000000" {
		t.Errorf("%q", got)
	}
}
