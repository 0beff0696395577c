package warden

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// actor is a target that notes the calls to it, and when.
type actor struct {
	now   *time.Duration
	notes []string
	alive bool // after a strike, too
}

func (a *actor) note(what string) { a.notes = append(a.notes, fmt.Sprintf("%s %v", what, *a.now)) }

func (a *actor) setLeader(leader int, _ uint64) { a.note(fmt.Sprintf("leader %d", leader)) }
func (a *actor) forgetLeader()                  { a.note("forget") }
func (a *actor) terminate()                     { a.note("TERM") }
func (a *actor) killKnown()                     { a.note("KILL") }
func (a *actor) killRest() (clean bool)         { return !a.alive }

// first are the notes up to the first KILL: the later kills only make sure of it.
func (a *actor) first() string {
	i := slices.IndexFunc(a.notes, func(n string) bool { return strings.HasPrefix(n, "KILL") })
	if i < 0 {
		return strings.Join(a.notes, ", ")
	}
	return strings.Join(a.notes[:i+1], ", ")
}

// step is a message that is read at an instant.
type step struct {
	at time.Duration
	message
}

// play judges a run at each instant at which the watchlist wants it, and at each message, up to an end.
func play(m message, until time.Duration, steps ...step) *actor {
	now := time.Duration(0)
	a := &actor{now: &now}
	w := watchlist{runs: map[uint64]*entry{}, tell: func(verb, uint64, *entry) {}}
	m.Run = 1
	w.add(m, a)
	for {
		w.judgeRuns(now)
		next, ok := w.nextAction()
		if !ok || next > until {
			next = until
		}
		if len(steps) > 0 && steps[0].at <= next {
			now = steps[0].at
			steps[0].Run = 1
			w.applyMessage(steps[0].message, now)
			steps = steps[1:]
			continue
		}
		if next == until {
			return a
		}
		now = next
	}
}

const sec = time.Second

// TestTableOfDeadlines lists when the warden sends SIGTERM and SIGKILL for each lease, grace and extension.
// Promise: P3
func TestTableOfDeadlines(t *testing.T) {
	run := func(lease, grace time.Duration) message {
		return message{Deadline: lease, Lease: lease, Grace: grace}
	}
	none := message{Lease: 30 * sec, Grace: 10 * sec}
	moved := func(at, deadline time.Duration) step {
		return step{at, message{Verb: extend, At: at, Deadline: deadline}}
	}
	for _, tc := range []struct {
		name  string
		run   message
		steps []step
		want  string
	}{
		{"a grace, then the kill before the deadline", run(30*sec, 5*sec), nil, "TERM 25s, KILL 29.25s"},
		{"a grace of more than a third of the lease", run(30*sec, time.Minute), nil, "TERM 20s, KILL 29.25s"},
		{"a grace that is shorter than the margin", run(30*sec, sec/2), nil, "KILL 29.25s"},
		{"no grace", run(30*sec, 0), nil, "KILL 29.25s"},
		{"a short lease", run(sec, 10*sec), nil, "TERM 666.666667ms, KILL 975ms"},
		{"no deadline", none, nil, ""},
		{"no deadline, and an extension that means nothing", none, []step{moved(sec, 2*sec)}, ""},
		{"extended", run(30*sec, 5*sec), []step{moved(10*sec, 40*sec)}, "TERM 35s, KILL 39.25s"},
		{"extended after the TERM", run(30*sec, 5*sec), []step{moved(26*sec, 56*sec)}, "TERM 25s, KILL 55.25s"},
		{"extended at the last moment", run(30*sec, 5*sec), []step{moved(29*sec, 59*sec)}, "TERM 25s, KILL 58.25s"},
		{"extended too late", run(30*sec, 5*sec), []step{moved(29300*time.Millisecond, 59*sec)}, "TERM 25s, KILL 29.25s"},
		{"extended too late, and read before anybody looked", run(30*sec, 5*sec),
			[]step{{0, message{Verb: extend, At: 29250 * time.Millisecond, Deadline: 59 * sec}}}, "KILL 0s"},
		{"extended in time, and read late", run(30*sec, 5*sec),
			[]step{{24 * sec, message{Verb: extend, At: 10 * sec, Deadline: 40 * sec}}}, "TERM 35s, KILL 39.25s"},
		{"an extension to less", run(30*sec, 5*sec), []step{moved(10*sec, 20*sec)}, "TERM 25s, KILL 29.25s"},
		{"an old extension after a newer one", run(30*sec, 5*sec), []step{moved(10*sec, 40*sec), moved(9*sec, 39*sec)}, "TERM 35s, KILL 39.25s"},
		{"told to stop by the replica", run(30*sec, 5*sec), []step{{2 * sec, message{Verb: told}}}, "KILL 29.25s"},
		{"taken over from another warden, told to stop already", message{Deadline: 30 * sec, Lease: 30 * sec, Grace: 5 * sec, Told: true, PID: 7}, nil,
			"leader 7 0s, KILL 29.25s"},
		{"taken over too late", message{Deadline: -sec, Lease: 30 * sec, Grace: 5 * sec}, nil, "KILL 0s"},
		{"released", run(30*sec, 5*sec), []step{{26 * sec, message{Verb: release}}}, "TERM 25s, forget 26s"},
		{"reaped, but not released", run(30*sec, 5*sec), []step{{2 * sec, message{Verb: reap}}}, "forget 2s, TERM 25s, KILL 29.25s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := play(tc.run, 100*sec, tc.steps...).first(); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// A replica that wakes after the deadline may start its command all the same.
func TestLeaderThatBeginsAfterTheDeadlineIsKilledAtOnce(t *testing.T) {
	a := play(message{Deadline: 10 * sec, Lease: 10 * sec}, 30*sec, step{20 * sec, message{Verb: started, PID: 7, Start: 1}})
	i := slices.Index(a.notes, "leader 7 20s")
	if i < 0 || len(a.notes) == i+1 || a.notes[i+1] != "KILL 20s" {
		t.Errorf("it did this: %v", a.notes)
	}
}

func TestNothingRevivesALateRun(t *testing.T) {
	a := play(message{Deadline: 10 * sec, Lease: 10 * sec}, 30*sec, step{9900 * time.Millisecond, message{Verb: extend, At: 2 * sec, Deadline: 50 * sec}})
	if got := a.first(); got != "KILL 9.75s" {
		t.Errorf("it did this: %v", a.notes)
	}
}

// A process that does not die at once is killed again and again, less and less often.
func TestKillIsRepeatedUntilNothingIsFound(t *testing.T) {
	now := time.Duration(0)
	a := &actor{now: &now, alive: true}
	w := watchlist{runs: map[uint64]*entry{}, tell: func(verb, uint64, *entry) {}}
	w.add(message{Run: 1}, a)
	w.killAll(now)
	const last = 5 * sec
	for now < last {
		w.judgeRuns(now)
		if w.allDead() {
			t.Fatal("over while it lives")
		}
		next, ok := w.nextAction()
		if !ok || next <= now || next > now+lastLook {
			t.Fatalf("after %v, next at %v, %v", now, next, ok)
		}
		now = next
	}
	if n := len(a.notes); n < int(last/lastLook) || n > int(last/lastLook)+20 {
		t.Errorf("killed %d times in %v", n, last)
	}
	a.alive = false
	for i := 0; !w.allDead(); i++ {
		if i > cleanLooks {
			t.Fatal("not over although nothing is left")
		}
		now, _ = w.nextAction()
		w.judgeRuns(now)
	}
	if _, ok := w.nextAction(); ok {
		t.Error("there is something to wait for")
	}
}

func TestStopAndKillAreReportedOnce(t *testing.T) {
	now, told := time.Duration(0), []string{}
	w := watchlist{runs: map[uint64]*entry{}, tell: func(what verb, run uint64, _ *entry) { told = append(told, fmt.Sprint(what, run)) }}
	w.add(message{Run: 7, Deadline: sec, Lease: sec, Grace: sec / 4}, &actor{now: &now})
	for now < 5*sec {
		w.judgeRuns(now)
		now += 10 * time.Millisecond
	}
	if want := []string{"stopped7", "killed7"}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
}
