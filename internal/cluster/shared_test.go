package cluster

import (
	"context"
	"errors"
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
