package run

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/selffence"
)

// A guard stops a run at its timeout, near the end of a drain, and before the end of a lease that is not renewed. After a timeout or in a drain, the
// lease is renewed until the run is dead, so the run has its whole KillGrace. Only the loss of the lease shortens the grace.
type guard struct {
	*execution
	term    *election.Term  // the lease that the run must not outlive; nil without a lock, or if Job.OutlivesLease is set
	lost    <-chan struct{} // closed when term has ended; nil if term is nil
	limits  selffence.Limits
	start   *start
	stopRun context.CancelCauseFunc
	kill    context.CancelFunc
}

// watchRun waits for the end of a run and returns the cause of its stop, or nil if it ended by itself. If the run must stop before its work has
// begun, watchRun calls it off and returns without waiting for the Runner, which may hang.
func (g *guard) watchRun(over <-chan struct{}) (cause error) {
	var timeout, grace, drain, lease, begin alarm
	defer stopAll(&timeout, &grace, &drain, &lease, &begin)
	g.setAlarms(&timeout, &begin, &lease)
	draining, canceled, asked := g.x.draining.Done(), g.stop.Done(), stopRequested(g.Term)
	halt := func(why error, within time.Duration) {
		if cause == nil {
			cause = why
			g.stopRun(why)
			grace.Reset(within)
		}
	}
	for cause == nil || !g.start.callOff() {
		select {
		case <-over:
			return cause
		case <-g.x.Abort.Done():
			halt(ErrDrain, 0)
			g.killAndWait(over)
			return cause
		case <-g.lost:
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
			halt(context.Cause(g.stop), g.Job.KillGrace)
		case <-asked:
			asked = nil
			halt(whyStopped(g.Term), g.Job.KillGrace)
		case <-timeout.C:
			halt(ErrTimeout, g.Job.KillGrace)
		case <-grace.C:
			g.kill()
		case <-draining:
			draining = nil
			drain.Reset(time.Until(g.x.limit) - g.Job.KillGrace)
		case <-drain.C:
			left := time.Until(g.x.limit)
			halt(ErrDrain, left)
			if left > 0 {
				drain.Reset(left)
			} else { // the run was already stopped for another reason, and its grace may last longer than the drain
				g.kill()
			}
		case <-lease.C:
			lease.Reset(g.checkLease(halt))
		}
	}
	g.kill()
	return cause
}

func (g *guard) setAlarms(timeout, begin, lease *alarm) {
	if g.Job.Timeout > 0 {
		timeout.Reset(g.Job.Timeout)
	}
	if g.Job.StartTimeout > 0 {
		begin.Reset(g.Job.StartTimeout)
	}
	if g.term != nil {
		do, again := g.limits.Check(g.term.Remaining())
		if do != selffence.GoOn {
			again = 0 // checkLease stops or kills the run at once
		}
		lease.Reset(again)
	}
}

// killAndWait kills the run and waits for its end. A try that is still preparing is called off, without a wait, because its Runner may hang.
func (g *guard) killAndWait(over <-chan struct{}) {
	g.kill()
	if !g.start.callOff() {
		<-over
	}
}

// checkLease stops the run when its lease is about to end, and kills it before the end. It returns the time until the next check.
func (g *guard) checkLease(halt func(error, time.Duration)) (again time.Duration) {
	do, again := g.limits.Check(g.term.Remaining())
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
