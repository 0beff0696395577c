package run

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
)

// notebook is a journal that a test can take away.
type notebook struct {
	mu      sync.Mutex
	away    bool
	hangs   bool
	tries   int
	batches []int
	records []Record
}

func (n *notebook) Record(ctx context.Context, records []Record) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tries++
	if n.hangs {
		n.mu.Unlock()
		<-ctx.Done()
		n.mu.Lock()
		return ctx.Err()
	}
	if n.away {
		return errors.New("nobody is at home")
	}
	n.batches = append(n.batches, len(records))
	n.records = append(n.records, records...)
	return nil
}

func (n *notebook) set(away, hangs bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.away, n.hangs = away, hangs
}

// recording runs a recorder in a bubble; the function it passes ends it, and returns how long that took.
func recording(t *testing.T, n *notebook, test func(t *testing.T, r *Recorder, end func() time.Duration)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(n, hclog.NewNullLogger())
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		r.openQueue()
		go func() {
			defer close(done)
			r.run(ctx, context.Background())
		}()
		end := func() time.Duration {
			start := time.Now()
			cancel()
			<-done
			return time.Since(start)
		}
		test(t, r, end)
		end()
		pass(lastWords)
	})
}

func numbered(i int) Record { return Record{RunID: fmt.Sprint(i), Outcome: OK} }

func TestRecordsTravelTogether(t *testing.T) {
	n := &notebook{}
	recording(t, n, func(t *testing.T, r *Recorder, end func() time.Duration) {
		for i := range 1200 {
			r.Add(numbered(i))
		}
		end()
		if len(n.records) != 1200 || len(n.batches) > 120 {
			t.Errorf("%d records in batches of %v", len(n.records), n.batches)
		}
		for i, record := range n.records {
			if record.RunID != fmt.Sprint(i) {
				t.Fatalf("record %d is %s", i, record.RunID)
			}
		}
	})
}

func TestJournalThatIsAwayIsTriedAgain(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		t.Run(fmt.Sprint("hangs ", hangs), func(t *testing.T) {
			n := &notebook{away: true, hangs: hangs}
			recording(t, n, func(t *testing.T, r *Recorder, end func() time.Duration) {
				written := r.Add(numbered(1))
				pass(time.Minute)
				select {
				case <-written.done:
					t.Error("written to a journal that is away")
				default:
				}
				n.mu.Lock()
				if n.tries < 10 || n.tries > 60 {
					t.Errorf("%d tries in a minute", n.tries)
				}
				n.mu.Unlock()
				if !r.failing.Load() {
					t.Error("does not tell that the journal fails")
				}
				n.set(false, false)
				if err := written.Wait(context.Background()); err != nil {
					t.Error(err)
				}
				r.Add(numbered(2))
				end()
				if len(n.records) != 2 || r.failing.Load() {
					t.Errorf("records %v, failing %v", n.records, r.failing.Load())
				}
			})
		})
	}
}

// TestWaitingRecordsAreBounded drops the oldest records when too many wait for the journal.
// Promise: P9
func TestWaitingRecordsAreBounded(t *testing.T) {
	n := &notebook{away: true}
	recording(t, n, func(t *testing.T, r *Recorder, end func() time.Duration) {
		first := r.Add(numbered(0))
		pass(time.Second) // it is being written
		oldest := r.Add(numbered(1))
		for i := 2; i < 3*maxWaiting; i++ {
			r.Add(numbered(i))
		}
		if len(r.waiting) > maxWaiting || len(r.pending) > maxWaiting+maxRecordBatch {
			t.Errorf("%d records wait, %d are remembered", len(r.waiting), len(r.pending))
		}
		soon, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := oldest.Wait(soon); !errors.Is(err, errDropped) {
			t.Errorf("the oldest: %v", err)
		}
		n.set(false, false)
		if err := first.Wait(context.Background()); err != nil {
			t.Error(err)
		}
		end()
		if last := n.records[len(n.records)-1].RunID; last != fmt.Sprint(3*maxWaiting-1) {
			t.Errorf("the last record is %s", last)
		}
		if len(r.pending) != 0 {
			t.Errorf("%d receipts are left", len(r.pending))
		}
	})
}

func TestSameRecordWaitsOnce(t *testing.T) {
	n := &notebook{away: true}
	recording(t, n, func(t *testing.T, r *Recorder, end func() time.Duration) {
		a := r.Add(Record{RunID: "x", Outcome: Abandoned})
		b := r.Add(Record{RunID: "x", Outcome: Abandoned})
		c := r.Add(Record{RunID: "x", Outcome: OK})
		if a != b || a == c {
			t.Error("the same record waits twice, or another does not")
		}
		n.set(false, false)
		end()
		if len(n.records) != 2 {
			t.Errorf("records %v", n.records)
		}
	})
}

func TestLastWordsAreBounded(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		t.Run(fmt.Sprint("hangs ", hangs), func(t *testing.T) {
			n := &notebook{away: true, hangs: hangs}
			recording(t, n, func(t *testing.T, r *Recorder, end func() time.Duration) {
				var all []*Receipt
				for i := range 2000 {
					w := r.Add(numbered(i))
					all = append(all, w)
				}
				if took := end(); took > lastWords+RecordTimeout {
					t.Errorf("the end took %v", took)
				}
				for i, w := range all {
					if err := w.Wait(context.Background()); err == nil {
						t.Fatalf("record %d counts as written", i)
					}
				}
				if late := r.Add(numbered(1)); !errors.Is(late.err, errEnded) {
					t.Errorf("after the end: %v", late.err)
				}
			})
		})
	}
}

func TestWithoutJournalAllIsWritten(t *testing.T) {
	r := newRecorder(nil, hclog.NewNullLogger())
	if w := r.Add(numbered(1)); w.Wait(context.Background()) != nil {
		t.Error("a record waits for a journal that is not there")
	}
	if len(r.waiting)+len(r.pending) != 0 {
		t.Error("records are kept for nobody")
	}
}

func TestBackoffIsBounded(t *testing.T) {
	b := newBackoff()
	for i := range 20 {
		if d := b.Next(); d < shortestPause/2 || d > longestPause {
			t.Errorf("pause %d is %v", i, d)
		}
	}
	if b.Reset(); b.Next() > shortestPause {
		t.Error("it does not begin anew")
	}
}

// pass lets time pass; inside a bubble that takes none.
func pass(d time.Duration) { <-time.After(d) }
