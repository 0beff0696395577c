package agenda

import (
	"container/heap"
	"time"
)

// A Queue is a priority queue of values, ordered by an instant. A value contains its own Entry for each queue that it may be in. So a value is found
// without a search, and added without an allocation of an entry.
type Queue[T any] struct{ items []*Entry[T] }

// An Entry is the membership of a value in one queue.
type Entry[T any] struct {
	Value T
	at    time.Time
	place int // the index in items plus 1; 0 if the value is not in the queue
}

// When returns the instant of an entry, and reports whether the entry is in its queue.
func (e *Entry[T]) When() (time.Time, bool) { return e.at, e.place > 0 }

// Len returns the number of values in the queue.
func (q *Queue[T]) Len() int { return len(q.items) }

// Set adds a value with an instant, or changes the instant of a value in the queue.
func (q *Queue[T]) Set(e *Entry[T], at time.Time) {
	e.at = at
	if e.place > 0 {
		heap.Fix((*queueHeap[T])(q), e.place-1)
		return
	}
	heap.Push((*queueHeap[T])(q), e)
}

// First returns the earliest instant. It returns false if the queue is empty.
func (q *Queue[T]) First() (time.Time, bool) {
	if len(q.items) == 0 {
		return time.Time{}, false
	}
	return q.items[0].at, true
}

// Take removes and returns the values with instants up to now, the earliest first, at most limit.
func (q *Queue[T]) Take(now time.Time, limit int) []T {
	var taken []T
	for len(q.items) > 0 && len(taken) < limit && !q.items[0].at.After(now) {
		taken = append(taken, heap.Pop((*queueHeap[T])(q)).(*Entry[T]).Value)
	}
	return taken
}

// Pop removes and returns the earliest value.
func (q *Queue[T]) Pop() (v T, ok bool) {
	if len(q.items) == 0 {
		return v, false
	}
	return heap.Pop((*queueHeap[T])(q)).(*Entry[T]).Value, true
}

// Advance moves all entries with a later instant to the given instant.
func (q *Queue[T]) Advance(to time.Time) {
	for _, e := range q.items {
		if e.at.After(to) {
			e.at = to
		}
	}
	heap.Init((*queueHeap[T])(q))
}

// Remove removes a value, if it is in the queue.
func (q *Queue[T]) Remove(e *Entry[T]) {
	if e.place > 0 {
		heap.Remove((*queueHeap[T])(q), e.place-1)
	}
}

// Clear removes all values.
func (q *Queue[T]) Clear() {
	for _, e := range q.items {
		e.place = 0
	}
	q.items = nil
}

type queueHeap[T any] Queue[T]

func (h *queueHeap[T]) Len() int           { return len(h.items) }
func (h *queueHeap[T]) Less(i, j int) bool { return h.items[i].at.Before(h.items[j].at) }
func (h *queueHeap[T]) Swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	h.items[i].place, h.items[j].place = i+1, j+1
}
func (h *queueHeap[T]) Push(x any) {
	e := x.(*Entry[T])
	h.items = append(h.items, e)
	e.place = len(h.items)
}
func (h *queueHeap[T]) Pop() any {
	last := len(h.items) - 1
	e := h.items[last]
	h.items[last], e.place = nil, 0
	h.items = h.items[:last]
	return e
}
