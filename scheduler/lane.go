package scheduler

import (
	"time"

	"github.com/cronclave/cronclave/scheduler/internal/agenda"
)

// lane sends requests to the server in batches, one batch at a time: requests that come while one is under way go together in the next. So requests
// neither overtake each other nor pile up in front of a server that is slow. T is a request that waits in the queue, B a batch with its answers.
//
// A lane belongs to the loop, which receives from answers and passes each answer to settle.
type lane[T, B any] struct {
	due     *agenda.Queue[T] // by when it is to be sent
	answers chan B           // capacity 1: sending an answer never blocks
	busy    bool             // a batch is under way
	deal    func(B)          // with a batch that is answered
}

func newLane[T, B any](due *agenda.Queue[T], deal func(B)) lane[T, B] {
	return lane[T, B]{due: due, answers: make(chan B, 1), deal: deal}
}

// next is when the next batch is to be sent; ok is false while one is under way, or nothing waits.
func (l *lane[T, B]) next() (at time.Time, ok bool) {
	if l.busy {
		return time.Time{}, false
	}
	return l.due.First()
}

// send has ask complete a batch, in a goroutine of its own.
func (l *lane[T, B]) send(b B, ask func(*B)) {
	l.busy = true
	go func() {
		ask(&b)
		l.answers <- b
	}()
}

// settle deals with a batch that is answered.
func (l *lane[T, B]) settle(b B) {
	l.busy = false
	l.deal(b)
}

// discard is settle for an answer that is not needed any more.
func (l *lane[T, B]) discard(B) { l.busy = false }
