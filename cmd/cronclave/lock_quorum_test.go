package main

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/internal/testtier"
)

// silentServer accepts connections, and says nothing.
func silentServer(t *testing.T) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return "redis://" + l.Addr().String() + "/0"
}

func embeddedServer(t *testing.T) (url string) {
	t.Helper()
	s := startRedis(t)
	return s.URL()
}

func openStore(t *testing.T, history string, quorum ...string) *redisconn.Conn {
	t.Helper()
	s, err := new(app).openRedis(&config.Config{Redis: config.Redis{URL: history, Quorum: quorum}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // again, where the test has
	return s
}

// TestLockOnAQuorumNeedsNoHistory has the Redis of the history say nothing, or refuse.
func TestLockOnAQuorumNeedsNoHistory(t *testing.T) {
	t.Parallel()
	for name, history := range map[string]string{"silent": silentServer(t), "away": "redis://127.0.0.1:1/0"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, history, embeddedServer(t), embeddedServer(t), embeddedServer(t))
			if err := inspectForLock(t.Context(), &config.Config{Namespace: "default"}, s); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLockOnAQuorumRefusesANewerFormat refuses a quorum whose history has the format of a version that this one does not understand.
func TestLockOnAQuorumRefusesANewerFormat(t *testing.T) {
	t.Parallel()
	history := embeddedServer(t)
	s := openStore(t, history, embeddedServer(t), embeddedServer(t), embeddedServer(t))
	if err := s.Set(t.Context(), "cronclave:default:format", 1000, 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := inspectForLock(t.Context(), &config.Config{Namespace: "default"}, s); err == nil || !strings.Contains(err.Error(), "newer") {
		t.Errorf("%v", err)
	}
}

// TestLockEndsWithoutAMasterThatWasSilent has one of three masters say nothing: at the end it would be waited for until the time-out.
func TestLockEndsWithoutAMasterThatWasSilent(t *testing.T) {
	t.Parallel()
	history, one, two := embeddedServer(t), embeddedServer(t), embeddedServer(t)
	takeLock(t, openStore(t, history, one, two, embeddedServer(t))) // a quorum begins with all
	best := time.Hour
	for range 3 { // the machine may have other things to do
		r := takeLock(t, openStore(t, history, one, two, silentServer(t)))
		began := time.Now()
		r.closeClients()
		best = min(best, time.Since(began))
	}
	if best > redisconn.Timeout/2 {
		t.Errorf("it took %v to hang up", best)
	}
}

// takeLock takes and releases a lock as the command does, but for its end.
func takeLock(t *testing.T, s *redisconn.Conn) *lockRun {
	t.Helper()
	if err := inspectForLock(t.Context(), &config.Config{Namespace: "default"}, s); err != nil {
		t.Fatal(err)
	}
	locks, err := openLocks(s, "default", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close() })
	l, err := locks.Mutex("{a}:lock").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &lockRun{redis: s, locks: locks}
}

// TestLockWithoutAMajorityNamesTheMasters has two of three masters away.
func TestLockWithoutAMajorityNamesTheMasters(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	silent, away := silentServer(t), "redis://127.0.0.1:1/0"
	s := openStore(t, away, embeddedServer(t), silent, away)
	err := inspectForLock(t.Context(), &config.Config{Namespace: "default"}, s)
	for _, want := range []string{"2 of the 3 masters of the quorum do not answer", silent + " can't be reached", away + " can't be reached"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}
