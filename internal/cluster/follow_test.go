package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn/redistest"
)

// TestFollowerOutlastsAFailover: Redis may be away for as long as it takes to replace a master, and not for good.
func TestFollowerOutlastsAFailover(t *testing.T) {
	t.Parallel()
	f := &follower{job: "report"}
	for since, patient := range map[time.Duration]bool{0: true, 45 * time.Second: true, 2 * time.Minute: false} {
		f.heard = time.Now().Add(-since)
		if err := f.tolerateOutage(errors.New("no server is there")); (err == nil) != patient {
			t.Errorf("away for %v: %v", since, err)
		}
	}
}

// A follower of a run that is tried again learns of each try that failed, before what the next one prints.
func TestFollowerLearnsOfTries(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	run := journal.Record{RunID: "one", Job: "report", Token: 1, Attempt: 2, FailedTries: 1, Replica: "r1", Outcome: "running", Started: time.Now()}
	try := journal.Record{RunID: "one.1", Job: "report", Token: 1, Attempt: 1, Retried: true, Replica: "r1", Outcome: "failed", Reason: "exit code 3", Started: time.Now(), Finished: time.Now()}
	c.record(t, run, try)
	if _, err := c.journal.Publish(t.Context(), "report", "one", journal.Chunk{Lines: []journal.Line{{Text: "again"}}}); err != nil {
		t.Fatal(err)
	}
	var got []string
	err := c.operator(t, Config{}).Follow(t.Context(), FollowRequest{Job: "report", Run: "one"}, Viewer{
		Note: func(_, text string) { got = append(got, text) },
		Line: func(l OutputLine) {
			got = append(got, l.Line)
			run.Outcome, run.Finished = "ok", time.Now()
			c.record(t, run)
			if _, err := c.journal.Publish(t.Context(), "report", "one", journal.Chunk{Offset: 6, End: true}); err != nil {
				t.Error(err)
			}
		},
	})
	if want := "attempt 1: exit code 3; attempt 2 has started, again"; err != nil || strings.Join(got, ", ") != want {
		t.Errorf("%v, %q", err, got)
	}
}

// A follower gets the size of a gap, and knows of a run before it gets anything of it.
func TestFollowerLearnsOfGaps(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	begun := journal.Record{RunID: "one", Job: "report", Token: 1, Replica: "r1", Outcome: "running", Started: time.Now()}
	c.record(t, begun)
	at := time.Now().Add(-time.Minute).Truncate(time.Millisecond).UTC()
	for _, chunk := range []journal.Chunk{
		{Lines: []journal.Line{{Text: "first", At: at.UnixMilli()}}},
		{Offset: 6 + 12_345, Lines: []journal.Line{{Text: "second"}}},
		{Offset: 6 + 12_345 + 7 + 500, Lines: []journal.Line{{Text: "last", Stderr: true}}, End: true},
	} {
		if _, err := c.journal.Publish(t.Context(), "report", "one", chunk); err != nil {
			t.Fatal(err)
		}
	}
	begun.Outcome, begun.Finished = "ok", time.Now()
	c.record(t, begun)
	var got []string
	var first OutputLine
	err := c.operator(t, Config{}).Follow(t.Context(), FollowRequest{Job: "report", Run: "one"}, Viewer{
		Begin: func(r journal.Record) { got = append(got, "begin "+r.RunID+" "+r.Replica) },
		Note:  func(_, text string) { got = append(got, text) },
		Line: func(l OutputLine) {
			if got = append(got, l.Line); l.Line == "first" {
				first = l
			}
		},
	})
	if want := "begin one r1, first, … 12 kB left out …, second, … 500 bytes left out …, last"; err != nil || strings.Join(got, ", ") != want {
		t.Errorf("%v, %q", err, got)
	}
	if first.Replica != "r1" || first.Job != "report" || !first.Time.Equal(at) {
		t.Errorf("%+v", first)
	}
}

// Chunks are published again for followers that come later: the others drop what they have read, by its offset, and nothing else.
func TestFollowersDropOutputThatTheyHaveRead(t *testing.T) {
	t.Parallel()
	chunk := func(attempt int, offset int64, lines ...string) journal.Chunk {
		c := journal.Chunk{Attempt: attempt, Offset: offset}
		for _, text := range lines {
			c.Lines = append(c.Lines, journal.Line{Text: text})
		}
		return c
	}
	var read reading
	var got []string
	for _, c := range []journal.Chunk{chunk(1, 0), chunk(1, 0, "a", "b"), chunk(1, 0, "a", "b", "c"), chunk(1, 2, "b"), chunk(1, 106, "d"), chunk(1, 4, "c", "?"), chunk(2, 0, "e"), chunk(1, 108, "late"), chunk(2, 12)} {
		missing, lines := read.addChunk(c)
		if missing > 0 {
			got = append(got, LeftOut(missing))
		}
		for _, l := range lines {
			got = append(got, l.Text)
		}
	}
	if want := "a b c … 100 bytes left out … d e … 10 bytes left out …"; strings.Join(got, " ") != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Records of runs under way get the output so far, as soon as a replica publishes it. A run whose replica is silent gets none.
func TestRunsUnderWayShowWhatTheyHavePrinted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, j := redistest.StartInMemory(t)
		records := []journal.Record{{RunID: "talks", Job: "j", Outcome: "running"}, {RunID: "quiet", Job: "j", Outcome: "running"}, {RunID: "lost", Job: "j", Outcome: "running"}, {RunID: "over", Job: "j", Outcome: "ok"}}
		go func() {
			time.Sleep(time.Second)
			_, _ = j.Publish(t.Context(), "j", "quiet", journal.Chunk{Attempt: 1})
			_, _ = j.Publish(t.Context(), "j", "talks", journal.Chunk{Attempt: 1, Offset: 70, Lines: []journal.Line{{Text: "one"}, {Text: "two"}}})
		}()
		began := time.Now()
		if err := (&Operator{journal: j}).AddPrinted(t.Context(), records); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range records {
			if r.Output != nil {
				got = append(got, fmt.Sprintf("%s %d %q", r.RunID, r.OutputCut, *r.Output))
			}
		}
		if want := `talks 70 "one\ntwo\n", quiet 0 ""`; strings.Join(got, ", ") != want {
			t.Errorf("%q, want %q", got, want)
		}
		if took := time.Since(began); took < publishWait || took > publishWait+followEvery*2 {
			t.Errorf("it took %v", took)
		}
	})
}

// An empty chunk is no output: the end of a silent run whose replica dies has no last output to miss.
func TestSilentRunOfADeadReplicaMissesNoOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, j := redistest.StartInMemory(t)
		run := journal.Record{RunID: "one", Job: "report", Token: 1, Replica: "r1", Outcome: "abandoned", Started: time.Now(), Finished: time.Now()}
		if err := j.Record(t.Context(), []journal.Record{run}); err != nil {
			t.Fatal(err)
		}
		if _, err := j.Publish(t.Context(), "report", "one", journal.Chunk{Attempt: 1}); err != nil {
			t.Fatal(err)
		}
		f := newFollower(j, "report", Viewer{Note: func(_, text string) { t.Error(text) }})
		if _, err := f.followRun(t.Context(), "one"); err != nil {
			t.Error(err)
		}
	})
}
