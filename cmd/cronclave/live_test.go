package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler"
)

// startLive publishes until the test ends, or what it returns is called.
func startLive(t *testing.T, j *journal.Journal) (l *liveOutput, end func()) {
	t.Helper()
	l = newLiveOutput(j, hclog.NewNullLogger())
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		l.run(ctx)
	}()
	end = func() {
		cancel()
		<-over
	}
	t.Cleanup(end)
	return l, end
}

// TestLiveOutputOfAFollowedRun comes whole, and in order, with its end.
func TestLiveOutputOfAFollowedRun(t *testing.T) {
	t.Parallel()
	_, _, j := startJournal(t)
	l, _ := startLive(t, j)
	if err := j.Follow(t.Context(), "report"); err != nil {
		t.Fatal(err)
	}
	run := &scheduler.Run{ID: "one", Job: "report", Trigger: "manual"}
	live := l.begin(run)
	l.add(run, journal.Line{Text: "first"})
	l.add(run, journal.Line{Text: "second", Stderr: true})
	l.end(live)
	var lines []string
	f := &follower{journal: j, job: "report", note: func(_, text string) { t.Error(text) },
		show: func(_ string, line journal.Line) { lines = append(lines, line.Text) }}
	seen := &followed{id: "one"}
	for deadline := time.After(time.Minute); !seen.ended; {
		select {
		case <-deadline:
			t.Fatal("its end does not come")
		case <-time.After(10 * time.Millisecond):
		}
		if err := f.print(t.Context(), seen); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(lines, " "); got != "first second" {
		t.Errorf("printed %q", got)
	}
	if left := l.left(); left != 0 {
		t.Errorf("%d runs are remembered", left)
	}
}

// TestLiveOutputIsBounded: of a run that prints much more than can be published the oldest is left out, and counted; what
// nobody follows is kept in memory only, and not for longer than its run.
func TestLiveOutputIsBounded(t *testing.T) {
	t.Parallel()
	_, rdb, j := startJournal(t)
	l, end := startLive(t, j)
	run := &scheduler.Run{ID: "one", Job: "report", Trigger: "schedule"}
	live := l.begin(run)
	text := strings.Repeat("x", 999)
	const lines = 1000
	for range lines {
		l.add(run, journal.Line{Text: text})
	}
	l.mu.Lock()
	kept, lost := len(live.lines), live.lost
	l.mu.Unlock()
	if int64(kept)*1000+lost != lines*1000 || kept*(999+lineCost) > maxUnread || kept < 50 {
		t.Errorf("%d lines kept, %d bytes lost", kept, lost)
	}
	l.end(live)
	if left := l.left(); left != 0 {
		t.Errorf("%d runs are remembered", left)
	}
	end()
	if n := rdb.Exists(t.Context(), "cronclave:default:{report}:live:one").Val(); n != 0 {
		t.Error("published, and nobody follows")
	}
}

// TestLiveOutputHoldsUpNothing, also where Redis is silent for good.
func TestLiveOutputHoldsUpNothing(t *testing.T) {
	t.Parallel()
	s, _, j := startJournal(t)
	l, _ := startLive(t, j)
	s.Close()
	run := &scheduler.Run{ID: "one", Job: "report", Trigger: "manual"}
	begun := time.Now()
	live := l.begin(run)
	for range 100_000 {
		l.add(run, journal.Line{Text: "line"})
	}
	l.end(live)
	if took := time.Since(begun); took > 20*time.Second { // each call would take longer
		t.Errorf("it took %v", took)
	}
}

// left is how many runs are remembered.
func (l *liveOutput) left() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.runs)
}

// TestFollowerOutlastsAFailover: Redis may be away for as long as it takes to replace a master, and not for good.
func TestFollowerOutlastsAFailover(t *testing.T) {
	t.Parallel()
	f := &follower{job: "report"}
	for since, patient := range map[time.Duration]bool{0: true, 45 * time.Second: true, 2 * time.Minute: false} {
		f.heard = time.Now().Add(-since)
		if err := f.tolerate(errors.New("no server is there")); (err == nil) != patient {
			t.Errorf("away for %v: %v", since, err)
		}
	}
}
