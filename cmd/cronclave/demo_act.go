package main

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

// introduce says what is to come.
func (d *demo) introduce() {
	d.view.say(bold, "%d replicas (processes), embedded Redis: a trial, coordinates with nobody else", demoReplicas)
	for _, w := range d.cfg.Warnings {
		d.view.say(yellow, "%s:%d:%d: warning: %s", w.File, w.Line, w.Column, w.Message)
	}
	if d.builtIn {
		for _, j := range d.jobs {
			d.view.say(faint, "  %-*s  %s", d.view.job, j.Name, j.Description)
		}
		if d.length < demoNeeds {
			d.view.say(yellow, "--for %v is short: a replica is killed only if the take-over fits in, for which %v are enough", d.length, demoNeeds)
		}
	}
	d.view.header()
}

// perform shows the replicas at work, until it is over.
func (d *demo) perform(ctx context.Context) error {
	if err := d.announce(ctx); err != nil {
		return err
	}
	d.direct(time.Now())
	for i := range demoReplicas {
		if err := d.crew.start(fmt.Sprintf("r%d", i+1)); err != nil {
			return err
		}
	}
	defer func() { d.until = time.Now() }()
	const beat = 100 * time.Millisecond
	timer := time.NewTimer(beat)
	defer timer.Stop()
	for stop := quiet(d.jobs, d.plot.end); d.crew.alive > 0; {
		select {
		case e := <-d.crew.events:
			d.observe(&e)
			continue
		case <-d.signals:
			d.cut = true
			return nil
		case <-timer.C:
			timer.Reset(beat)
		}
		now := time.Now()
		if err := d.act(now); err != nil {
			return err
		}
		if now.Before(stop) {
			continue
		}
		if d.decided(ctx, now) || now.After(d.plot.end.Add(mostOvertime)) {
			return nil
		}
		stop = quiet(d.jobs, now.Add(beat))
	}
	return nil
}

// mostOvertime is how much later the demo may end to let the last ticks be decided.
const mostOvertime = 10 * time.Second

// announce makes the schedules known to the server: the ticks after that are due, whoever is there.
func (d *demo) announce(ctx context.Context) error {
	inquiries := make([]election.Inquiry, len(d.jobs))
	for i, j := range d.jobs {
		inquiries[i] = election.Inquiry{Job: j.Name, Schedule: j.Spec.Digest()}
	}
	d.from = map[string]time.Time{}
	for i, st := range d.elector.Survey(ctx, inquiries) {
		if st.Err != nil {
			return fmt.Errorf("announce the schedules: %w", st.Err)
		}
		d.from[d.jobs[i].Name] = st.Decided
	}
	return nil
}

// direct writes the plot.
func (d *demo) direct(begun time.Time) {
	d.plot = plot{notUntil: begun.Add(5 * time.Second), running: time.Second, hurry: begun.Add(d.length / 4), end: begun.Add(d.length)}
	if d.builtIn { // between two ticks of the others
		d.plot.job, d.plot.running, d.plot.hurry = demoVictim, 1500*time.Millisecond, d.plot.end
		d.scene.long[demoVictim] = true
	}
}

// decided tells whether nothing is open of the ticks that were due by now.
func (d *demo) decided(ctx context.Context, now time.Time) bool {
	inquiries := make([]election.Inquiry, len(d.jobs))
	for i, j := range d.jobs {
		inquiries[i] = election.Inquiry{Job: j.Name}
	}
	for i, st := range d.elector.Survey(ctx, inquiries) {
		if st.Err != nil || st.Decided.Before(lastDue(d.jobs[i], now)) {
			return false
		}
	}
	return true
}

// act does what is due of the plot, and shows runs that turn out to be long.
func (d *demo) act(now time.Time) error {
	for _, r := range slices.Clone(d.scene.open) {
		if now.Sub(r.Started) > longRun {
			d.showRunning(now, r)
		}
		d.strike(now, r)
	}
	if d.plot.returns(now) {
		name := d.plot.victim.Replica
		if err := d.crew.start(name); err != nil {
			return err
		}
		d.view.note(now, bold, "%s starts again (pid %d)", name, d.crew.pid(name))
	}
	return nil
}

// strike kills the replica of a run, if that is in the plot.
func (d *demo) strike(now time.Time, r *demoRun) {
	if !d.plot.hits(r, d.scene.jobs[r.Job], now) {
		return
	}
	pid := d.crew.pid(r.Replica)
	if err := d.crew.kill(r.Replica); err != nil {
		d.view.note(now, red, "%v", err)
		return
	}
	d.plot.hit(*r, d.scene.jobs[r.Job], now)
	d.view.note(now, red, "kill -9 %s (pid %d), which runs %s", r.Replica, pid, r.Job)
}

func (d *demo) showRunning(at time.Time, r *demoRun) {
	if d.scene.shown[r.ID] {
		return
	}
	d.scene.shown[r.ID], d.scene.long[r.Job] = true, true
	d.view.run(at, r, "running", d.remark(r))
}

// remark marks the take-over, once.
func (d *demo) remark(r *demoRun) string {
	if d.plot.heir.ID == "" || d.plot.heir.ID != r.ID || d.plot.marked {
		return ""
	}
	d.plot.marked = true
	return "<- take-over"
}

// observe shows what a replica tells.
func (d *demo) observe(e *logLine) {
	d.crew.note(e)
	switch {
	case e.ended:
		d.left(e)
	case e.Level == "", e.Stream != "": // no log, or what a job prints
	case e.Message == saidStarted:
		r := d.scene.start(e)
		d.plot.inherits(r)
		if d.scene.long[r.Job] {
			d.showRunning(e.At, r)
		}
		d.strike(time.Now(), r)
	case e.Message == saidFinished:
		r := d.scene.end(e, e.Outcome, true)
		d.view.run(e.At, r, cutTo(strings.TrimSpace(e.Outcome+" "+e.Reason), widestOutcome)+"  "+e.Took, d.remark(r))
	case e.Message == saidNotRun:
		d.scene.idle(e)
		d.view.run(e.At, &demoRun{Job: e.Job, Tick: e.Tick, Replica: "-"}, e.Outcome, "")
	case e.Message == saidAbandoned:
		if !d.scene.has(e.RunID) { // every survivor tells
			r := d.scene.end(e, "abandoned", false)
			d.view.run(e.At, r, "abandoned", "")
		}
	default:
		d.warn(e)
	}
}

// warn shows other lines that matter.
func (d *demo) warn(e *logLine) {
	known := strings.HasPrefix(e.Message, "starting") || e.Message == "configuration" || // said at the beginning
		strings.HasPrefix(e.Message, "second signal") || // sent by us
		e.from.leaving && strings.HasPrefix(e.Message, "warden") || // of a replica that the demo has killed
		e.Message == "replica lost" // which the demo has noticed itself
	if e.Level != "warn" && e.Level != "error" || known {
		return
	}
	text := e.Message
	for _, more := range []string{e.Job, e.Reason, e.Error} {
		if more != "" {
			text += ": " + more
		}
	}
	d.view.note(e.At, yellow, "%s: %s", e.from.name, text)
}

// left notices replicas that end although nobody asked them to.
func (d *demo) left(e *logLine) {
	if e.from.leaving {
		return
	}
	d.surprises++
	d.view.note(e.At, red, "%s has ended by itself: %s", e.from.name, e.Error)
	for _, words := range e.from.words {
		d.view.note(e.At, red, "%s: %s", e.from.name, words)
	}
}

// dismiss drains the replicas: the first signal asks, the second insists.
func (d *demo) dismiss() {
	const grace = 10 * time.Second
	begun := time.Now()
	d.crew.signal(syscall.SIGTERM)
	timeout := time.NewTimer(d.cfg.Replica.DrainTimeout + grace)
	defer timeout.Stop()
	if n := len(d.scene.open); n > 0 && d.cut {
		d.view.note(begun, plain, "waiting for %s, at most %v; Ctrl-C again stops at once", count(n, "run"), d.cfg.Replica.DrainTimeout)
	}
	for insist := os.Signal(syscall.SIGTERM); d.crew.alive > 0; {
		select {
		case e := <-d.crew.events:
			d.observe(&e)
		case <-d.signals:
			d.cut = true
			if time.Since(begun) > sameSignal { // else one key, of which the terminal and who runs us both tell
				d.crew.signal(insist)
				insist = os.Kill
			}
		case <-timeout.C:
			d.view.note(time.Now(), red, "the replicas do not end: killed")
			d.crew.signal(os.Kill)
		}
	}
	d.sweep()
}

// sweep ends what a killed replica has left behind.
func (d *demo) sweep() {
	d.crew.close()
	if n := endOrphans(); n > 0 {
		d.view.note(time.Now(), yellow, "ended what the killed replica had left behind: %d", n)
	}
}
