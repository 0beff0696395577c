package scheduler

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/selffence"
)

// guard stops a run in time: at its timeout, near the end of a drain, and before the end of a lease that is not
// renewed. After a timeout or a drain the lease is renewed through the whole grace; only its loss cuts the grace.
type guard struct {
	*executor
	job    *Job
	term   *election.Term  // nil without a lock, or if the run outlives it
	cancel context.Context // ends when the end of this run is requested
	asked  *election.Term  // so does it, through the server; nil without a lock
	start  *start
	life   *life
	stop   context.CancelCauseFunc
	kill   context.CancelFunc
}

// watch returns why it stopped the run; nil if the run was over before. A run that has not begun when it is to stop is called off: its runner, which may hang, is
// not waited for.
func (g *guard) watch(over <-chan struct{}) (cause error) {
	var timeout, grace, drain, lease, begin alarm
	defer stopAll(&timeout, &grace, &drain, &lease, &begin)
	g.setAlarms(&timeout, &begin, &lease)
	draining, canceled, asked := g.draining.Done(), g.cancel.Done(), stopping(g.asked)
	halt := func(why error, within time.Duration) {
		if cause == nil {
			cause = why
			g.life.to(phase{name: phaseStopping, why: why})
			g.stop(why)
			grace.Reset(within)
		}
	}
	for cause == nil || !g.start.callOff() {
		select {
		case <-over:
			return cause
		case <-g.abort.Done():
			halt(ErrDrain, 0)
			g.end(over)
			return cause
		case <-g.ended():
			halt(ErrLost, 0)
			g.end(over)
			return cause
		case <-begin.C:
			if g.start.awaitNews() {
				begin.Reset(lastWord)
			} else if !g.start.is(started) {
				halt(errStartTimeout, 0)
			}
		case <-canceled:
			canceled = nil
			halt(context.Cause(g.cancel), g.job.KillGrace)
		case <-asked:
			asked = nil
			halt(whyStopped(g.asked), g.job.KillGrace)
		case <-timeout.C:
			halt(ErrTimeout, g.job.KillGrace)
		case <-grace.C:
			g.kill()
		case <-draining:
			draining = nil
			drain.Reset(time.Until(g.limit) - g.job.KillGrace)
		case <-drain.C:
			left := time.Until(g.limit)
			halt(ErrDrain, left)
			if left > 0 {
				drain.Reset(left)
			} else { // whatever it was told to stop for before
				g.kill()
			}
		case <-lease.C:
			lease.Reset(g.checkLease(halt))
		}
	}
	g.kill()
	return cause
}

// setAlarms sets those that a run has from its start.
func (g *guard) setAlarms(timeout, begin, lease *alarm) {
	if g.job.Timeout > 0 {
		timeout.Reset(g.job.Timeout)
	}
	if g.job.StartTimeout > 0 {
		begin.Reset(g.job.StartTimeout)
	}
	if g.term != nil {
		do, again := g.limits().Check(g.term.Remaining())
		if do != selffence.GoOn {
			again = 0 // checkLease does it
		}
		lease.Reset(again)
	}
}

// end kills the run and waits for it, unless it has not begun.
func (g *guard) end(over <-chan struct{}) {
	g.kill()
	if !g.start.callOff() {
		<-over
	}
}

// ended is closed when the term is over.
func (g *guard) ended() <-chan struct{} {
	if g.term == nil {
		return nil
	}
	return g.term.Context().Done()
}

// lapsed returns whether a term is over that its run must not outlive.
func lapsed(job *Job, term *election.Term) bool {
	return term != nil && !job.OutlivesLease && (term.Context().Err() != nil || term.Remaining() <= 0)
}

func (g *guard) limits() selffence.Limits {
	return selffence.Limits{Lease: g.job.Lease, Grace: g.job.KillGrace}
}

// checkLease stops the run when its lease nears its end, and kills it before that. It returns when to check again.
func (g *guard) checkLease(halt func(error, time.Duration)) (again time.Duration) {
	do, again := g.limits().Check(g.term.Remaining())
	switch do {
	case selffence.Stop:
		halt(ErrLost, again)
	case selffence.Kill:
		halt(ErrLost, 0)
		g.kill()
	}
	return again
}

// alarm is a timer that is made when it is needed: most are not, and runs may be many.
type alarm struct {
	C     <-chan time.Time // nil until then
	timer *time.Timer
}

func (a *alarm) Reset(d time.Duration) {
	if a.timer != nil {
		a.timer.Reset(d)
		return
	}
	a.timer = time.NewTimer(d)
	a.C = a.timer.C
}

func stopAll(alarms ...*alarm) {
	for _, a := range alarms {
		if a.timer != nil {
			a.timer.Stop()
		}
	}
}
