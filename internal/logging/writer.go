// Package logging is the only way of log output out of a process. A log is read by others: a terminal, a journal, a pipe to another program. They
// may stop to read, or go away, and nothing that this process does may wait for them.
//
//   - A [Writer] queues lines and writes them from a goroutine of its own. Lines that do not fit into the queue are dropped, counted, and reported by one
//     line as soon as the reader takes again.
//   - [New] makes a logger on a Writer, as text or JSON.
//   - An [Output] passes the output of one run on to a log, within limits.
package logging

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/backoff"
)

const (
	// MaxQueued is how many bytes of whole lines wait to be written; as many again may be on their way to a reader that has stopped.
	MaxQueued = 1 << 20
	// maxChatter is how many of them may be lines below WARN: a flood of these leaves room for lines that matter.
	maxChatter = MaxQueued / 4 * 3
	// keptBuffer is how large a buffer may be that is kept for the next lines.
	keptBuffer = 64 << 10

	// A write that fails is repeated after a pause that doubles from the first to the last. A full disk, or a named pipe without a reader, may be better
	// then; of a reader that is gone for good this is all that is noticed.
	firstPause, lastPause = 10 * time.Millisecond, time.Second
)

// Writer hands lines on to a reader that may be slow, stuck or gone. Writing to it never waits and never fails. It is safe for concurrent use.
//
// When the queue is full the newest lines are dropped, those below WARN sooner than others. In their place the reader finds one line with their number.
type Writer struct {
	out    io.Writer
	notice func(dropped uint64) []byte // the line that stands for dropped ones
	wake   chan struct{}               // capacity 1: something is queued
	closed chan struct{}
	end    sync.Once
	worker sync.WaitGroup
	total  atomic.Uint64 // lines that were dropped

	mu      sync.Mutex
	queue   []byte          // whole lines
	spare   []byte          // for the queue
	dropped uint64          // lines, after those in the queue
	writing bool            // lines that were taken from the queue are not all written
	flushes []chan struct{} // to be closed when all is written
}

// NewWriter starts a writer to out; [Writer.Close] ends it. notice makes the line that stands for dropped ones.
func NewWriter(out io.Writer, notice func(dropped uint64) []byte) *Writer {
	w := &Writer{out: out, notice: notice, wake: make(chan struct{}, 1), closed: make(chan struct{})}
	w.worker.Go(w.run)
	return w
}

// Write queues a line of any importance.
func (w *Writer) Write(line []byte) (int, error) { return w.LevelWrite(hclog.Error, line) }

// LevelWrite queues a line of a level.
func (w *Writer) LevelWrite(level hclog.Level, line []byte) (int, error) {
	limit := MaxQueued
	if level < hclog.Warn {
		limit = maxChatter
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue)+len(line) > limit {
		w.dropped++
		w.total.Add(1)
		return len(line), nil
	}
	w.queue = append(w.queue, line...)
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return len(line), nil
}

// Dropped is how many lines were dropped so far.
func (w *Writer) Dropped() uint64 { return w.total.Load() }

// Close writes the queue until ctx ends, and returns whether that was all. A write that hangs is left behind. Later lines are not written.
func (w *Writer) Close(ctx context.Context) (all bool) {
	select {
	case <-w.flushed():
		all = true
	case <-ctx.Done():
	}
	w.end.Do(func() { close(w.closed) })
	if all {
		w.worker.Wait()
	}
	return all
}

// flushed returns a channel that is closed when all is written.
func (w *Writer) flushed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	done := make(chan struct{})
	if !w.writing && len(w.queue) == 0 && w.dropped == 0 {
		close(done)
		return done
	}
	w.flushes = append(w.flushes, done)
	return done
}

// run is the goroutine that writes.
func (w *Writer) run() {
	for {
		lines := w.take()
		if len(lines) > 0 {
			if !w.write(lines) {
				return
			}
			continue
		}
		select {
		case <-w.wake:
		case <-w.closed:
			return
		}
	}
}

// take removes all lines from the queue, and appends a line that counts those that were dropped after them.
func (w *Writer) take() (lines []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines, w.queue, w.spare = w.queue, w.spare[:0], nil
	if w.dropped > 0 {
		lines = append(lines, w.notice(w.dropped)...)
		w.dropped = 0
	}
	w.writing = len(lines) > 0
	if !w.writing {
		w.spare, w.queue = w.queue, lines
		for _, done := range w.flushes {
			close(done)
		}
		w.flushes = nil
	}
	return lines
}

// write writes all of it, however often that takes. It is false if the writer was closed meanwhile.
func (w *Writer) write(lines []byte) bool {
	retry := backoff.New(firstPause, lastPause)
	for rest := lines; len(rest) > 0; {
		n, err := w.out.Write(rest)
		if rest = rest[n:]; n > 0 {
			retry.Reset()
		}
		if err == nil {
			continue
		}
		timer := time.NewTimer(retry.Next())
		select {
		case <-timer.C:
		case <-w.closed:
			timer.Stop()
			return false
		}
	}
	if cap(lines) <= keptBuffer {
		w.mu.Lock()
		w.spare = lines[:0]
		w.mu.Unlock()
	}
	return true
}
