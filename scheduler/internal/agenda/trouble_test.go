package agenda

import (
	"fmt"
	"testing"
	"time"
)

// TestTrouble: the outage in which the deadline has passed counts, not a later one, and not that the server came back without its data; else the newest trouble.
func TestTrouble(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(1_800_000_000+int64(s), 0) }
	silent := func(from int) func(*Tick) {
		return func(k *Tick) { k.Silent(at(from)); k.Cause.Reason = k.WhyUnanswered(false) }
	}
	stood := func(k *Tick) { k.Cause.Reason = k.WhyUnanswered(true) }
	answered := func(s int) func(*Tick) { return func(k *Tick) { k.NoteAnswer(Answered, at(s)) } }
	shut := func(s int) func(*Tick) {
		return func(k *Tick) { k.NoteAnswer(Shut, at(s)); k.Undecided("shut", at(s)) }
	}
	for name, tc := range map[string]struct {
		steps []func(*Tick)
		want  string
	}{
		"none":                        {nil, ""},
		"an outage that goes on":      {[]func(*Tick){silent(1), silent(3)}, "from 1 to 99"},
		"one that is over":            {[]func(*Tick){silent(1), answered(20)}, "from 1 to 20"},
		"over, and another one":       {[]func(*Tick){silent(1), answered(20), silent(30), answered(40)}, "from 1 to 20"},
		"two before the deadline":     {[]func(*Tick){silent(1), answered(3), silent(5), answered(40)}, "from 5 to 40"},
		"data that is gone":           {[]func(*Tick){shut(5)}, "shut"},
		"data that is gone too late":  {[]func(*Tick){silent(1), shut(20)}, "from 1 to 20"},
		"data that is gone in time":   {[]func(*Tick){silent(1), shut(5)}, "shut"},
		"gone, and then it is silent": {[]func(*Tick){shut(2), silent(5)}, "from 5 to 99"},
		"a replica that stood still":  {[]func(*Tick){stood}, ""},
	} {
		j := &Job{Rules: &Rules{}}
		k := &Tick{Job: j, Rules: j.Rules, Deadline: at(10), Cause: Cause{Reason: Late}}
		j.Open = []*Tick{k}
		for _, step := range tc.steps {
			step(k)
		}
		want := tc.want
		var first, last int
		if n, _ := fmt.Sscanf(want, "from %d to %d", &first, &last); n == 2 {
			want = "Redis did not answer replica r1 from " + at(first).UTC().Format(time.RFC3339) + " to " + at(last).UTC().Format(time.RFC3339)
		}
		if got := k.Trouble.At(at(99), "r1"); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
