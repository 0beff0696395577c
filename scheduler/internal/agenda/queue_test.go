package agenda

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

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
