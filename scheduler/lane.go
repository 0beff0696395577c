package scheduler

import (
	"time"

	"github.com/cronclave/cronclave/scheduler/internal/agenda"
)

// A lane sends requests to the server in batches, one batch at a time. Requests that arrive while one is under way go into the next. So requests do
// not overtake each other, or pile up in front of a slow server. T is a request that waits in the queue, B a batch with its answers.
//
// A lane belongs to the loop, which receives from answers and passes each answer to settle.
type lane[T, B any] struct {
	due     *agenda.Queue[T] // the requests by the time at which they are to be sent
	answers chan B           // capacity 1: sending an answer never blocks
	busy    bool             // a batch is under way
	deal    func(B)          // handles an answered batch
}

func newLane[T, B any](due *agenda.Queue[T], deal func(B)) lane[T, B] {
	return lane[T, B]{due: due, answers: make(chan B, 1), deal: deal}
}

// nextSend returns the time at which to send the next batch. ok is false while a batch is under way, or nothing waits.
func (l *lane[T, B]) nextSend() (at time.Time, ok bool) {
	if l.busy {
		return time.Time{}, false
	}
	return l.due.First()
}

// sendBatch sends a batch: ask completes it in a goroutine of its own.
func (l *lane[T, B]) sendBatch(b B, ask func(*B)) {
	l.busy = true
	go func() {
		ask(&b)
		l.answers <- b
	}()
}

// settleBatch handles an answered batch.
func (l *lane[T, B]) settleBatch(b B) {
	l.busy = false
	l.deal(b)
}

// discardBatch drops an answered batch that is no longer needed.
func (l *lane[T, B]) discardBatch(B) { l.busy = false }
