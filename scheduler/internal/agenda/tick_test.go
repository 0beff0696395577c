package agenda

import (
	"fmt"
	"testing"
	"time"

	"github.com/cronclave/cronclave/scheduler/run"
)

// allowed are the transitions of a tick, as the comment of State has them.
var allowed = map[stateName]string{
	due:       "due asking parked closed",
	waiting:   "waiting asking parked closed",
	asking:    "waiting unsure parked running returning givenUp closed",
	unsure:    "unsure asking closed",
	parked:    "waiting parked asking closed",
	returning: "waiting closed",
	givenUp:   "running closed",
	running:   "",
	closed:    "",
}

var states = map[string]State{"due": {name: due}, "waiting": {name: waiting}, "asking": {name: asking}, "unsure": {name: unsure}, "parked": {name: parked},
	"returning": {name: returning}, "givenUp": {name: givenUp}, "running": {name: running}, "closed": {name: closed}}

// TestTransitions: of all pairs of states exactly those that the rules name are a transition. Any other is refused.
func TestTransitions(t *testing.T) {
	for name, from := range states {
		named := map[string]bool{}
		var n string
		for rest := allowed[from.name]; rest != ""; {
			read, _ := fmt.Sscan(rest, &n)
			if read == 0 {
				break
			}
			named[n] = true
			rest = rest[min(len(n)+1, len(rest)):]
		}
		for other, to := range states {
			if got := moves(t, from, to); got != named[other] {
				t.Errorf("from %s to %s: %v", name, other, got)
			}
		}
	}
}

// moves returns whether a tick goes from one state to another, and checks that a refusal leaves it where it is, and is reported.
func moves(t *testing.T, from, to State) bool {
	t.Helper()
	told := 0
	a := &Agenda[any]{Refused: func(error) { told++ }}
	k := &Tick[any]{Job: &Job[any]{Rules: &Rules{Name: "j"}}, state: from}
	a.moveTo(k, to)
	if a.Refusals() == 0 {
		return k.state == to
	}
	if k.state != from || told != 1 {
		t.Errorf("refused: state %v, told %d times", k.state.name, told)
	}
	return false
}

// TestTickWalksThroughItsStates: each step of the agenda takes a tick where the rules say, and leaves it in the queue where it is to be asked for.
func TestTickWalksThroughItsStates(t *testing.T) {
	start := time.Unix(946684800, 0).UTC()
	send := func(a *Agenda[any], k *Tick[any]) {
		a.Take(start.Add(2*time.Hour), 1)
		k.ID = "id"
		a.Send(k, true, start)
	}
	steps := map[string]func(a *Agenda[any], k *Tick[any]){
		"send":   send,
		"ask":    func(a *Agenda[any], k *Tick[any]) { a.Ask(k, start, start) },
		"doubt":  func(a *Agenda[any], k *Tick[any]) { k.NoteSilence(); a.Doubt(k, start) },
		"shut":   func(a *Agenda[any], k *Tick[any]) { k.NoteAnswer(true, start); a.AskSoon(k, start, start) },
		"park":   func(a *Agenda[any], k *Tick[any]) { k.NoteAnswer(false, start); a.Park(k, start) },
		"grant":  func(a *Agenda[any], k *Tick[any]) { a.Grant(k) },
		"return": func(a *Agenda[any], k *Tick[any]) { k.NoteAnswer(false, start); a.Return(k) },
		"give":   func(a *Agenda[any], k *Tick[any]) { a.GiveUp(k, true) },
		"close":  func(a *Agenda[any], k *Tick[any]) { a.Close(k) },
		"wake":   func(a *Agenda[any], k *Tick[any]) { a.Wake(k.Job, 1, start) },
	}
	for _, tc := range []struct {
		walk   []string
		want   stateName
		queued bool // by when it is to be asked for
		open   bool
	}{
		{nil, due, true, true},
		{[]string{"ask"}, due, true, true},
		{[]string{"park"}, parked, true, true}, // until somebody has to settle it
		{[]string{"park", "wake"}, waiting, true, true},
		{[]string{"close"}, closed, false, false},
		{[]string{"give"}, closed, false, false},
		{[]string{"send"}, asking, false, true},
		{[]string{"send", "shut"}, waiting, true, true},
		{[]string{"send", "park"}, parked, true, true},
		{[]string{"send", "park", "send"}, asking, false, true},
		{[]string{"send", "doubt"}, unsure, true, true},
		{[]string{"send", "doubt", "ask"}, unsure, true, true},
		{[]string{"send", "doubt", "send"}, asking, false, true},
		{[]string{"send", "doubt", "send", "shut"}, waiting, true, true},
		{[]string{"send", "doubt", "close"}, closed, false, false},
		{[]string{"send", "grant"}, running, false, false},
		{[]string{"send", "return"}, returning, false, true},
		{[]string{"send", "return", "ask"}, waiting, true, true},
		{[]string{"send", "return", "close"}, closed, false, false},
		{[]string{"send", "give"}, givenUp, false, false},
		{[]string{"send", "give", "grant"}, running, false, false},
		{[]string{"send", "give", "close"}, closed, false, false},
	} {
		j := everySecond(t)
		j.StartDeadline = time.Hour
		a := Agenda[any]{Turn: func(*Job[any], time.Time) time.Duration { return 0 }}
		k := a.Open(j, InstantsOf(j.Spec, start), start)
		for _, s := range tc.walk {
			steps[s](&a, k)
		}
		if a.Refusals() != 0 {
			t.Errorf("%v: a step was refused", tc.walk)
		}
		if want := tc.want == parked && len(tc.walk) > 1; (a.Starved() == 1) != want {
			t.Errorf("%v: %d wait for a place, want %v", tc.walk, a.Starved(), want)
		}
		_, queued := k.inAsks.When()
		if got, open := k.state.name, len(j.Open) == 1; got != tc.want || queued != tc.queued || open != tc.open {
			t.Errorf("%v: %v, queued %v, open %v; want %v, %v, %v", tc.walk, got, queued, open, tc.want, tc.queued, tc.open)
		}
	}
}

// TestTrouble: the outage in which the deadline has passed counts, not a later one, and not that the server came back without its data; else the newest trouble.
func TestTrouble(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(1_800_000_000+int64(s), 0) }
	silent := func(from int) func(*Tick[any]) {
		return func(k *Tick[any]) { k.Silent(at(from)); k.Cause.Reason = k.WhyUnanswered(false) }
	}
	stood := func(k *Tick[any]) { k.Cause.Reason = k.WhyUnanswered(true) }
	answered := func(s int) func(*Tick[any]) { return func(k *Tick[any]) { k.NoteAnswer(false, at(s)) } }
	shut := func(s int) func(*Tick[any]) {
		return func(k *Tick[any]) { k.NoteAnswer(true, at(s)); k.Undecided("shut", at(s)) }
	}
	for name, tc := range map[string]struct {
		steps []func(*Tick[any])
		want  string
	}{
		"none":                        {nil, ""},
		"an outage that goes on":      {[]func(*Tick[any]){silent(1), silent(3)}, "from 1 to 99"},
		"one that is over":            {[]func(*Tick[any]){silent(1), answered(20)}, "from 1 to 20"},
		"over, and another one":       {[]func(*Tick[any]){silent(1), answered(20), silent(30), answered(40)}, "from 1 to 20"},
		"two before the deadline":     {[]func(*Tick[any]){silent(1), answered(3), silent(5), answered(40)}, "from 5 to 40"},
		"data that is gone":           {[]func(*Tick[any]){shut(5)}, "shut"},
		"data that is gone too late":  {[]func(*Tick[any]){silent(1), shut(20)}, "from 1 to 20"},
		"data that is gone in time":   {[]func(*Tick[any]){silent(1), shut(5)}, "shut"},
		"gone, and then it is silent": {[]func(*Tick[any]){shut(2), silent(5)}, "from 5 to 99"},
		"a replica that stood still":  {[]func(*Tick[any]){stood}, ""},
	} {
		j := &Job[any]{Rules: &Rules{}}
		k := &Tick[any]{Job: j, Rules: j.Rules, Deadline: at(10), Cause: Cause{Reason: run.ReasonLate}}
		j.Open = []*Tick[any]{k}
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
