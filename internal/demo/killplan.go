package demo

import (
	"time"

	"github.com/cronclave/cronclave/internal/config"
)

// plan is what a demo does to its replicas: one that runs a job is killed, the next tick of that job runs elsewhere, and
// the replica starts again.
type plan struct {
	job      string        // whose run is hit; "" for any
	notUntil time.Time     // when it may happen at the earliest
	running  time.Duration // how long a run has lasted when it is hit
	hurry    time.Time     // from when on it need not have lasted so long
	end      time.Time     // of the demo: the take-over has to come before

	victim     run // zero before the kill
	lease      time.Duration
	killedAt   time.Time
	takeOver   run // the first run of a later tick elsewhere; zero before it has started
	takeOverAt time.Time
	marked     bool // the take-over was shown
	returned   bool // the replica was started again
}

// comfort is how long before the end the take-over should begin, so that there is something to see.
const comfort = time.Second

// hits returns whether this is the run to hit, and now the time: only if there is time left for the take-over.
func (p *plan) hits(r *run, job *config.Job, now time.Time) bool {
	if p.killed() || now.Before(p.notUntil) || p.job != "" && r.Job != p.job {
		return false
	}
	if lasted := now.Sub(r.Started); lasted < p.running && now.Before(p.hurry) {
		return false
	}
	next := job.Spec.Next(now.Add(job.Lease))
	return !next.IsZero() && next.Add(comfort).Before(p.end)
}

func (p *plan) killed() bool { return !p.killedAt.IsZero() }

// hit remembers whose replica was killed.
func (p *plan) hit(r run, job *config.Job, now time.Time) {
	p.victim, p.lease, p.killedAt = r, job.Lease, now
}

// isTakeOver returns whether a run that starts is the take-over.
func (p *plan) isTakeOver(r *run) bool {
	if !p.killed() || p.takeOver.ID != "" || r.Job != p.victim.Job || r.Replica == p.victim.Replica || !r.Tick.After(p.victim.Tick) {
		return false
	}
	p.takeOver, p.takeOverAt = *r, r.Started
	return true
}

// returns returns whether the killed replica should start again: a moment after the take-over, or when that is overdue;
// and not for the last moments.
func (p *plan) returns(now time.Time) bool {
	const moment, patience, worthwhile = time.Second, 15 * time.Second, 2 * time.Second
	if !p.killed() || p.returned || now.Add(worthwhile).After(p.end) {
		return false
	}
	due := p.killedAt.Add(p.lease + patience)
	if p.takeOver.ID != "" {
		due = p.takeOverAt.Add(moment)
	}
	p.returned = !now.Before(due)
	return p.returned
}

// quiet is a moment from an instant on that is between ticks: the first that is half a second away from all of them, or
// the best of the next three seconds.
func quiet(jobs []*config.Job, from time.Time) time.Time {
	const enough, step, span = 500 * time.Millisecond, 100 * time.Millisecond, 3 * time.Second
	best, widest := from, time.Duration(-1)
	for at := from; at.Before(from.Add(span)) && widest < enough; at = at.Add(step) {
		if room := roomAt(jobs, at); room > widest {
			best, widest = at, room
		}
	}
	return best
}

// roomAt is how far away the nearest tick is.
func roomAt(jobs []*config.Job, at time.Time) time.Duration {
	room := time.Minute
	for _, j := range jobs {
		if next := j.Spec.Next(at); !next.IsZero() {
			room = min(room, next.Sub(at))
		}
		if last := lastDue(j, at); !last.IsZero() {
			room = min(room, at.Sub(last))
		}
	}
	return room
}

// lastDue is the newest tick of a job that may have started by an instant.
func lastDue(job *config.Job, at time.Time) time.Time {
	tick := job.Spec.Prev(at.Add(time.Nanosecond))
	for !tick.IsZero() && dueAt(job, tick).After(at) {
		tick = job.Spec.Prev(tick)
	}
	return tick
}
