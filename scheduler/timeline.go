package scheduler

import (
	"container/heap"
	"math"
	"slices"
	"time"

	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// timeline tells which entries are due when. It is a heap of instants, not of entries: an instant leads to the lines that
// are due then, and a line is all entries with the same schedule at the same place of it. So a wake-up costs one
// computation of the next tick a schedule, however many entries share it, and their list is handed over as it is.
//
// The zero value is empty and ready. A timeline belongs to one goroutine.
type timeline[E any] struct {
	instants instants              // each once
	due      map[int64]*line[E]    // the lines of an instant, chained
	lines    map[position]*line[E] // all lines
}

// position identifies a line: entries with equal keys that are due at the same instant stay together from then on.
type position struct {
	key string // of the schedule
	at  int64
}

// line is a list of entries that share their ticks. Instants are in Unix seconds, as ticks are whole.
type line[E any] struct {
	spec     *cronspec.Schedule
	at       int64    // when it is due
	previous int64    // the tick before that; unknownTick until it is needed
	chained  *line[E] // the next line that is due at the same instant
	entries  []E
}

const unknownTick = math.MinInt64

// dueBucket is what one schedule has due at one instant.
type dueBucket[E any] struct {
	at       time.Time
	previous time.Time // the tick before it by the schedule, taken or not; zero if there was none since 1970
	entries  []E       // read only: the timeline goes on using it
}

// takeEnough is how many entries one call of take hands over before it leaves the remaining instants to the next call.
const takeEnough = 10_000

// add enters an entry, due from its schedule's first tick after an instant on. A schedule that has none is left out.
func (t *timeline[E]) add(spec *cronspec.Schedule, entry E, after time.Time) {
	if t.lines == nil {
		t.due = map[int64]*line[E]{}
		t.lines = map[position]*line[E]{}
	}
	first := spec.Next(after)
	if first.IsZero() {
		return
	}
	at := first.Unix()
	if l := t.lines[position{spec.Key(), at}]; l != nil {
		l.entries = append(l.entries, entry)
		return
	}
	t.enqueue(&line[E]{spec: spec, at: at, previous: unknownTick, entries: []E{entry}})
}

// next tells the earliest instant at which something is due, if anything ever is.
func (t *timeline[E]) next() (at time.Time, ok bool) {
	if len(t.instants) == 0 {
		return time.Time{}, false
	}
	return instant(t.instants[0]), true
}

// take hands over what is due up to now, the oldest instant first, and enters it again for its next tick. After a jump of
// the clock that is every tick in between. An instant is handed over whole, but a call ends after the one with which it
// has enough entries; next then still tells an instant that is not after now, and the caller calls again.
func (t *timeline[E]) take(now time.Time) []dueBucket[E] {
	var buckets []dueBucket[E]
	for taken := 0; taken < takeEnough && len(t.instants) > 0 && t.instants[0] <= now.Unix(); {
		at := heap.Pop(&t.instants).(int64)
		l := t.due[at]
		delete(t.due, at)
		for l != nil {
			if l.previous == unknownTick {
				l.previous = l.spec.Prev(instant(at)).Unix()
			}
			buckets = append(buckets, dueBucket[E]{at: instant(at), previous: instant(l.previous), entries: slices.Clip(l.entries)})
			taken += len(l.entries)
			chained := l.chained
			t.advance(l)
			l = chained
		}
	}
	return buckets
}

// advance enters a line for the tick after the one at which it was due. Where another line of the same schedule waits for
// that tick, the two become one.
func (t *timeline[E]) advance(l *line[E]) {
	key := l.spec.Key()
	delete(t.lines, position{key, l.at})
	next := l.spec.Next(instant(l.at))
	if next.IsZero() {
		return
	}
	if other := t.lines[position{key, next.Unix()}]; other != nil {
		other.entries = append(other.entries, l.entries...)
		return
	}
	l.previous, l.at = l.at, next.Unix()
	t.enqueue(l)
}

// enqueue enters a line at the instant that it is due.
func (t *timeline[E]) enqueue(l *line[E]) {
	t.lines[position{l.spec.Key(), l.at}] = l
	first, known := t.due[l.at]
	if !known {
		heap.Push(&t.instants, l.at)
	}
	l.chained = first
	t.due[l.at] = l
}

func instant(unix int64) time.Time { return time.Unix(unix, 0).UTC() }

// instants is a heap of Unix seconds.
type instants []int64

func (h instants) Len() int           { return len(h) }
func (h instants) Less(i, j int) bool { return h[i] < h[j] }
func (h instants) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *instants) Push(x any)        { *h = append(*h, x.(int64)) }
func (h *instants) Pop() any {
	last := len(*h) - 1
	at := (*h)[last]
	*h = (*h)[:last]
	return at
}
