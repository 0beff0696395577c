package scheduler

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/selffence"
)

// A guard stops a run at its timeout, near the end of a drain, and before the end of a lease that is not renewed. After a timeout or in a drain, the
// lease is renewed until the run is dead, so the run has its whole KillGrace. Only the loss of the lease shortens the grace.
type guard struct {
	*executor
	job    *Job
	term   *election.Term  // nil without a lock, or if Job.OutlivesLease is set
	cancel context.Context // ends when the caller requests the stop of the run
	asked  *election.Term  // the term that reports requests to stop the run; nil without a lock
	start  *start
	life   *life
	stop   context.CancelCauseFunc
	kill   context.CancelFunc
}

// watchRun waits for the end of a run and returns the cause of its stop, or nil if it ended by itself. If the run must stop before its work has
// begun, watchRun calls it off and returns without waiting for the Runner, which may hang.
func (g *guard) watchRun(over <-chan struct{}) (cause error) {
	var timeout, grace, drain, lease, begin alarm
	defer stopAll(&timeout, &grace, &drain, &lease, &begin)
	g.setAlarms(&timeout, &begin, &lease)
	draining, canceled, asked := g.draining.Done(), g.cancel.Done(), stopRequested(g.asked)
	halt := func(why error, within time.Duration) {
		if cause == nil {
			cause = why
			g.life.moveTo(phase{name: phaseStopping, why: why})
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
			g.killAndWait(over)
			return cause
		case <-g.termEnded():
			halt(ErrLost, 0)
			g.killAndWait(over)
			return cause
		case <-begin.C:
			if !g.start.callOff() && g.start.markOverdue() {
				begin.Reset(startConfirmGrace)
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
			} else { // the run may have been stopped for another reason before
				g.kill()
			}
		case <-lease.C:
			lease.Reset(g.checkLease(halt))
		}
	}
	g.kill()
	return cause
}

// setAlarms sets the alarms of a new run.
func (g *guard) setAlarms(timeout, begin, lease *alarm) {
	if g.job.Timeout > 0 {
		timeout.Reset(g.job.Timeout)
	}
	if g.job.StartTimeout > 0 {
		begin.Reset(g.job.StartTimeout)
	}
	if g.term != nil {
		do, again := g.fenceLimits().Check(g.term.Remaining())
		if do != selffence.GoOn {
			again = 0 // checkLease stops or kills the run at once
		}
		lease.Reset(again)
	}
}

// killAndWait kills the run and waits for its end. It does not wait for a run that has not begun.
func (g *guard) killAndWait(over <-chan struct{}) {
	g.kill()
	if !g.start.callOff() {
		<-over
	}
}

// termEnded returns a channel that is closed when the term ends, or nil if the run has no term.
func (g *guard) termEnded() <-chan struct{} {
	if g.term == nil {
		return nil
	}
	return g.term.Context().Done()
}

// hasLapsed reports whether the term of a run has ended. It returns false if the run may outlive its lease.
func hasLapsed(job *Job, term *election.Term) bool {
	return term != nil && !job.OutlivesLease && (term.Context().Err() != nil || term.Remaining() <= 0)
}

func (g *guard) fenceLimits() selffence.Limits {
	return selffence.Limits{Lease: g.job.Lease, Grace: g.job.KillGrace}
}

// checkLease stops the run when its lease is about to end, and kills it before the end. It returns the time until the next check.
func (g *guard) checkLease(halt func(error, time.Duration)) (again time.Duration) {
	do, again := g.fenceLimits().Check(g.term.Remaining())
	switch do {
	case selffence.Stop:
		halt(ErrLost, again)
	case selffence.Kill:
		halt(ErrLost, 0)
		g.kill()
	}
	return again
}

// An alarm is a timer that is created on first use. Most alarms are never set, and there may be many runs.
type alarm struct {
	C     <-chan time.Time // nil until first use
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

// whyStopped returns ErrCanceled or ErrReplaced if the holder of a term was asked to stop, or nil if it was not.
func whyStopped(term *election.Term) error {
	if term == nil {
		return nil
	}
	switch term.StopReason() {
	case "":
		return nil
	case election.StopReplaced:
		return ErrReplaced
	}
	return ErrCanceled
}

// stopRequested returns a channel that is closed when the holder of a term is asked to stop.
func stopRequested(term *election.Term) <-chan struct{} {
	if term == nil {
		return nil
	}
	return term.Stopping()
}
