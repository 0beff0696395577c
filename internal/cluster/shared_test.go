package cluster

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

// TestSnapshots has many callers at once share one reading, which is read again when it is too old, or when something was done.
func TestSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &snapshots[Status]{age: time.Second, turn: make(chan struct{}, 1)}
		reads := 0
		read := func(context.Context) (*Status, error) {
			time.Sleep(100 * time.Millisecond)
			reads++
			return &Status{JobCount: reads}, nil
		}
		want := func(n int) {
			t.Helper()
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					if st, err := s.get(t.Context(), read); err != nil || st.JobCount != n {
						t.Errorf("reading %v, want %d: %v", st, n, err)
					}
				})
			}
			all.Wait()
		}
		want(1)
		time.Sleep(time.Second - time.Millisecond)
		want(1)
		time.Sleep(time.Millisecond)
		want(2)
		s.invalidate()
		want(3)
	})
}

// TestSlowReadingIsShared has readings that take longer than a value is good: callers that wait, and those that come soon after its end, take one together.
func TestSlowReadingIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &snapshots[Status]{age: time.Second, turn: make(chan struct{}, 1)}
		began := time.Now()
		read := func(context.Context) (*Status, error) {
			time.Sleep(3 * time.Second)
			return &Status{}, nil
		}
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if _, err := s.get(t.Context(), read); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("20 callers waited for %v", took)
		}
		time.Sleep(time.Second - time.Millisecond)
		began = time.Now()
		if _, err := s.get(t.Context(), read); err != nil || time.Since(began) != 0 {
			t.Errorf("a caller soon after waited for %v: %v", time.Since(began), err)
		}
	})
}

// TestSnapshotOfACallerThatGoes keeps the errors of Redis for others, and not those of a caller that has gone.
func TestSnapshotOfACallerThatGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &snapshots[Status]{age: time.Second, turn: make(chan struct{}, 1)}
		away, reads := errors.New("away"), 0
		read := func(ctx context.Context) (*Status, error) { reads++; return nil, errors.Join(away, ctx.Err()) }
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, _ = s.get(gone, read) // it may have had its turn, or not
		before := reads
		for range 3 {
			if _, err := s.get(t.Context(), read); !errors.Is(err, away) || errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		if reads != before+1 {
			t.Errorf("read %d times for three callers", reads-before)
		}
	})
}

// TestReadingBeforeAnActIsNotKept has an act end while a status is read: that reading may be of the time before the act.
func TestReadingBeforeAnActIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &snapshots[Status]{age: time.Second, turn: make(chan struct{}, 1)}
		reads := 0
		read := func(context.Context) (*Status, error) {
			reads++
			time.Sleep(100 * time.Millisecond)
			return &Status{}, nil
		}
		go func() {
			time.Sleep(50 * time.Millisecond)
			s.invalidate()
		}()
		for range 3 {
			if _, err := s.get(t.Context(), read); err != nil {
				t.Error(err)
			}
		}
		if reads != 2 {
			t.Errorf("read %d times, want once before and once after the act", reads)
		}
	})
}

// TestActOutlastsItsClient has a client go before its pause is done.
func TestActOutlastsItsClient(t *testing.T) {
	c := newCluster(t)
	c.describe(t, journal.JobInfo{Name: "backup", Enabled: true})
	shared := NewShared(c.operator(t, Config{}), time.Hour)
	if st, err := shared.Status(t.Context(), StatusRequest{}); err != nil || st.Jobs[0].Paused {
		t.Fatalf("before: %+v, %v", st, err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if done, err := shared.Pause(gone, PauseRequest{Selection: Selection{All: true}, Requester: ann}); err != nil || len(done) != 1 {
		t.Errorf("paused %v, %v", done, err)
	}
	if st, err := shared.Status(t.Context(), StatusRequest{}); err != nil || !st.Jobs[0].Paused {
		t.Errorf("after: %+v, %v", st, err)
	}
}

// TestWindowsRead: the records that overlap a window are read, the runs under way first, and at most one more than the limit.
func TestWindowsRead(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	w := NewWindows(c.operator(t, Config{}), 3)
	noon := time.Now().Truncate(time.Minute).Add(-24 * time.Hour)
	run := func(job, id string, from, until int, outcome journal.Outcome) journal.Record {
		r := journal.Record{RunID: id, Job: job, Slot: new(int), Attempt: 1, Token: 1, Replica: "a", Trigger: "schedule", Tick: noon, Started: noon.Add(time.Duration(from) * time.Minute), Outcome: outcome}
		if outcome != journal.OutcomeRunning {
			r.Finished, r.DurationMS = noon.Add(time.Duration(until)*time.Minute), new(int64)
		}
		return r
	}
	c.record(t, run("a", "before", -9, -1, "ok"), run("a", "into", -9, 1, "ok"), run("a", "in", 1, 2, "ok"), run("b", "out", 9, 99, "ok"), run("b", "after", 11, 12, "ok"),
		run("b", "long", -9, 0, "running"), run("b", "later", 12, 0, "running"), run("c", "third", 3, 3, "ok"))
	for want, only := range map[string]string{"long out third in": "abc", "long out": "b", "in into": "a", "": "x"} {
		list, err := w.Read(t.Context(), noon, noon.Add(10*time.Minute), func(job string) bool { return strings.Contains(only, job) })
		var ids []string
		for _, r := range list {
			ids = append(ids, r.RunID)
		}
		if got := strings.Join(ids, " "); err != nil || got != want {
			t.Errorf("of %s: %q %v, want %q", only, got, err, want)
		}
	}
	if list, err := w.Newest(t.Context()); err != nil || len(list) != 4 {
		t.Errorf("%d %v", len(list), err)
	}
}

// TestFailuresAreShared: viewers of a window that ends now share its failures, for each length.
func TestFailuresAreShared(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	w := NewWindows(c.operator(t, Config{}), 3)
	now := time.Now()
	fail := func(id string) {
		c.record(t, journal.Record{RunID: id, Job: "a", Token: 1, Replica: "a", Outcome: "failed", Started: now.Add(-time.Minute), Finished: now.Add(-time.Minute)})
	}
	expect := func(length time.Duration, want int) {
		t.Helper()
		if found, err := w.Failures(t.Context(), journal.FailuresRequest{From: now.Add(-length), Until: now, Most: 10}); err != nil || len(found.Records) != want {
			t.Errorf("in %v: %d failures, %v, want %d", length, len(found.Records), err, want)
		}
	}
	w.failures.Store(time.Hour, &snapshots[journal.FailuresFound]{age: time.Hour, turn: make(chan struct{}, 1)}) // the machine may be slow
	fail("1")
	expect(time.Hour, 1)
	fail("2")
	expect(time.Hour, 1)
	expect(24*time.Hour, 2)
	if found, err := w.Failures(t.Context(), journal.FailuresRequest{From: now.Add(-time.Hour), Until: now, Most: 10, Includes: func(job string) bool { return job == "b" }}); err != nil || len(found.Records) != 0 {
		t.Errorf("of another job: %v, %v", found, err)
	}
}

// TestWindowsAreReadTwoAtATime: a third viewer waits until it gives up.
func TestWindowsAreReadTwoAtATime(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	w := NewWindows(c.operator(t, Config{}), 3)
	c.record(t, journal.Record{RunID: "r", Job: "a", Slot: new(int), Attempt: 1, Token: 1, Replica: "a", Trigger: "schedule", Started: time.Now(), Outcome: "running"})
	go1, reading, done := make(chan struct{}), make(chan struct{}), make(chan error)
	for range windowReaders {
		go func() {
			_, err := w.Read(t.Context(), time.Time{}, time.Now(), func(string) bool { reading <- struct{}{}; <-go1; return false })
			done <- err
		}()
	}
	for range windowReaders {
		<-reading
	}
	gone, cancel := context.WithCancelCause(t.Context())
	left := errors.New("the viewer has left")
	cancel(left)
	if _, err := w.Read(gone, time.Time{}, time.Now(), func(string) bool { t.Error("a third window is read"); return false }); !errors.Is(err, left) {
		t.Error(err)
	}
	close(go1)
	for range windowReaders {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestPrinted says where output is missing, and asks the replicas for more.
func TestPrinted(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	o := c.operator(t, Config{})
	if text, answered, err := o.Printed(t.Context(), "j", "r"); text != "" || answered || err != nil {
		t.Errorf("%q %v", text, err)
	}
	if followed, err := c.journal.Followed(t.Context(), []string{"j"}); err != nil || len(followed) != 1 {
		t.Errorf("%v %v", followed, err)
	}
	for _, chunk := range []journal.Chunk{{Attempt: 1, Offset: 100, Lines: []journal.Line{{Text: "a"}, {Text: "b"}}}, {Attempt: 1, Offset: 2104, Lines: []journal.Line{{Text: "c"}}},
		{Attempt: 2, Lines: []journal.Line{{Text: "d"}}}} {
		if _, err := c.journal.Publish(t.Context(), "j", "r", chunk); err != nil {
			t.Fatal(err)
		}
	}
	want := "[… 100 bytes left out …]\na\nb\n[… 2 kB left out …]\nc\nd\n"
	if text, answered, err := o.Printed(t.Context(), "j", "r"); text != want || !answered || err != nil {
		t.Errorf("%q %v, want %q", text, err, want)
	}
	c.server.Close()
	if _, _, err := o.Printed(t.Context(), "j", "r"); !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
}
