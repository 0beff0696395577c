package agenda

import (
	"container/heap"
	"time"
)

// Queue holds values by an instant, each once. A value keeps its entry itself, one for each queue that it may be in: finding it takes no
// time then, and entering it no memory.
type Queue[T any] struct{ items []*Entry[T] }

// Entry is the place of a value in one queue.
type Entry[T any] struct {
	Value T
	at    time.Time
	place int // in items, from 1; 0 while it is in none
}

// When returns the instant of an entry, if it is in its queue.
func (e *Entry[T]) When() (time.Time, bool) { return e.at, e.place > 0 }

// Len is how many values are in the queue.
func (q *Queue[T]) Len() int { return len(q.items) }

// Set puts a value at an instant, wherever it was before.
func (q *Queue[T]) Set(e *Entry[T], at time.Time) {
	e.at = at
	if e.place > 0 {
		heap.Fix((*queueHeap[T])(q), e.place-1)
		return
	}
	heap.Push((*queueHeap[T])(q), e)
}

// First returns the earliest instant.
func (q *Queue[T]) First() (time.Time, bool) {
	if len(q.items) == 0 {
		return time.Time{}, false
	}
	return q.items[0].at, true
}

// Take removes the values up to now, the earliest first, and at most limit of them.
func (q *Queue[T]) Take(now time.Time, limit int) []T {
	var taken []T
	for len(q.items) > 0 && len(taken) < limit && !q.items[0].at.After(now) {
		taken = append(taken, heap.Pop((*queueHeap[T])(q)).(*Entry[T]).Value)
	}
	return taken
}

// Pop removes the earliest value.
func (q *Queue[T]) Pop() (v T, ok bool) {
	if len(q.items) == 0 {
		return v, false
	}
	return heap.Pop((*queueHeap[T])(q)).(*Entry[T]).Value, true
}

// Advance moves the entries after an instant forward to it.
func (q *Queue[T]) Advance(to time.Time) {
	for _, e := range q.items {
		if e.at.After(to) {
			e.at = to
		}
	}
	heap.Init((*queueHeap[T])(q))
}

// Remove takes a value out, if it is in.
func (q *Queue[T]) Remove(e *Entry[T]) {
	if e.place > 0 {
		heap.Remove((*queueHeap[T])(q), e.place-1)
	}
}

// Clear removes all.
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
