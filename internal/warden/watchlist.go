package warden

import (
	"time"

	"github.com/cronclave/cronclave/internal/selffence"
)

// target is the processes of one run.
type target interface {
	// begun is told of the leader of the run's process group, which was born at start (see [birth]).
	begun(leader int, start uint64)
	// forget gives the leader's number up: it is not signalled any more.
	forget()
	// terminate sends SIGTERM to all of them.
	terminate()
	// strike sends SIGKILL to those that can be named at once.
	strike()
	// sweep sends SIGKILL to all other processes of the run. It returns whether none was left, in which case none can start any more, as far as the
	// target can ensure that.
	sweep() (clean bool)
}

// entry is a run that is watched.
type entry struct {
	name, job string
	target    target
	deadline  time.Duration // by CLOCK_BOOTTIME; 0 for none
	limits    selffence.Limits
	told      bool // SIGTERM was sent, by whomever

	late  bool          // the time is up: nothing revives it
	again time.Duration // when a late run is looked at next
	pause time.Duration
	clean int // looks in a row that found nothing
}

func (e *entry) killAt() time.Duration { return e.deadline - e.limits.WardenKill() }
func (e *entry) stopAt() time.Duration { return e.deadline - e.limits.WardenStop() }

// watchlist decides which run is killed, and when. It does no more than that: the clock is passed in, and the targets do the killing. It belongs to
// one goroutine.
type watchlist struct {
	runs map[uint64]*entry
	tell func(what verb, run uint64, e *entry) // of each run that had to be stopped, and that had to be killed
}

const (
	// cleanLooks is how often in a row nothing must be found of a late run before it counts as dead. A single look at
	// all processes can miss one that is forked behind its back.
	cleanLooks = 3
	// The pauses between two looks at a late run grow from the first to the last.
	firstLook, lastLook = 5 * time.Millisecond, 200 * time.Millisecond
)

// add takes a run over, from another helper with all that has become of it.
func (w *watchlist) add(m message, t target) {
	e := &entry{name: m.Name, job: m.Job, target: t, deadline: m.Deadline, limits: selffence.Limits{Lease: m.Lease, Grace: m.Grace}, told: m.Told}
	w.runs[m.Run] = e
	if m.PID != 0 {
		e.target.begun(m.PID, m.Start)
	}
}

// apply does what the replica says of a run.
func (w *watchlist) apply(m message, now time.Duration) {
	e := w.runs[m.Run]
	if e == nil {
		return
	}
	switch m.Verb {
	case started:
		e.target.begun(m.PID, m.Start)
		if e.late {
			w.strike(e, now)
		}
	case extend:
		e.extend(m.Deadline, m.At)
	case told:
		e.told = true
	case reap:
		e.target.forget()
	case release:
		e.target.forget()
		delete(w.runs, m.Run)
	}
}

// extend moves the deadline. An extension that became known only after the run should have been killed revives nothing,
// also if it is read before the kill.
func (e *entry) extend(deadline, at time.Duration) {
	switch {
	case e.late || e.deadline == 0 || deadline <= e.deadline:
	case at >= e.killAt():
		e.late = true
	default:
		e.deadline = deadline
	}
}

// judge takes the actions that are due at an instant.
func (w *watchlist) judge(now time.Duration) {
	for run, e := range w.runs {
		switch {
		case e.deadline == 0:
		case e.pause == 0 && (e.late || now >= e.killAt()):
			w.strike(e, now)
			w.tell(killed, run, e)
		case !e.told && now >= e.stopAt():
			e.told = true
			e.target.terminate()
			w.tell(stopped, run, e)
		}
	}
	for _, e := range w.runs {
		if e.pause > 0 && e.clean < cleanLooks && now >= e.again {
			e.look(now)
		}
	}
}

// strike kills a run, and begins to look whether that was all.
func (w *watchlist) strike(e *entry, now time.Duration) {
	e.late, e.told, e.clean, e.pause, e.again = true, true, 0, firstLook, now
	e.target.strike()
}

func (e *entry) look(now time.Duration) {
	e.target.strike()
	if e.target.sweep() {
		e.clean++
	} else {
		e.clean = 0
	}
	e.pause = min(2*e.pause, lastLook)
	e.again = now + e.pause
}

// end kills all runs, whatever their deadlines are.
func (w *watchlist) end(now time.Duration) {
	for _, e := range w.runs {
		if e.pause == 0 {
			w.strike(e, now)
		}
		e.deadline = 0
	}
}

// next is the instant of the next [watchlist.judge]; ok is false if nothing is to be expected.
func (w *watchlist) next() (at time.Duration, ok bool) {
	earlier := func(t time.Duration) {
		if !ok || t < at {
			at, ok = t, true
		}
	}
	for _, e := range w.runs {
		switch {
		case e.pause > 0 && e.clean < cleanLooks:
			earlier(e.again)
		case e.pause > 0 || e.deadline == 0:
		default:
			earlier(e.killAt())
			if !e.told {
				earlier(e.stopAt())
			}
		}
	}
	return at, ok
}

// over returns whether nothing is left of any run.
func (w *watchlist) over() bool {
	for _, e := range w.runs {
		if e.clean < cleanLooks {
			return false
		}
	}
	return true
}

// restart has all runs looked at again.
func (w *watchlist) restart(now time.Duration) {
	for _, e := range w.runs {
		e.clean, e.pause, e.again = 0, firstLook, now
	}
}
