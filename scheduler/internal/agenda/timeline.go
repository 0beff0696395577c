package agenda

import (
	"container/heap"
	"math"
	"slices"
	"time"

	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// A timeline is a priority queue of entries, ordered by their next ticks. It is a heap of lines: a line has all entries with the same schedule and
// the same next tick. So the next tick is computed once per schedule, not once per entry, and the entries of a line are returned without a copy.
//
// The zero value is empty and ready. A timeline belongs to one goroutine.
type timeline[E any] struct {
	queue lineHeap[E]
	// latest has, for each schedule key, the line whose next tick is latest. Another line of the schedule is merged into this line when it reaches the
	// same tick.
	latest map[string]*line[E]
}

// A line is a list of entries that share their ticks. Instants are in Unix seconds, because ticks are whole seconds.
type line[E any] struct {
	spec     *cronspec.Schedule
	at       int64 // the next tick
	previous int64 // the tick before at; unknownTick until it is needed
	entries  []E
}

const unknownTick = math.MinInt64

// Instants has a tick with its neighbours in the schedule.
type Instants struct {
	At       time.Time
	Name     time.Time // identifies the tick on every replica: see [cronspec.Schedule.ID]; zero means At
	Previous time.Time // the name of the tick before At; zero if there is none since 1970
	Next     time.Time // the tick after At; zero if there is none
	// Since is set only for a job that runs after other jobs, and has no schedule. It is the time at which the last run of its parents ended. For such a job
	// Previous is the newest earlier tick of the chain, and Next is zero.
	Since time.Time
}

// InstantsOf returns a tick with its neighbours.
func InstantsOf(spec *cronspec.Schedule, at time.Time) Instants {
	return Instants{At: at, Name: spec.ID(at), Previous: spec.ID(spec.Prev(at)), Next: spec.Next(at)}
}

// A dueBucket has the entries of one schedule that are due at one instant.
type dueBucket[E any] struct {
	Instants
	entries []E // read-only: the timeline goes on using it
}

// takeEnough is the number of entries after which takeDue leaves the remaining instants to the next call.
const takeEnough = 10_000

// add adds an entry, which is due at every tick of its schedule after an instant. It does nothing if there is no such tick.
func (t *timeline[E]) add(spec *cronspec.Schedule, entry E, after time.Time) {
	first := spec.Next(after)
	if first.IsZero() {
		return
	}
	latest, at := t.latest[spec.Key()], first.Unix()
	if latest != nil && latest.at == at {
		latest.entries = append(latest.entries, entry)
		return
	}
	l := &line[E]{spec: spec, at: at, previous: unknownTick, entries: []E{entry}}
	heap.Push(&t.queue, l)
	if t.latest == nil {
		t.latest = map[string]*line[E]{}
	}
	if latest == nil || latest.at < at {
		t.latest[spec.Key()] = l
	}
}

func (t *timeline[E]) next() (at time.Time, ok bool) {
	if len(t.queue) == 0 {
		return time.Time{}, false
	}
	return unixTime(t.queue[0].at), true
}

// takeDue returns the entries that are due up to now, the oldest instant first, and moves each entry to its next tick. After a jump of the clock, an
// entry is returned once for every tick in between. When takeDue has takeEnough entries, it stops after the current instant. The caller then sees
// that the result of next is not after now, and calls takeDue again.
func (t *timeline[E]) takeDue(now time.Time) []dueBucket[E] {
	var buckets []dueBucket[E]
	taken, at := 0, int64(0)
	for len(t.queue) > 0 && t.queue[0].at <= now.Unix() {
		l := t.queue[0]
		if l.at != at && taken >= takeEnough {
			break
		}
		at = l.at
		if l.previous == unknownTick {
			l.previous = l.spec.Prev(unixTime(at)).Unix()
		}
		b := dueBucket[E]{Instants{At: unixTime(at), Name: l.spec.ID(unixTime(at)), Previous: l.spec.ID(unixTime(l.previous))}, slices.Clip(l.entries)}
		taken += len(l.entries)
		b.Next = t.advanceLine(l)
		buckets = append(buckets, b)
	}
	return buckets
}

// advanceLine moves l, the first line of the queue, to its next tick, and returns that tick. If another line of the schedule has the same next tick,
// advanceLine merges l into it.
func (t *timeline[E]) advanceLine(l *line[E]) (next time.Time) {
	next = l.spec.Next(unixTime(l.at))
	latest := t.latest[l.spec.Key()]
	switch {
	case next.IsZero():
		delete(t.latest, l.spec.Key())
		heap.Pop(&t.queue)
	case latest != l && latest.at == next.Unix():
		latest.entries = append(latest.entries, l.entries...)
		heap.Pop(&t.queue)
	default:
		l.previous, l.at = l.at, next.Unix()
		heap.Fix(&t.queue, 0)
	}
	return next
}

func unixTime(unix int64) time.Time { return time.Unix(unix, 0).UTC() }

type lineHeap[E any] []*line[E]

func (h lineHeap[E]) Len() int           { return len(h) }
func (h lineHeap[E]) Less(i, j int) bool { return h[i].at < h[j].at }
func (h lineHeap[E]) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *lineHeap[E]) Push(x any)        { *h = append(*h, x.(*line[E])) }
func (h *lineHeap[E]) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	(*h)[last] = nil // so that the line can be garbage-collected
	*h = (*h)[:last]
	return l
}

// A Queue is a priority queue of values, ordered by an instant. A value contains its own Entry for each queue that it may be in, so the queue finds the
// value without a search and adds it without an allocation.
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
