package warden

import (
	"time"

	"github.com/cronclave/cronclave/internal/selffence"
)

// target is the set of processes of one run.
type target interface {
	setLeader(leader int, start uint64)
	// forgetLeader forgets the PID of the process group's leader, which must not be signalled any more.
	forgetLeader()
	terminate()
	// killKnown sends SIGKILL to the cgroup and the process group.
	killKnown()
	// killRest sends SIGKILL to the processes of the run that killKnown can't find. clean reports whether no process was left. In that case killRest has also
	// removed the cgroup of the run, if there is one, so that no further process can start in it.
	killRest() (clean bool)
}

type entry struct {
	name, job string
	target    target
	deadline  time.Duration // time on CLOCK_BOOTTIME; 0 means none
	limits    selffence.Limits
	told      bool // the replica or the helper has sent SIGTERM

	late  bool          // whether the run must be killed; an extension has no effect any more
	again time.Duration // time of the next check of a late run
	pause time.Duration
	clean int // number of successive checks that found no living process
}

func (e *entry) killAt() time.Duration { return e.deadline - e.limits.WardenKill() }
func (e *entry) stopAt() time.Duration { return e.deadline - e.limits.WardenStop() }

// watchlist stops and kills runs that are near their deadlines. It reads no clock: callers pass the time. Only one goroutine uses it.
type watchlist struct {
	runs map[uint64]*entry
	tell func(what verb, run uint64, e *entry) // called after a run was stopped or killed because of its deadline
}

const (
	// cleanLooks is the number of successive checks that must find no process of a late run before the run counts as dead. A single scan can miss a process
	// that is being forked.
	cleanLooks = 3
	// The pauses between two checks of a late run double from firstLook to lastLook.
	firstLook, lastLook = 5 * time.Millisecond, 200 * time.Millisecond
)

// add adds a run. If an earlier helper watched the run, the message may also contain the leader, and report that SIGTERM was sent.
func (w *watchlist) add(m message, t target) {
	e := &entry{name: m.Name, job: m.Job, target: t, deadline: m.Deadline, limits: selffence.Limits{Lease: m.Lease, Grace: m.Grace}, told: m.Told}
	w.runs[m.Run] = e
	if m.PID != 0 {
		e.target.setLeader(m.PID, m.Start)
	}
}

func (w *watchlist) applyMessage(m message, now time.Duration) {
	e := w.runs[m.Run]
	if e == nil {
		return
	}
	switch m.Verb {
	case started:
		e.target.setLeader(m.PID, m.Start)
		if e.late {
			w.killRun(e, now)
		}
	case extend:
		e.extendDeadline(m.Deadline, m.At)
	case told:
		e.told = true
	case reap:
		e.target.forgetLeader()
	case release:
		e.target.forgetLeader()
		delete(w.runs, m.Run)
	}
}

// extendDeadline moves the deadline. at is the time at which the replica called [Ward.Extend]. If the run should have been killed before that time, the
// extension is too late and the run is killed.
func (e *entry) extendDeadline(deadline, at time.Duration) {
	switch {
	case e.late || e.deadline == 0 || deadline <= e.deadline:
	case at >= e.killAt():
		e.late = true
	default:
		e.deadline = deadline
	}
}

// judgeRuns sends SIGTERM or SIGKILL to each run for which the signal is due, and checks killed runs for remaining processes.
func (w *watchlist) judgeRuns(now time.Duration) {
	for run, e := range w.runs {
		switch {
		case e.deadline == 0:
		case e.pause == 0 && (e.late || now >= e.killAt()):
			w.killRun(e, now)
			w.tell(killed, run, e)
		case !e.told && now >= e.stopAt():
			e.told = true
			e.target.terminate()
			w.tell(stopped, run, e)
		}
	}
	for _, e := range w.runs {
		if e.pause > 0 && e.clean < cleanLooks && now >= e.again {
			e.checkDead(now)
		}
	}
}

// killRun kills a run, and schedules checks for remaining processes.
func (w *watchlist) killRun(e *entry, now time.Duration) {
	e.late, e.told, e.clean, e.pause, e.again = true, true, 0, firstLook, now
	e.target.killKnown()
}

func (e *entry) checkDead(now time.Duration) {
	e.target.killKnown()
	if e.target.killRest() {
		e.clean++
	} else {
		e.clean = 0
	}
	e.pause = min(2*e.pause, lastLook)
	e.again = now + e.pause
}

func (w *watchlist) killAll(now time.Duration) {
	for _, e := range w.runs {
		if e.pause == 0 {
			w.killRun(e, now)
		}
		e.deadline = 0
	}
}

// nextAction returns the time at which [watchlist.judgeRuns] must be called again. ok is false if no call is needed.
func (w *watchlist) nextAction() (at time.Duration, ok bool) {
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

func (w *watchlist) allDead() bool {
	for _, e := range w.runs {
		if e.clean < cleanLooks {
			return false
		}
	}
	return true
}
