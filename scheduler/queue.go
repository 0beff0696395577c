package scheduler

import (
	"container/heap"
	"time"
)

// queue holds values by an instant, each once.
type queue[T comparable] struct {
	items []*queued[T]
	of    map[T]*queued[T]
}

type queued[T comparable] struct {
	value T
	at    time.Time
	index int // in items
}

// set puts a value at an instant, wherever it was before.
func (q *queue[T]) set(v T, at time.Time) {
	if item := q.of[v]; item != nil {
		item.at = at
		heap.Fix((*queueHeap[T])(q), item.index)
		return
	}
	if q.of == nil {
		q.of = map[T]*queued[T]{}
	}
	item := &queued[T]{value: v, at: at}
	q.of[v] = item
	heap.Push((*queueHeap[T])(q), item)
}

// when tells the instant of a value.
func (q *queue[T]) when(v T) (time.Time, bool) {
	item := q.of[v]
	if item == nil {
		return time.Time{}, false
	}
	return item.at, true
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
		taken = append(taken, heap.Pop((*queueHeap[T])(q)).(*queued[T]).value)
	}
	return taken
}

// pop removes the earliest value.
func (q *queue[T]) pop() (v T, ok bool) {
	if len(q.items) == 0 {
		return v, false
	}
	return heap.Pop((*queueHeap[T])(q)).(*queued[T]).value, true
}

// advance brings what lies after an instant forward to it.
func (q *queue[T]) advance(to time.Time) {
	for _, item := range q.items {
		if item.at.After(to) {
			item.at = to
		}
	}
	heap.Init((*queueHeap[T])(q))
}

func (q *queue[T]) remove(v T) {
	if item := q.of[v]; item != nil {
		heap.Remove((*queueHeap[T])(q), item.index)
	}
}

type queueHeap[T comparable] queue[T]

func (h *queueHeap[T]) Len() int           { return len(h.items) }
func (h *queueHeap[T]) Less(i, j int) bool { return h.items[i].at.Before(h.items[j].at) }
func (h *queueHeap[T]) Swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	h.items[i].index, h.items[j].index = i, j
}
func (h *queueHeap[T]) Push(x any) {
	item := x.(*queued[T])
	item.index = len(h.items)
	h.items = append(h.items, item)
}
func (h *queueHeap[T]) Pop() any {
	last := len(h.items) - 1
	item := h.items[last]
	h.items[last] = nil
	h.items = h.items[:last]
	delete(h.of, item.value)
	return item
}
