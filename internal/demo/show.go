package demo

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cronclave/cronclave/election"
)

// printIntroduction describes the demo before it begins.
func (d *demo) printIntroduction() {
	d.view.printLine(bold, "%d replicas (processes), embedded Redis: a trial, shares nothing with other machines", replicas)
	for _, w := range d.cfg.Warnings {
		d.view.printLine(yellow, "%s:%d:%d: warning: %s", w.File, w.Line, w.Column, w.Message)
	}
	if d.builtIn {
		for _, j := range d.jobs {
			d.view.printLine(faint, "  %-*s  %s", d.view.job, j.Name, j.Description)
		}
		if d.Length < Needs {
			d.view.printLine(yellow, "--for %v is short: a replica is killed only if the take-over fits in, for which %v are enough", d.Length, Needs)
		}
	}
	d.view.printHeader()
}

// watchReplicas runs the replicas and prints their events until the demo is over.
func (d *demo) watchReplicas(ctx context.Context) error {
	if err := d.registerJobs(ctx); err != nil {
		return err
	}
	d.planKill(time.Now())
	for i := range replicas {
		if err := d.fleet.startReplica(fmt.Sprintf("r%d", i+1)); err != nil {
			return err
		}
	}
	defer func() { d.until = time.Now().In(d.view.zone) }()
	const beat = 100 * time.Millisecond
	timer := time.NewTimer(beat)
	defer timer.Stop()
	for stop := quietTime(d.jobs, d.plan.end); d.fleet.alive > 0; {
		select {
		case e := <-d.fleet.events:
			d.handleEvent(&e)
			continue
		case <-d.Signals:
			d.cut = true
			return nil
		case <-timer.C:
			timer.Reset(beat)
		}
		now := time.Now()
		if err := d.actOnPlan(now); err != nil {
			return err
		}
		if now.Before(stop) {
			continue
		}
		if d.allDecided(ctx, now) || now.After(d.plan.end.Add(mostOvertime)) {
			return nil
		}
		stop = quietTime(d.jobs, now.Add(beat))
	}
	return nil
}

// mostOvertime is the maximum time by which a demo is extended until its last ticks are decided.
const mostOvertime = 10 * time.Second

// registerJobs registers the schedules in Redis. From then on ticks are due, whether replicas run or not.
func (d *demo) registerJobs(ctx context.Context) error {
	inquiries := make([]election.InspectRequest, len(d.jobs))
	now := time.Now()
	for i, j := range d.jobs {
		inquiries[i] = election.InspectRequest{Job: j.Name, Schedule: j.Spec.Digest(), Behind: j.Spec.Behind(now), ZoneRules: j.Spec.ZoneRules()}
	}
	d.from = map[string]time.Time{}
	for i, st := range d.elector.Inspect(ctx, inquiries) {
		if st.Err != nil {
			return fmt.Errorf("announce the schedules: %w", st.Err)
		}
		d.from[d.jobs[i].Name], _ = d.jobs[i].Spec.Instant(st.Decided)
	}
	return nil
}

// planKill sets the plan for the kill.
func (d *demo) planKill(begun time.Time) {
	d.plan = plan{notUntil: begun.Add(5 * time.Second), running: time.Second, hurry: begun.Add(d.Length / 4), end: begun.Add(d.Length)}
	if d.builtIn { // at a time between two ticks of the other jobs
		d.plan.job, d.plan.running, d.plan.hurry = victimJob, 1500*time.Millisecond, d.plan.end
		d.known.long[victimJob] = true
	}
}

// allDecided reports whether Redis has a decision about every tick that was due by now.
func (d *demo) allDecided(ctx context.Context, now time.Time) bool {
	inquiries := make([]election.InspectRequest, len(d.jobs))
	for i, j := range d.jobs {
		inquiries[i] = election.InspectRequest{Job: j.Name}
	}
	for i, st := range d.elector.Inspect(ctx, inquiries) {
		if st.Err != nil || st.Decided.Before(d.jobs[i].Spec.ID(lastDue(d.jobs[i], now))) {
			return false
		}
	}
	return true
}

// actOnPlan kills or starts a replica if the plan requires it now, and prints runs that have become long.
func (d *demo) actOnPlan(now time.Time) error {
	for _, r := range slices.Clone(d.known.open) {
		if now.Sub(r.Started) > longRun {
			d.showRunning(now, r)
		}
		d.killIfPlanned(now, r)
	}
	if d.plan.shouldReturn(now) {
		name := d.plan.victim.Replica
		if err := d.fleet.startReplica(name); err != nil {
			return err
		}
		d.view.printNote(now, bold, "%s starts again (pid %d)", name, d.fleet.pidOf(name))
	}
	return nil
}

// killIfPlanned kills the replica of a run if the plan requires it now.
func (d *demo) killIfPlanned(now time.Time, r *run) {
	if !d.plan.shouldHit(r, d.known.jobs[r.Job], now) {
		return
	}
	pid := d.fleet.pidOf(r.Replica)
	if err := d.fleet.killReplica(r.Replica); err != nil {
		d.view.printNote(now, red, "%v", err)
		return
	}
	d.plan.recordKill(*r, d.known.jobs[r.Job], now)
	d.view.printNote(now, red, "kill -9 %s (pid %d), which runs %s", r.Replica, pid, r.Job)
}

func (d *demo) showRunning(at time.Time, r *run) {
	if d.known.shown[r.ID] {
		return
	}
	d.known.shown[r.ID], d.known.long[r.Job] = true, true
	d.view.printRun(at, r, "running", d.takeOverMark(r))
}

// takeOverMark returns the remark for the run that is the take-over, once, and "" for all others.
func (d *demo) takeOverMark(r *run) string {
	if d.plan.takeOver.ID == "" || d.plan.takeOver.ID != r.ID || d.plan.marked {
		return ""
	}
	d.plan.marked = true
	return "<- take-over"
}

// handleEvent records an event of a replica and prints it.
func (d *demo) handleEvent(e *logLine) {
	d.fleet.noteEvent(e)
	switch {
	case e.ended:
		d.noteEnd(e)
	case e.Level == "", e.Stream != "": // not a log line, or output of a job
	case e.Message == saidStarted:
		r := d.known.startRun(e)
		d.plan.isTakeOver(r)
		if d.known.long[r.Job] {
			d.showRunning(e.At, r)
		}
		d.killIfPlanned(time.Now(), r)
	case e.Message == saidFinished:
		r := d.known.endRun(e, e.Outcome, true)
		d.view.printRun(e.At, r, cutTo(strings.TrimSpace(e.Outcome+" "+e.Reason), widestOutcome)+"  "+e.Took, d.takeOverMark(r))
	case e.Message == saidNotRun:
		d.known.noteIdle(e)
		d.view.printRun(e.At, &run{Job: e.Job, Tick: e.Tick, Replica: "-"}, e.Outcome, "")
	case e.Message == saidAbandoned:
		if !d.known.hasOutcome(e.RunID) { // if known, the run had ended, but its replica was killed before it wrote the record
			r := d.known.endRun(e, "abandoned", false)
			d.view.printRun(e.At, r, "abandoned", "")
		}
	default:
		d.showWarning(e)
	}
}

// showWarning prints other lines that are warnings or errors, unless the demo expects them.
func (d *demo) showWarning(e *logLine) {
	known := strings.HasPrefix(e.Message, "starting") || e.Message == "configuration warning" || // printed at the start
		strings.HasPrefix(e.Message, "second signal") || // caused by the demo
		e.from.leaving && (e.Message == "warden ends" || e.Message == "warden kills a run") || // of a replica that the demo has ended
		e.Message == "replica lost" // the demo killed that replica
	if e.Level != "warn" && e.Level != "error" || known {
		return
	}
	text := e.Message
	for _, more := range []string{e.Job, e.Reason, e.Error} {
		if more != "" {
			text += ": " + more
		}
	}
	d.view.printNote(e.At, yellow, "%s: %s", e.from.name, text)
}

// noteEnd prints that a replica has ended, if the demo did not end it.
func (d *demo) noteEnd(e *logLine) {
	if e.from.leaving {
		return
	}
	d.surprises++
	d.view.printNote(e.At, red, "%s has ended by itself: %s", e.from.name, e.Error)
	for _, words := range e.from.words {
		d.view.printNote(e.At, red, "%s: %s", e.from.name, words)
	}
}

// sameSignal is the time after the first signal in which further signals are ignored, as in `cronclave run`.
const sameSignal = time.Second

// drainReplicas drains the replicas and waits until they have ended. The next signal makes them kill their jobs, and the one after it kills the replicas.
func (d *demo) drainReplicas() {
	const grace = 10 * time.Second
	begun := time.Now()
	d.fleet.signalAll(syscall.SIGTERM)
	timeout := time.NewTimer(d.cfg.Replica.DrainTimeout + grace)
	defer timeout.Stop()
	if n := len(d.known.open); n > 0 && d.cut {
		d.view.printNote(begun, plain, "waiting for %s, at most %v; Ctrl-C again stops at once", countOf(n, "run"), d.cfg.Replica.DrainTimeout)
	}
	for insist := os.Signal(syscall.SIGTERM); d.fleet.alive > 0; {
		select {
		case e := <-d.fleet.events:
			d.handleEvent(&e)
		case <-d.Signals:
			d.cut = true
			if time.Since(begun) > sameSignal { // earlier ones come from the same key press: a terminal and a supervisor may both send a signal
				d.fleet.signalAll(insist)
				insist = os.Kill
			}
		case <-timeout.C:
			d.view.printNote(time.Now(), red, "the replicas do not end: killed")
			d.fleet.signalAll(os.Kill)
		}
	}
	d.endLeftovers()
}

// endLeftovers kills all replicas, and ends the processes that killed replicas have left behind.
func (d *demo) endLeftovers() {
	d.fleet.close()
	if n := endOrphans(); n > 0 {
		d.view.printNote(time.Now(), yellow, "ended what the killed replica had left behind: %d", n)
	}
}
