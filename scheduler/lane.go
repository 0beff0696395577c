package scheduler

import (
	"time"

	"github.com/cronclave/cronclave/scheduler/internal/agenda"
)

// A lane sends requests to Redis in batches, one batch at a time. Requests that become due while a batch is under way go into the next batch. So
// requests do not overtake each other, and do not pile up if Redis is slow. T is the type of a queued request, B the type of a batch with its
// answers.
//
// A lane belongs to the loop, which receives from answers and passes each batch to settleBatch.
type lane[T, B any] struct {
	due     *agenda.Queue[T] // queued requests, ordered by their time to be sent
	answers chan B           // capacity 1: sending an answer never blocks
	busy    bool             // a batch is under way
	deal    func(B)          // handles an answered batch
}

func newLane[T, B any](due *agenda.Queue[T], deal func(B)) lane[T, B] {
	return lane[T, B]{due: due, answers: make(chan B, 1), deal: deal}
}

// nextSend returns the time at which to send the next batch. ok is false while a batch is under way or the queue is empty.
func (l *lane[T, B]) nextSend() (at time.Time, ok bool) {
	if l.busy {
		return time.Time{}, false
	}
	return l.due.First()
}

// sendBatch calls ask in a new goroutine, to send the batch and fill in the answers.
func (l *lane[T, B]) sendBatch(b B, ask func(*B)) {
	l.busy = true
	go func() {
		ask(&b)
		l.answers <- b
	}()
}

// settleBatch handles an answered batch, after which the next batch can be sent.
func (l *lane[T, B]) settleBatch(b B) {
	l.busy = false
	l.deal(b)
}

// discardBatch drops an answered batch that is no longer needed.
func (l *lane[T, B]) discardBatch(B) { l.busy = false }
