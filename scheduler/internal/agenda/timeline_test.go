package agenda

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cronclave/cronclave/scheduler/cronspec"
)

func parseSchedule(t testing.TB, exprs ...string) *cronspec.Schedule {
	t.Helper()
	s, err := cronspec.Parse(exprs, cronspec.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// dueTick is one entry's tick, as the timeline and its model return it.
type dueTick struct {
	at, previous time.Time
	entry        int
}

func sortedTicks(list []dueTick) []dueTick {
	slices.SortFunc(list, func(a, b dueTick) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.entry, b.entry))
	})
	return list
}

// modelTimeline keeps each entry by itself and asks its schedule for every tick.
type modelTimeline struct {
	entries []modelEntry
}

type modelEntry struct {
	spec           *cronspec.Schedule
	previous, next time.Time
}

func (m *modelTimeline) add(spec *cronspec.Schedule, after time.Time) {
	next := spec.Next(after)
	m.entries = append(m.entries, modelEntry{spec, spec.Prev(next), next})
}

func (m *modelTimeline) next() (first time.Time, ok bool) {
	for _, e := range m.entries {
		if first.IsZero() || e.next.Before(first) {
			first = e.next
		}
	}
	return first, len(m.entries) > 0
}

func (m *modelTimeline) take(now time.Time) []dueTick {
	var list []dueTick
	for i := range m.entries {
		e := &m.entries[i]
		for !e.next.After(now) {
			list = append(list, dueTick{e.next, e.previous, i})
			e.previous, e.next = e.next, e.spec.Next(e.next)
		}
	}
	return sortedTicks(list)
}

// takeAll takes until nothing is due, and checks each call on its own.
func takeAll(t *rapid.T, line *timeline[int], now time.Time) []dueTick {
	var list []dueTick
	var latest time.Time
	for {
		first, ok := line.next()
		buckets := line.takeDue(now)
		if pending := ok && !first.After(now); pending != (len(buckets) > 0) {
			t.Fatalf("next tells %v at %v, and take hands over %d buckets", first, now, len(buckets))
		}
		if len(buckets) == 0 {
			return sortedTicks(list)
		}
		taken := 0
		for _, b := range buckets {
			if b.At.Before(latest) || taken >= takeEnough && !b.At.Equal(latest) {
				t.Fatalf("%v after %v and %d entries", b.At, latest, taken)
			}
			latest = b.At
			taken += len(b.entries)
			for _, e := range b.entries {
				list = append(list, dueTick{b.At, b.Previous, e})
			}
		}
	}
}

func TestTimelineAgreesWithModel(t *testing.T) {
	exprs := []string{"* * * * * *", "*/7 * * * * *", "*/30 * * * * *", "* * * * *", "*/5 * * * *", "@every 90s", "@hourly", "0 3 * * *", "0 0 29 2 *"}
	rapid.Check(t, func(t *rapid.T) {
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		line, model := timeline[int]{}, modelTimeline{}
		add := func(t *rapid.T) {
			spec, err := cronspec.Parse([]string{rapid.SampledFrom(exprs).Draw(t, "schedule")}, cronspec.Options{})
			if err != nil {
				t.Fatal(err)
			}
			after := now.Add(time.Duration(rapid.IntRange(-300_000, 300_000).Draw(t, "after")) * time.Millisecond)
			for range rapid.IntRange(1, 3).Draw(t, "times") {
				line.add(spec, len(model.entries), after)
				model.add(spec, after)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": add,
			"pass": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(-2000, 10_000).Draw(t, "milliseconds")) * time.Millisecond)
			},
			"jump": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 600).Draw(t, "seconds")) * time.Second)
			},
			"take": func(t *rapid.T) {
				if got, want := takeAll(t, &line, now), model.take(now); !slices.Equal(got, want) {
					t.Fatalf("at %v\ngot  %v\nwant %v", now, got, want)
				}
			},
			"": func(t *rapid.T) {
				at, ok := line.next()
				if want, wantOK := model.next(); at != want || ok != wantOK {
					t.Fatalf("next is %v, %t, want %v, %t", at, ok, want, wantOK)
				}
			},
		})
	})
}

func TestTimelineAfterSuspend(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var line timeline[string]
	line.add(parseSchedule(t, "* * * * * *"), "a", start)
	line.add(parseSchedule(t, "* * * * * *"), "b", start)
	woken := start.Add(3 * time.Hour)
	seen := start
	calls := 0
	for {
		buckets := line.takeDue(woken)
		if len(buckets) == 0 {
			break
		}
		calls++
		if n := len(buckets); n > takeEnough/2 {
			t.Fatalf("%d buckets of two entries in one call", n)
		}
		for _, b := range buckets {
			if want := seen.Add(time.Second); b.At != want || b.Previous != seen || !slices.Equal(b.entries, []string{"a", "b"}) {
				t.Fatalf("%+v, want two entries at %v", b, want)
			}
			seen = b.At
		}
	}
	if seen != woken || calls != 3 { // 21,600 entries
		t.Errorf("the last tick is %v after %d calls, want %v after 3", seen, calls, woken)
	}
}

// Entries with equal keys share a line, also when they came at different places of the schedule and have met since. An entry that comes before the
// latest is alone until then.
func TestTimelineSharesEqualKeys(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, inOrder := range []bool{true, false} {
		var line timeline[int]
		early := func() {
			for i := range 100 {
				line.add(parseSchedule(t, "*/10 * * * * *"), i, start)
			}
		}
		late := func() {
			for i := range 100 {
				line.add(parseSchedule(t, "0/10 * * * * *", "*/10 * * * * *"), 100+i, start.Add(20*time.Second))
			}
		}
		first, then, lines := early, late, 2
		if !inOrder {
			first, then, lines = late, early, 101
		}
		first()
		then()
		if len(line.queue) != lines || len(line.latest) != 1 {
			t.Fatalf("in order %t: %d lines of %d schedules, want %d of 1", inOrder, len(line.queue), len(line.latest), lines)
		}
		for i, want := range []int{100, 100, 200, 200} {
			taken := 0
			for _, b := range line.takeDue(start.Add(time.Duration(i+1) * 10 * time.Second)) {
				taken += len(b.entries)
			}
			if taken != want {
				t.Errorf("in order %t: %d entries at second %d, want %d", inOrder, taken, 10*(i+1), want)
			}
		}
		if len(line.queue) != 1 || line.latest[parseSchedule(t, "*/10 * * * * *").Key()] != line.queue[0] {
			t.Errorf("in order %t: %d lines, want one, the latest", inOrder, len(line.queue))
		}
		if buckets := line.takeDue(start.Add(50 * time.Second)); len(buckets) != 1 || len(buckets[0].entries) != 200 {
			t.Errorf("in order %t: %d buckets, want one of 200 entries", inOrder, len(buckets))
		}
	}
}

// An instant is handed over whole, however many schedules and entries are due at it, and the next one is left alone then.
func TestTimelineHandsOverWholeInstants(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var line timeline[int]
	every, even := parseSchedule(t, "* * * * * *"), parseSchedule(t, "*/2 * * * * *")
	for i := range takeEnough {
		line.add(every, i, start)
		line.add(even, i, start)
	}
	at := start
	for _, want := range []int{1, 2, 1, 2} {
		at = at.Add(time.Second)
		buckets := line.takeDue(start.Add(time.Minute))
		if len(buckets) != want {
			t.Fatalf("%d buckets for %v, want %d", len(buckets), at, want)
		}
		for _, b := range buckets {
			if b.At != at || len(b.entries) != takeEnough {
				t.Errorf("%d entries at %v, want %d at %v", len(b.entries), b.At, takeEnough, at)
			}
		}
	}
}

// A list that was handed over stays as it was while the timeline goes on.
func TestTimelineHandsOverStableLists(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var line timeline[int]
	spec := parseSchedule(t, "* * * * * *")
	for i := range 3 {
		line.add(spec, i, start)
	}
	first := line.takeDue(start.Add(time.Second))
	line.add(spec, 3, start.Add(time.Second))
	_ = append(first[0].entries, -1) // a careless caller
	second := line.takeDue(start.Add(2 * time.Second))
	if !slices.Equal(first[0].entries, []int{0, 1, 2}) || !slices.Equal(second[0].entries, []int{0, 1, 2, 3}) {
		t.Errorf("%v, then %v", first, second)
	}
}

func TestTimelineWithoutTicks(t *testing.T) {
	var line timeline[int]
	if at, ok := line.next(); ok || !at.IsZero() {
		t.Errorf("empty: next is %v", at)
	}
	if buckets := line.takeDue(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)); buckets != nil {
		t.Errorf("empty: %v", buckets)
	}
	spec := parseSchedule(t, "0 0 1 1 *")
	lastYear := time.Date(9998, 6, 1, 0, 0, 0, 0, time.UTC)
	line.add(spec, 1, lastYear)
	line.add(spec, 2, lastYear.AddDate(1, 0, 0)) // no tick left
	if buckets := line.takeDue(lastYear.AddDate(2, 0, 0)); len(buckets) != 1 || !slices.Equal(buckets[0].entries, []int{1}) {
		t.Errorf("the last tick of all: %v", buckets)
	}
	if at, ok := line.next(); ok || len(line.latest) != 0 {
		t.Errorf("after the last tick next is %v, and %d schedules are kept", at, len(line.latest))
	}
}

// TestQueueAgreesWithModel: whatever is done to it, a queue is a sorted map.
func TestQueueAgreesWithModel(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	rapid.Check(t, func(t *rapid.T) {
		var q Queue[int]
		entries := make([]Entry[int], 21)
		for v := range entries {
			entries[v].Value = v
		}
		model := map[int]int{}
		value, second := rapid.IntRange(0, 20), rapid.IntRange(0, 30)
		oldest := func(to int) []int { // the model's values up to a second, by their seconds
			var all []int
			for v, s := range model {
				if s <= to {
					all = append(all, s*100+v)
				}
			}
			slices.Sort(all)
			return all
		}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				v, s := value.Draw(t, "value"), second.Draw(t, "second")
				q.Set(&entries[v], at(s))
				model[v] = s
			},
			"remove": func(t *rapid.T) {
				v := value.Draw(t, "value")
				q.Remove(&entries[v])
				delete(model, v)
			},
			"take": func(t *rapid.T) {
				to, limit := second.Draw(t, "to"), value.Draw(t, "limit")
				expected := oldest(to)
				taken := q.Take(at(to), limit)
				if len(taken) != min(limit, len(expected)) {
					t.Fatalf("took %d of %d", len(taken), len(expected))
				}
				for i, v := range taken {
					if model[v] != expected[i]/100 {
						t.Fatalf("value %d of second %d came as number %d, that of %d was due", v, model[v], i, expected[i]/100)
					}
				}
				for _, v := range taken {
					delete(model, v)
				}
			},
			"pop": func(t *rapid.T) {
				v, ok := q.Pop()
				expected := oldest(100)
				if ok != (len(expected) > 0) || ok && model[v] != expected[0]/100 {
					t.Fatalf("popped %d, %v", v, ok)
				}
				delete(model, v)
			},
			"clear": func(t *rapid.T) {
				q.Clear()
				clear(model)
			},
			"advance": func(t *rapid.T) {
				to := second.Draw(t, "to")
				q.Advance(at(to))
				for v, s := range model {
					model[v] = min(s, to)
				}
			},
			"": func(t *rapid.T) {
				if len(q.items) != len(model) {
					t.Fatalf("%d items, %d in the model", len(q.items), len(model))
				}
				for v := range entries {
					s, in := model[v]
					if when, ok := entries[v].When(); ok != in || ok && !when.Equal(at(s)) {
						t.Fatalf("%d is at %v (%v), not at second %d (%v)", v, when, ok, s, in)
					}
				}
				first, ok := q.First()
				if ok != (len(model) > 0) || ok && cmp.Compare(first.Unix(), int64(oldest(100)[0]/100)) != 0 {
					t.Fatalf("first is %v, %v", first, ok)
				}
			},
		})
	})
}
