package operator

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

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

// A follower of a run that is tried again learns of each try that failed, before what the next one prints.
func TestFollowerLearnsOfTries(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	run := journal.Record{RunID: "one", Job: "report", Token: 1, Attempt: 2, FailedTries: 1, Replica: "r1", Outcome: "running", Started: time.Now()}
	try := journal.Record{RunID: "one.1", Job: "report", Token: 1, Attempt: 1, Retried: true, Replica: "r1", Outcome: "failed", Reason: "exit code 3", Started: time.Now(), Finished: time.Now()}
	c.record(t, run, try)
	if err := c.journal.Publish(t.Context(), "report", "one", journal.Chunk{Number: 1, Lines: []journal.Line{{Text: "again"}}}); err != nil {
		t.Fatal(err)
	}
	var got []string
	err := c.operator(t, Config{}).Follow(t.Context(), FollowRequest{Job: "report", Run: "one"}, Viewer{
		Note: func(_, text string) { got = append(got, text) },
		Line: func(l OutputLine) {
			got = append(got, l.Line)
			run.Outcome, run.Finished = "ok", time.Now()
			c.record(t, run)
			if err := c.journal.Publish(t.Context(), "report", "one", journal.Chunk{Number: 2, End: true}); err != nil {
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
		{Number: 1, Lines: []journal.Line{{Text: "first", At: at.UnixMilli()}}},
		{Number: 2, Lost: 12_345, Lines: []journal.Line{{Text: "second"}}},
		{Number: 4, Lines: []journal.Line{{Text: "last", Stderr: true}}, End: true},
	} {
		if err := c.journal.Publish(t.Context(), "report", "one", chunk); err != nil {
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
	if want := "begin one r1, first, … 12 kB left out …, second, … some output left out …, last"; err != nil || strings.Join(got, ", ") != want {
		t.Errorf("%v, %q", err, got)
	}
	if first.Replica != "r1" || first.Job != "report" || !first.Time.Equal(at) {
		t.Errorf("%+v", first)
	}
}
