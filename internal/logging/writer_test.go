package logging

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
)

// reader is what a log is written to. It may stop to take anything, or refuse it.
type reader struct {
	mu      sync.Mutex
	text    bytes.Buffer
	stopped chan struct{} // a write waits until it is closed; nil for one that reads
	refuses error
	most    int // bytes that it takes before it refuses; 0 for none
}

// Write takes what it can.
func (r *reader) Write(p []byte) (int, error) {
	r.mu.Lock()
	stopped := r.stopped
	r.mu.Unlock()
	if stopped != nil {
		<-stopped
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuses != nil {
		n := min(r.most, len(p))
		r.text.Write(p[:n])
		r.most -= n
		return n, r.refuses
	}
	return r.text.Write(p)
}

func (r *reader) goOn() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.stopped)
	r.stopped = nil
}

func (r *reader) refuse(why error, after int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuses, r.most = why, after
}

func (r *reader) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Split(strings.TrimSuffix(r.text.String(), "\n"), "\n")
}

func droppedLines(n uint64) []byte { return fmt.Appendf(nil, "%d dropped\n", n) }

func say(w *Writer, level hclog.Level, format string, args ...any) {
	_, _ = w.LevelWrite(level, fmt.Appendf(nil, format+"\n", args...)) // it never fails
}

func closeWithin(t *testing.T, w *Writer, d time.Duration) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return w.Close(ctx)
}

func TestLinesAreWrittenInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &reader{}
		w := NewWriter(out, droppedLines)
		for i := range 1000 {
			say(w, hclog.Info, "line %d", i)
		}
		if !closeWithin(t, w, time.Second) {
			t.Error("closed before all was written")
		}
		lines := out.lines()
		if len(lines) != 1000 || lines[0] != "line 0" || lines[999] != "line 999" || w.Dropped() != 0 {
			t.Errorf("%d lines, %d dropped; the last is %q", len(lines), w.Dropped(), lines[len(lines)-1])
		}
	})
}

// A reader that is stuck holds up no caller: the first lines are kept, a line marks the place of the dropped ones, and lines that matter still fit
// when others do not.
func TestStuckReaderHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &reader{stopped: make(chan struct{})}
		w := NewWriter(out, droppedLines)
		say(w, hclog.Info, "first")
		synctest.Wait() // its write hangs
		text, most := strings.Repeat("x", 999), maxChatter/1000
		begun := time.Now()
		for range most + 7 {
			say(w, hclog.Info, "%s", text)
		}
		say(w, hclog.Warn, "a warning")
		say(w, hclog.Error, "an error")
		if took := time.Since(begun); took != 0 {
			t.Errorf("logging took %v", took)
		}
		if w.Dropped() != 7 {
			t.Errorf("%d lines dropped, want 7", w.Dropped())
		}
		synctest.Wait()
		out.goOn()
		synctest.Wait()
		say(w, hclog.Info, "after")
		if !closeWithin(t, w, time.Second) {
			t.Error("closed before all was written")
		}
		lines := out.lines()
		if want := most + 5; len(lines) != want || lines[0] != "first" {
			t.Fatalf("%d lines, want %d; the first is %q", len(lines), want, lines[0])
		}
		if got := strings.Join(lines[len(lines)-4:], ", "); got != "a warning, an error, 7 dropped, after" {
			t.Errorf("the log ends with %s", got)
		}
	})
}

// TestFloodIsBounded has the most important lines fill the queue: there is an end to that, too.
func TestFloodIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &reader{stopped: make(chan struct{})}
		w := NewWriter(out, droppedLines)
		say(w, hclog.Info, "first")
		synctest.Wait()
		for range 2 * MaxQueued / 1000 {
			say(w, hclog.Error, "%s", strings.Repeat("x", 999))
		}
		if got := len(w.queue); got > MaxQueued {
			t.Errorf("%d bytes are queued, want at most %d", got, MaxQueued)
		}
		say(w, hclog.Error, "%s", strings.Repeat("y", MaxQueued)) // which never fits
		out.goOn()
		closeWithin(t, w, time.Second)
		if lines := out.lines(); lines[len(lines)-1] != fmt.Sprintf("%d dropped", w.Dropped()) {
			t.Errorf("%d lines dropped; the log ends with %.40q", w.Dropped(), lines[len(lines)-1])
		}
	})
}

// TestCloseWaitsForAStuckReaderNotForLong leaves a write behind that hangs.
func TestCloseWaitsForAStuckReaderNotForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &reader{stopped: make(chan struct{})}
		w := NewWriter(out, droppedLines)
		say(w, hclog.Info, "first")
		synctest.Wait()
		begun := time.Now()
		if closeWithin(t, w, time.Second) {
			t.Error("all was written, to a reader that is stuck")
		}
		if took := time.Since(begun); took != time.Second {
			t.Errorf("it took %v", took)
		}
		say(w, hclog.Info, "later") // not written, and harmless
		out.goOn()
	})
}

// A failed write is repeated when the reader takes again, from where it stopped. The reader is a disk that is full in the middle of a line, a pipe
// without a reader, and one that takes no bytes now.
func TestFailedWriteIsRepeated(t *testing.T) {
	for _, why := range []error{syscall.ENOSPC, syscall.EPIPE, syscall.EAGAIN, io.ErrShortWrite} {
		synctest.Test(t, func(t *testing.T) {
			out := &reader{}
			w := NewWriter(out, droppedLines)
			out.refuse(why, 3)
			say(w, hclog.Info, "one line")
			time.Sleep(time.Minute)
			say(w, hclog.Info, "another")
			out.refuse(nil, 0)
			time.Sleep(lastPause)
			if got := strings.Join(out.lines(), ", "); got != "one line, another" {
				t.Errorf("%v: the log has %q", why, got)
			}
			out.refuse(errors.New("for good"), 0)
			say(w, hclog.Info, "the last one")
			if closeWithin(t, w, time.Second) {
				t.Error("all was written, to a reader that refuses")
			}
		})
	}
}

// TestWriterIsForManyGoroutines is for the race detector.
func TestWriterIsForManyGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &reader{}
		w := NewWriter(out, droppedLines)
		var writers sync.WaitGroup
		for i := range 8 {
			writers.Go(func() {
				for n := range 500 {
					say(w, hclog.Info, "%d %d", i, n)
				}
			})
		}
		writers.Wait()
		closeWithin(t, w, time.Second)
		if got := len(out.lines()); got != 4000 {
			t.Errorf("%d lines, want 4000", got)
		}
	})
}
