package scheduler

import (
	"container/heap"
	"time"
)

// queue holds values by an instant, each once. A value keeps its entry itself, one for each queue that it may be in: finding it takes no
// time then, and entering it no memory.
type queue[T any] struct{ items []*entry[T] }

// entry is the place of a value in one queue.
type entry[T any] struct {
	value T
	at    time.Time
	place int // in items, from 1; 0 while it is in none
}

// when tells the instant of an entry, if it is in its queue.
func (e *entry[T]) when() (time.Time, bool) { return e.at, e.place > 0 }

// set puts a value at an instant, wherever it was before.
func (q *queue[T]) set(e *entry[T], at time.Time) {
	e.at = at
	if e.place > 0 {
		heap.Fix((*queueHeap[T])(q), e.place-1)
		return
	}
	heap.Push((*queueHeap[T])(q), e)
}

// first tells the earliest instant.
func (q *queue[T]) first() (time.Time, bool) {
	if len(q.items) == 0 {
		return time.Time{}, false
	}
	return q.items[0].at, true
}

// take removes the values up to now, the earliest first, and at most limit of them.
func (q *queue[T]) take(now time.Time, limit int) []T {
	var taken []T
	for len(q.items) > 0 && len(taken) < limit && !q.items[0].at.After(now) {
		taken = append(taken, heap.Pop((*queueHeap[T])(q)).(*entry[T]).value)
	}
	return taken
}

// pop removes the earliest value.
func (q *queue[T]) pop() (v T, ok bool) {
	if len(q.items) == 0 {
		return v, false
	}
	return heap.Pop((*queueHeap[T])(q)).(*entry[T]).value, true
}

// advance brings what lies after an instant forward to it.
func (q *queue[T]) advance(to time.Time) {
	for _, e := range q.items {
		if e.at.After(to) {
			e.at = to
		}
	}
	heap.Init((*queueHeap[T])(q))
}

func (q *queue[T]) remove(e *entry[T]) {
	if e.place > 0 {
		heap.Remove((*queueHeap[T])(q), e.place-1)
	}
}

// clear removes all.
func (q *queue[T]) clear() {
	for _, e := range q.items {
		e.place = 0
	}
	q.items = nil
}

type queueHeap[T any] queue[T]

func (h *queueHeap[T]) Len() int           { return len(h.items) }
func (h *queueHeap[T]) Less(i, j int) bool { return h.items[i].at.Before(h.items[j].at) }
func (h *queueHeap[T]) Swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	h.items[i].place, h.items[j].place = i+1, j+1
}
func (h *queueHeap[T]) Push(x any) {
	e := x.(*entry[T])
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
