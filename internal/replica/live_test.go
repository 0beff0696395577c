package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/internal/redisconn/redistest"
	"github.com/cronclave/cronclave/scheduler"
)

// startLive publishes until the test ends, or until end is called.
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

// Without Redis, a replica knows its runs in progress, and what they printed last.
func TestLocalRuns(t *testing.T) {
	t.Parallel()
	l := newLiveOutput(nil, hclog.NewNullLogger())
	one, two := &scheduler.Run{ID: "one", Job: "report"}, &scheduler.Run{ID: "two", Job: "load"}
	first := l.addRun(one)
	l.addRun(two)
	l.addLine(two, journal.Line{Text: "row 1"})
	l.addLine(two, journal.Line{Text: "row 2"})
	if runs := l.localRuns(); len(runs) != 2 || runs[0].Job != "report" || runs[0].LastLine != "" || runs[1].RunID != "two" || runs[1].LastLine != "row 2" || runs[1].Began.IsZero() {
		t.Errorf("%+v", runs)
	}
	l.endRun(first)
	if runs := l.localRuns(); len(runs) != 1 || runs[0].RunID != "two" {
		t.Errorf("%+v", runs)
	}
}

// TestLiveOutputOfAFollowedRun comes whole, and in order, with its end.
func TestLiveOutputOfAFollowedRun(t *testing.T) {
	t.Parallel()
	_, rdb, j := redistest.StartJournal(t)
	l, _ := startLive(t, j)
	if err := j.Follow(t.Context(), "report"); err != nil {
		t.Fatal(err)
	}
	run := &scheduler.Run{ID: "one", Job: "report", Trigger: "manual"}
	live := l.addRun(run)
	l.addLine(run, journal.Line{Text: "first"})
	l.addLine(run, journal.Line{Text: "second", Stderr: true})
	l.endRun(live)
	now := time.Now()
	ended := journal.Record{RunID: "one", Job: "report", Token: 1, Outcome: "ok", Started: now, Finished: now}
	if err := j.Record(t.Context(), []journal.Record{ended}); err != nil {
		t.Fatal(err)
	}
	o, err := cluster.New(cluster.Config{Conn: rdb, Journal: j, Namespace: "default"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Close() })
	var lines []string
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := o.Follow(ctx, cluster.FollowRequest{Job: "report", Run: "one"}, cluster.Viewer{
		Line: func(l cluster.OutputLine) { lines = append(lines, l.Line) },
		Note: func(_, text string) { t.Error(text) }, // its last output is missing, if its end does not come
	}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(lines, " "); got != "first second" {
		t.Errorf("printed %q", got)
	}
	if left := l.left(); left != 0 {
		t.Errorf("%d runs are remembered", left)
	}
}

// A failover may lose the mark of a follower, and the follower needs a moment to set it again: output of that time is published all the same, with its end.
func TestLostMarkOfAFollowerCostsNoOutput(t *testing.T) {
	t.Parallel()
	_, rdb, j := redistest.StartJournal(t)
	l := newLiveOutput(j, hclog.NewNullLogger())
	if err := j.Follow(t.Context(), "report"); err != nil {
		t.Fatal(err)
	}
	run := &scheduler.Run{ID: "one", Job: "report", Trigger: "schedule"}
	live := l.addRun(run)
	l.findFollowers(t.Context())
	if n := rdb.Del(t.Context(), "cronclave:default:{report}:followed").Val(); n != 1 {
		t.Fatalf("%d marks", n)
	}
	l.findFollowers(t.Context())
	l.addLine(run, journal.Line{Text: "last words"})
	l.endRun(live)
	l.publishRuns(t.Context())
	chunks, _, err := j.Live(t.Context(), "report", "one", "")
	if err != nil || len(chunks) != 1 || !chunks[0].End || len(chunks[0].Lines) != 1 {
		t.Errorf("published %+v, %v", chunks, err)
	}
}

// published returns the output of a run that a new reader gets from Redis.
func published(t *testing.T, j *journal.Journal) (text string) {
	t.Helper()
	chunks, _, err := j.Live(t.Context(), "report", "one", "")
	if err != nil || len(chunks) == 0 {
		t.Errorf("nothing was published: %v", err)
	}
	for _, c := range chunks {
		at := int(c.Offset)
		for _, line := range c.Lines {
			if at > len(text) {
				t.Errorf("bytes %d to %d are missing", len(text), at)
			}
			if at += len(line.Text) + 1; at > len(text) {
				text += line.Text + "\n"
			}
		}
	}
	return text
}

// deafness loses the answers to a command.
type deafness struct {
	silence
}

func (h *deafness) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Name() == h.command }) {
			err = errors.New("the answer was lost")
			for _, c := range cmds {
				c.SetErr(err)
			}
		}
		return err
	}
}

// Every follower gets the output from before it came: if the run hangs and its output has gone from Redis, beside another follower after more chunks than
// Redis keeps, and after Redis has lost its data.
func TestLateFollowersGetWhatWasPrinted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb, j := redistest.StartInMemory(t)
		l := newLiveOutput(j, hclog.NewNullLogger())
		run := &scheduler.Run{ID: "one", Job: "report", Trigger: "schedule", Attempt: 1}
		live := l.addRun(run)
		var printed strings.Builder
		say := func(text string) {
			l.addLine(run, journal.Line{Text: text})
			printed.WriteString(text + "\n")
		}
		follows := func(when string) {
			t.Helper()
			if err := j.Follow(t.Context(), "report"); err != nil {
				t.Fatal(err)
			}
			l.findFollowers(t.Context())
			l.publishRuns(t.Context())
			if text := published(t, j); text != printed.String() {
				t.Errorf("%s: %d bytes, want %d:\n%.300s", when, len(text), printed.Len(), text)
			}
		}
		follows("before anything is printed")
		say("first")
		follows("the first follower")
		time.Sleep(2 * time.Minute)
		follows("two minutes after the last line")
		for n := range 40 {
			time.Sleep(2 * time.Second)
			follows(fmt.Sprint("hung, with a follower, for look ", n))
		}
		for n := range 3 * journal.LiveChunks {
			say(fmt.Sprint("line ", n))
			follows(fmt.Sprint("after chunk ", n))
		}
		rdb.FlushAll(t.Context())
		follows("after a loss of data")
		l.endRun(live)
		l.publishRuns(t.Context())
		time.Sleep(30 * time.Second)
		if text := published(t, j); text != printed.String() {
			t.Errorf("after its end:\n%s", text)
		}
	})
}

// A chunk that was not written, or whose answer was lost, is part of the next one: nothing is missing, and readers drop the lines that come twice.
func TestChunkWithoutAnAnswerIsPublishedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb, j := redistest.StartInMemory(t)
		l := newLiveOutput(j, hclog.NewNullLogger())
		run := &scheduler.Run{ID: "one", Job: "report", Trigger: "schedule", Attempt: 1}
		l.addRun(run)
		if err := j.Follow(t.Context(), "report"); err != nil {
			t.Fatal(err)
		}
		l.findFollowers(t.Context())
		l.addLine(run, journal.Line{Text: "first"})
		deaf := &deafness{silence{"xadd"}}
		rdb.AddHook(deaf)
		l.publishRuns(t.Context())
		deaf.command = ""
		l.addLine(run, journal.Line{Text: "second"})
		l.publishRuns(t.Context())
		if text := published(t, j); text != "first\nsecond\n" {
			t.Errorf("%q", text)
		}
		if chunks, _, _ := j.Live(t.Context(), "report", "one", ""); len(chunks) != 2 {
			t.Errorf("%+v", chunks)
		}
	})
}

// Redis loses its data and the mark of the follower while a run prints. The next chunk makes the key anew, and later followers get all the same.
func TestLateFollowersGetWhatWasPrintedBeforeALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ends := range []bool{false, true} {
			rdb, j := redistest.StartInMemory(t)
			l := newLiveOutput(j, hclog.NewNullLogger())
			run := &scheduler.Run{ID: "one", Job: "report", Trigger: "schedule", Attempt: 1}
			live := l.addRun(run)
			if err := j.Follow(t.Context(), "report"); err != nil {
				t.Fatal(err)
			}
			l.findFollowers(t.Context())
			l.addLine(run, journal.Line{Text: "first"})
			l.publishRuns(t.Context())
			rdb.FlushAll(t.Context())
			l.addLine(run, journal.Line{Text: "second"})
			if ends {
				l.endRun(live)
			}
			l.publishRuns(t.Context())
			if err := j.Follow(t.Context(), "report"); err != nil {
				t.Fatal(err)
			}
			l.findFollowers(t.Context())
			l.publishRuns(t.Context())
			if text := published(t, j); text != "first\nsecond\n" {
				t.Errorf("ended %t: %q", ends, text)
			}
			if left := l.left(); (left == 0) != ends {
				t.Errorf("ended %t: %d runs are remembered", ends, left)
			}
		}
	})
}

// The last output of a run is published once Redis takes it, and forgotten if that takes too long.
func TestLastOutputIsPublishedAfterATimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, away := range []time.Duration{time.Second, 2 * followedFor} {
			rdb, j := redistest.StartInMemory(t)
			l := newLiveOutput(j, hclog.NewNullLogger())
			run := &scheduler.Run{ID: "one", Job: "report", Trigger: "schedule", Attempt: 1}
			live := l.addRun(run)
			if err := j.Follow(t.Context(), "report"); err != nil {
				t.Fatal(err)
			}
			l.findFollowers(t.Context())
			l.addLine(run, journal.Line{Text: "last words"})
			l.endRun(live)
			rdb.AddHook(&unanswered{0, away, 0, time.Now()})
			for range away / lookForFollowers {
				l.publishRuns(t.Context())
				time.Sleep(lookForFollowers)
				l.findFollowers(t.Context())
			}
			if left, want := l.left(), map[bool]int{true: 1}[away < followedFor]; left != want {
				t.Errorf("after %v: %d runs are remembered, want %d", away, left, want)
			}
			l.publishRuns(t.Context())
			chunks, _, err := j.Live(t.Context(), "report", "one", "")
			if (len(chunks) == 1 && chunks[0].End) != (away < followedFor) || err != nil || l.left() > 0 {
				t.Errorf("after %v: %+v, %v; %d runs are remembered", away, chunks, err, l.left())
			}
		}
	})
}

// silence has a command get no answer until the caller gives up.
type silence struct{ command string }

func (silence) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (silence) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h silence) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Name() == h.command }) {
			return next(ctx, cmds)
		}
		<-ctx.Done()
		for _, c := range cmds {
			c.SetErr(context.Cause(ctx))
		}
		return context.Cause(ctx)
	}
}

// The last output of all followed runs has one deadline: a Redis that hangs does not delay the end of a replica by a time-out for each of them.
func TestLastOutputHasOneDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb, j := redistest.StartInMemory(t)
		l := newLiveOutput(j, hclog.NewNullLogger())
		if err := j.Follow(t.Context(), "report"); err != nil {
			t.Fatal(err)
		}
		const runs = 30
		for n := range runs {
			run := &scheduler.Run{ID: fmt.Sprint(n), Job: "report", Trigger: "schedule"}
			l.addRun(run)
			l.addLine(run, journal.Line{Text: "last words"})
		}
		l.findFollowers(t.Context())
		rdb.AddHook(silence{"xadd"})
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		l.run(ended)
		if took := time.Since(began); took != redisconn.Timeout {
			t.Errorf("it took %v, want %v", took, redisconn.Timeout)
		}
	})
}

// Live output is bounded: of a run that prints much more than can be published the oldest bytes are left out, and counted, and output without
// followers is kept in memory only, and not for longer than its run.
// Promise: P9
func TestLiveOutputIsBounded(t *testing.T) {
	t.Parallel()
	_, rdb, j := redistest.StartJournal(t)
	l, end := startLive(t, j)
	run := &scheduler.Run{ID: "one", Job: "report", Trigger: "schedule"}
	live := l.addRun(run)
	text := strings.Repeat("x", 999)
	const lines = 1000
	for range lines {
		l.addLine(run, journal.Line{Text: text})
	}
	l.mu.Lock()
	kept, lost := len(live.lines), live.start
	l.mu.Unlock()
	if int64(kept)*1000+lost != lines*1000 || kept*(999+lineCost) > maxKept || kept < 50 {
		t.Errorf("%d lines kept, %d bytes lost", kept, lost)
	}
	l.endRun(live)
	if left := l.left(); left != 0 {
		t.Errorf("%d runs are remembered", left)
	}
	end()
	if n := rdb.Exists(t.Context(), "cronclave:default:{report}:live:one").Val(); n != 0 {
		t.Error("published, and nobody follows")
	}
}

// TestLiveOutputHoldsUpNothing, also where Redis is silent for good.
// Promise: P9
func TestLiveOutputHoldsUpNothing(t *testing.T) {
	t.Parallel()
	s, _, j := redistest.StartJournal(t)
	l, _ := startLive(t, j)
	s.Close()
	run := &scheduler.Run{ID: "one", Job: "report", Trigger: "manual"}
	begun := time.Now()
	live := l.addRun(run)
	for range 100_000 {
		l.addLine(run, journal.Line{Text: "line"})
	}
	l.endRun(live)
	if took := time.Since(begun); took > 2*time.Minute { // a tenth of a second for each call would take hours
		t.Errorf("it took %v", took)
	}
}

// left is how many runs are remembered.
func (l *liveOutput) left() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.runs)
}
