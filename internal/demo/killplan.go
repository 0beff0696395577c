package demo

import (
	"time"

	"github.com/cronclave/cronclave/internal/config"
)

// plan is the fault that the demo causes. The demo kills a replica that runs a job, the next tick of that job runs on another replica (the take-over), and
// then the demo starts the killed replica again.
type plan struct {
	job      string        // job during whose run the kill happens; "" for any job
	notUntil time.Time     // earliest time of the kill
	running  time.Duration // minimum duration of the run before the kill
	hurry    time.Time     // from this time on, the minimum duration does not apply
	end      time.Time     // end of the demo; the take-over must come before it

	victim     run // run that the kill interrupted; zero before the kill
	lease      time.Duration
	killedAt   time.Time
	takeOver   run // first run of a later tick on another replica; zero before it starts
	takeOverAt time.Time
	marked     bool // the take-over was printed
	returned   bool // the replica was started again
}

// comfort is the minimum time between the take-over and the end of the demo, so that the viewer can see the take-over.
const comfort = time.Second

// shouldHit reports whether to kill the replica of a run now. It returns false if too little time is left for the take-over.
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

// recordKill records the run that the kill interrupted.
func (p *plan) recordKill(r run, job *config.Job, now time.Time) {
	p.victim, p.lease, p.killedAt = r, job.Lease, now
}

// isTakeOver reports whether a run that has started is the take-over. If so, it records the run.
func (p *plan) isTakeOver(r *run) bool {
	if !p.killed() || p.takeOver.ID != "" || r.Job != p.victim.Job || r.Replica == p.victim.Replica || !r.Tick.After(p.victim.Tick) {
		return false
	}
	p.takeOver, p.takeOverAt = *r, r.Started
	return true
}

// shouldReturn reports whether to start the killed replica again. This is due a second after the take-over, or when the take-over is overdue, but not in the
// last two seconds of the demo. It returns true only once.
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

// quietTime returns the first time, not before from, that is half a second or more away from every tick. If there is none within three seconds, it returns
// the time with the greatest distance.
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

// roomAt returns the time between at and the nearest tick of any job, at most a minute.
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

// lastDue returns the latest tick of a job that may start at the given time or earlier, with its jitter.
func lastDue(job *config.Job, at time.Time) time.Time {
	tick := job.Spec.Prev(at.Add(time.Nanosecond))
	for !tick.IsZero() && dueAt(job, tick).After(at) {
		tick = job.Spec.Prev(tick)
	}
	return tick
}
