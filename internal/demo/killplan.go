package demo

import (
	"time"

	"github.com/cronclave/cronclave/internal/config"
)

// plan is the fault that a demo causes: a replica that runs a job is killed, the next tick of that job runs on another one, and the replica starts
// again.
type plan struct {
	job      string        // job of the killed run; "" for any
	notUntil time.Time     // earliest time of the kill
	running  time.Duration // least duration of the run before the kill
	hurry    time.Time     // from this time on, any duration is enough
	end      time.Time     // of the demo: the take-over must come before

	victim     run // zero before the kill
	lease      time.Duration
	killedAt   time.Time
	takeOver   run // first run of a later tick on another replica; zero before its start
	takeOverAt time.Time
	marked     bool // the take-over was shown
	returned   bool // the replica was started again
}

// comfort is the least time between the take-over and the end of the demo, so that the take-over can be seen.
const comfort = time.Second

// shouldHit reports whether a run is to be hit now. It is not if too little time is left for the take-over.
func (p *plan) shouldHit(r *run, job *config.Job, now time.Time) bool {
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

// recordKill records the run whose replica was killed.
func (p *plan) recordKill(r run, job *config.Job, now time.Time) {
	p.victim, p.lease, p.killedAt = r, job.Lease, now
}

// isTakeOver reports whether a starting run is the take-over, and records it.
func (p *plan) isTakeOver(r *run) bool {
	if !p.killed() || p.takeOver.ID != "" || r.Job != p.victim.Job || r.Replica == p.victim.Replica || !r.Tick.After(p.victim.Tick) {
		return false
	}
	p.takeOver, p.takeOverAt = *r, r.Started
	return true
}

// shouldReturn reports whether to start the killed replica again. It is started a moment after the take-over, or when the take-over is overdue, but not in
// the last moments of the demo.
func (p *plan) shouldReturn(now time.Time) bool {
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

// quietTime returns a time from a given one on that is half a second away from every tick. If there is none within three seconds, it returns the best
// one.
func quietTime(jobs []*config.Job, from time.Time) time.Time {
	const enough, step, span = 500 * time.Millisecond, 100 * time.Millisecond, 3 * time.Second
	best, widest := from, time.Duration(-1)
	for at := from; at.Before(from.Add(span)) && widest < enough; at = at.Add(step) {
		if room := roomAt(jobs, at); room > widest {
			best, widest = at, room
		}
	}
	return best
}

// roomAt returns the distance to the nearest tick.
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

// lastDue returns the latest tick of a job that may have started by an instant.
func lastDue(job *config.Job, at time.Time) time.Time {
	tick := job.Spec.Prev(at.Add(time.Nanosecond))
	for !tick.IsZero() && dueAt(job, tick).After(at) {
		tick = job.Spec.Prev(tick)
	}
	return tick
}
