// Package logging writes all log output of a process. The reader of a log, such as a terminal, a journal or another program behind a pipe, may stop reading or
// exit. The process must never wait for the reader.
//
//   - A [Writer] queues lines and writes them from its own goroutine. It drops and counts the lines that do not fit into the queue, and reports their number
//     as soon as the reader continues.
//   - [New] returns a logger that writes text or JSON to a Writer.
//   - An [Output] writes the output of one run to a log, within limits.
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
	// MaxQueued is the maximum number of bytes in the queue. The write to a reader that has stopped may hold the same number of bytes again.
	MaxQueued = 1 << 20
	// maxChatter is the maximum number of bytes in the queue when a line below WARN is added. The rest of the queue is reserved for more important lines.
	maxChatter = MaxQueued / 4 * 3
	// keptBuffer is the maximum capacity of a buffer that is kept for reuse.
	keptBuffer = 64 << 10

	// The pauses between attempts of a failed write double from firstPause to lastPause. A full disk, or a named pipe without a reader, may recover. If the
	// reader has exited for good, the attempts do no harm.
	firstPause, lastPause = 10 * time.Millisecond, time.Second
)

// Writer passes lines on to a reader that may be slow, hang or have exited. A write to a Writer never waits and never fails. It is safe for concurrent use.
//
// A Writer drops new lines if the queue is full, and lines below WARN if it is three quarters full. In their place, the reader gets a line with the number
// of dropped lines.
type Writer struct {
	out    io.Writer
	notice func(dropped uint64) []byte // returns the line that reports dropped lines
	wake   chan struct{}               // capacity 1: signals that the queue is not empty
	closed chan struct{}
	end    sync.Once
	worker sync.WaitGroup
	total  atomic.Uint64 // number of all dropped lines

	mu      sync.Mutex
	queue   []byte          // complete lines only
	spare   []byte          // an empty buffer that becomes the next queue
	dropped uint64          // number of lines dropped since lines were last taken from the queue
	writing bool            // lines that were taken from the queue are not written yet
	flushes []chan struct{} // channels to close when everything is written
}

// NewWriter starts a Writer that writes to out. [Writer.Close] ends it. notice returns the line that reports dropped lines.
func NewWriter(out io.Writer, notice func(dropped uint64) []byte) *Writer {
	w := &Writer{out: out, notice: notice, wake: make(chan struct{}, 1), closed: make(chan struct{})}
	w.worker.Go(w.run)
	return w
}

// Write queues a line whose level is unknown. Such a line counts as an error.
func (w *Writer) Write(line []byte) (int, error) { return w.LevelWrite(hclog.Error, line) }

// LevelWrite queues a line with its level.
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

// Dropped returns the number of lines dropped so far.
func (w *Writer) Dropped() uint64 { return w.total.Load() }

// Close writes the queued lines until ctx ends, and reports whether all were written. A hanging write is abandoned. Later lines are not written.
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

// flushed returns a channel that is closed when all queued lines are written.
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

func (w *Writer) run() {
	for {
		lines := w.takeLines()
		if len(lines) > 0 {
			if !w.writeLines(lines) {
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

func (w *Writer) takeLines() (lines []byte) {
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

// writeLines writes lines, and retries failed writes. It returns false if the writer was closed before all lines were written.
func (w *Writer) writeLines(lines []byte) bool {
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
