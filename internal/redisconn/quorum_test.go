package redisconn

import (
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/cronclave/cronclave/internal/embedded"
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
	s, err := embedded.Start(embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s.URL()
}

func openQuorum(t *testing.T, history string, quorum ...string) *Conn {
	t.Helper()
	c, err := openURL(history, quorum...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestQuorumIsLookedAtWithoutAHungMinority has one of three masters say nothing.
func TestQuorumIsLookedAtWithoutAHungMinority(t *testing.T) {
	t.Parallel()
	silent := silentServer(t)
	s := openQuorum(t, silent, embeddedServer(t), silent, embeddedServer(t))
	hung := func(w Warning) bool { return w.Code == "quorum" && strings.Contains(w.Message, silent) }

	h, err := s.examineQuorum(t.Context(), hasty)
	i := slices.IndexFunc(h.Warnings, hung)
	if err != nil || i < 0 || !strings.Contains(h.Warnings[i].Message, "no answer yet") {
		t.Errorf("in haste: %v, %v; want no wait for %s", h, err, silent)
	}
	h, err = s.examineQuorum(t.Context(), unhurried)
	i = slices.IndexFunc(h.Warnings, hung)
	if err != nil || i < 0 || !strings.Contains(h.Warnings[i].Message, "first reply of ") {
		t.Errorf("patiently: %v, %v; want %s to have been waited for", h, err, silent)
	}
}

// TestHungMinorityDelaysNoProbe: a replica is asked whether Redis is up while somebody waits, and one of three masters says nothing.
func TestHungMinorityDelaysNoProbe(t *testing.T) {
	t.Parallel()
	c := openQuorum(t, embeddedServer(t), embeddedServer(t), silentServer(t), embeddedServer(t))
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		_, _ = c.Examine(t.Context()) // waits for the silent one
	}()
	for range 2 { // which take longer than one patient look if they wait as well
		if _, err := c.Glance(t.Context()); err != nil {
			t.Errorf("a quorum with a majority of its masters counts as away: %v", err)
		}
	}
	select {
	case <-waited:
		t.Error("an answer took as long as the silent master's time-out")
	default:
	}
	<-waited
}
