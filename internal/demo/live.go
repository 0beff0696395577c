package demo

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/units"
)

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
	d.view.printLine(bold, "%s", d.view.formatColumns("TIME", "JOB", "TICK", "REPLICA", "SLOT", "TOKEN", "OUTCOME"))
}

// beat is the interval at which the demo checks for what is due.
const beat = 100 * time.Millisecond

// watchReplicas runs the replicas and prints their events until the time is over and all ticks that were due are decided, or a signal arrives.
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
	look := time.NewTicker(beat)
	defer look.Stop()
	for d.fleet.alive > 0 {
		select {
		case e := <-d.fleet.events:
			d.handleEvent(&e)
			continue
		case <-d.Signals:
			d.cut, d.until = true, time.Now()
			return nil
		case <-look.C:
		}
		now := time.Now()
		d.checkRuns(now)
		if now.Before(d.plan.end) {
			continue
		}
		const mostOvertime = 10 * time.Second
		if d.until = now.Add(-settling); d.allDecided(ctx, now) || now.After(d.plan.end.Add(mostOvertime)) {
			return nil
		}
	}
	d.until = time.Now()
	return nil
}

// settling is the time before the end of the demo in which a due tick counts only if it ran, because there may have been no time to start its run.
const settling = 500 * time.Millisecond

// registerJobs registers the schedules in Redis. From then on ticks are due, whether replicas run or not.
func (d *demo) registerJobs(ctx context.Context) error {
	requests := make([]election.InspectRequest, len(d.jobs))
	now := time.Now()
	for i, j := range d.jobs {
		requests[i] = election.InspectRequest{Lock: election.JobLock(j.Name), Schedule: j.Spec.Digest(), Behind: j.Spec.Behind(now), ZoneRules: j.Spec.ZoneRules()}
	}
	d.from = map[string]time.Time{}
	for i, st := range d.elector.Inspect(ctx, requests) {
		if st.Err != nil {
			return fmt.Errorf("announce the schedules: %w", st.Err)
		}
		d.from[d.jobs[i].Name], _ = d.jobs[i].Spec.Instant(st.Decided)
	}
	return nil
}

// allDecided reports whether Redis has a decision about every tick that was due by now.
func (d *demo) allDecided(ctx context.Context, now time.Time) bool {
	requests := make([]election.InspectRequest, len(d.jobs))
	for i, j := range d.jobs {
		requests[i] = election.InspectRequest{Lock: election.JobLock(j.Name)}
	}
	for i, st := range d.elector.Inspect(ctx, requests) {
		if st.Err != nil || st.Decided.Before(d.jobs[i].Spec.ID(lastDue(d.jobs[i], now))) {
			return false
		}
	}
	return true
}

// lastDue returns the latest tick of a job that may start at the given time or earlier, with its jitter.
func lastDue(job *config.Job, at time.Time) time.Time {
	tick := job.Spec.Prev(at.Add(time.Nanosecond))
	for !tick.IsZero() && dueAt(job, tick).After(at) {
		tick = job.Spec.Prev(tick)
	}
	return tick
}

// A plan is the fault that the demo causes: it kills a replica that runs a job. The first later tick of that job on another replica is the take-over.
type plan struct {
	job      string        // job during whose run the kill happens; "" for any job
	notUntil time.Time     // earliest time of the kill
	running  time.Duration // minimum duration of the run before the kill
	hurry    time.Time     // from this time on, the minimum duration does not apply
	end      time.Time     // end of the demo; the take-over must come before it

	victim   run       // run that the kill interrupted; zero before the kill
	killedAt time.Time // zero before the kill
	takeOver run       // zero before it starts
}

func (d *demo) planKill(begun time.Time) {
	d.plan = plan{notUntil: begun.Add(5 * time.Second), running: time.Second, hurry: begun.Add(d.Length / 4), end: begun.Add(d.Length)}
	if d.builtIn { // at a time between two ticks of the other jobs
		d.plan.job, d.plan.running, d.plan.hurry = victimJob, 1500*time.Millisecond, d.plan.end
	}
}

// shouldKill reports whether to kill the replica of a run now. It returns false if too little time is left for the take-over, which the viewer must see.
func (p *plan) shouldKill(r *run, job *config.Job, now time.Time) bool {
	if p.killed() || now.Before(p.notUntil) || p.job != "" && r.Job != p.job {
		return false
	}
	if now.Sub(r.Started) < p.running && now.Before(p.hurry) {
		return false
	}
	next := job.Spec.Next(now.Add(job.Lease))
	return !next.IsZero() && next.Add(time.Second).Before(p.end)
}

func (p *plan) killed() bool { return !p.killedAt.IsZero() }

func (p *plan) noteTakeOver(r *run) {
	if p.killed() && p.takeOver.ID == "" && r.Job == p.victim.Job && r.Replica != p.victim.Replica && r.Tick.After(p.victim.Tick) {
		p.takeOver = *r
	}
}

// known collects what the logs of the replicas have reported so far.
type known struct {
	jobs     map[string]*config.Job
	runs     []*run // in the order of their starts
	open     []*run // runs whose end was not reported yet
	outcomes []journal.Record
}

// longRun is the minimum duration of a run that is printed as running. A run that may be killed is printed at its start.
const longRun = time.Second

func newKnown(jobs []*config.Job) known {
	s := known{jobs: map[string]*config.Job{}}
	for _, j := range jobs {
		s.jobs[j.Name] = j
	}
	return s
}

// endRun records the outcome of a run and returns the run. If no log reported the start, it creates the run from the log line. ended is zero if the end of the
// run is unknown.
func (s *known) endRun(l *logLine, outcome journal.Outcome, ended time.Time) *run {
	r := l.toRun()
	if i := slices.IndexFunc(s.runs, func(o *run) bool { return o.ID == l.ID }); i >= 0 {
		r = s.runs[i]
		r.Ended = ended
	}
	s.open = slices.DeleteFunc(s.open, func(o *run) bool { return o.ID == l.ID })
	s.outcomes = append(s.outcomes, journal.Record{RunID: r.ID, Job: r.Job, Tick: r.Tick, Token: r.Token, Outcome: outcome})
	return r
}

func (d *demo) handleEvent(e *logLine) {
	d.fleet.noteEvent(e)
	switch {
	case e.ended:
		d.noteEnd(e)
	case e.Level == "", e.Stream != "": // not a log line, or output of a job
	case e.Message == saidStarted:
		r := e.toRun()
		d.known.runs, d.known.open = append(d.known.runs, r), append(d.known.open, r)
		d.plan.noteTakeOver(r)
		if r.Job == d.plan.job {
			d.showRunning(e.At, r)
		}
		d.killIfPlanned(time.Now(), r) // the run may end before the next check
	case e.Message == saidFinished:
		r := d.known.endRun(e, e.Outcome, e.At)
		d.view.printRun(e.At, r, cutTo(strings.TrimSpace(string(e.Outcome)+" "+e.Reason), widestOutcome)+"  "+e.Took, d.takeOverMark(r))
	case e.Message == saidNotRun:
		d.known.outcomes = append(d.known.outcomes, journal.Record{Job: e.Job, Tick: e.Tick, Outcome: e.Outcome})
		d.view.printRun(e.At, &run{Job: e.Job, Tick: e.Tick, Replica: "-"}, string(e.Outcome), "")
	case e.Message == saidAbandoned:
		// If the outcome is known, the run had ended, but its replica was killed before it wrote the record.
		if !slices.ContainsFunc(d.known.outcomes, func(r journal.Record) bool { return r.RunID == e.ID }) {
			d.view.printRun(e.At, d.known.endRun(e, "abandoned", time.Time{}), "abandoned", "")
		}
	default:
		d.showWarning(e)
	}
}

func (d *demo) checkRuns(now time.Time) {
	for _, r := range d.known.open {
		if now.Sub(r.Started) > longRun {
			d.showRunning(now, r)
		}
		d.killIfPlanned(now, r)
	}
}

func (d *demo) killIfPlanned(now time.Time, r *run) {
	if !d.plan.shouldKill(r, d.known.jobs[r.Job], now) {
		return
	}
	pid, err := d.fleet.killReplica(r.Replica)
	if err != nil {
		d.view.printNote(now, red, "%v", err)
		return
	}
	d.plan.victim, d.plan.killedAt = *r, now
	d.view.printNote(now, red, "kill -9 %s (pid %d), which runs %s", r.Replica, pid, r.Job)
}

func (d *demo) showRunning(at time.Time, r *run) {
	if r.shown {
		return
	}
	d.view.printRun(at, r, "running", d.takeOverMark(r))
	r.shown = true
}

// takeOverMark returns the remark for the first line of the run that is the take-over, and "" for all others.
func (d *demo) takeOverMark(r *run) string {
	if d.plan.takeOver.ID != r.ID || r.shown {
		return ""
	}
	return "<- take-over"
}

// showWarning prints a line that is a warning or an error, unless the demo expects it.
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

// drainReplicas drains the replicas and waits until they have ended. The next signal makes the replicas kill their jobs, and a further signal kills the replicas.
func (d *demo) drainReplicas() {
	const grace = 10 * time.Second
	const sameSignal = time.Second // signals within this time come from one key press: a terminal and a supervisor may both send one
	begun := time.Now()
	d.fleet.signalAll(syscall.SIGTERM)
	timeout := time.NewTimer(d.cfg.Replica.DrainTimeout + grace)
	defer timeout.Stop()
	if n := len(d.known.open); n > 0 && d.cut {
		d.view.printNote(begun, plain, "waiting for %s, at most %v; Ctrl-C again stops at once", units.Count(n, "run"), d.cfg.Replica.DrainTimeout)
	}
	for insist := os.Signal(syscall.SIGTERM); d.fleet.alive > 0; {
		select {
		case e := <-d.fleet.events:
			d.handleEvent(&e)
		case <-d.Signals:
			d.cut = true
			if time.Since(begun) > sameSignal {
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

// endLeftovers kills all replicas. A replica that was killed can leave processes behind, and endLeftovers ends these too.
func (d *demo) endLeftovers() {
	d.fleet.close()
	if n := endOrphans(); n > 0 {
		d.view.printNote(time.Now(), yellow, "ended what the killed replica had left behind: %d", n)
	}
}

type view struct {
	out    io.Writer
	colour bool
	zone   *time.Location // zone of printed times
	job    int            // width of the column of jobs
}

// colour is the escape code of a colour or an attribute of text.
type colour string

const (
	plain  colour = ""
	bold   colour = "1"
	faint  colour = "2"
	red    colour = "1;31"
	green  colour = "32"
	yellow colour = "33"
	cyan   colour = "36"
)

func newView(out io.Writer, colours bool, zone *time.Location, jobs []*config.Job) *view {
	const widest = 24
	v := &view{out: out, zone: zone, job: len("JOB"), colour: colours}
	for _, j := range jobs {
		v.job = min(max(v.job, len(j.Name)), widest)
	}
	return v
}

func (v *view) paintText(c colour, text string) string {
	if !v.colour || c == plain || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// printLine prints a line that is not an event.
func (v *view) printLine(c colour, format string, args ...any) {
	fmt.Fprintln(v.out, v.paintText(c, fmt.Sprintf(format, args...)))
}

// formatColumns formats an event as a line. With job names of six characters, the outcome begins after 61 columns.
func (v *view) formatColumns(at, job, tick, replica, slot, token, outcome string) string {
	line := fmt.Sprintf("%-8s  %-*s  %-8s  %-7s  %-4s  %-16s  %s", at, v.job, cutTo(job, v.job), tick, replica, slot, token, outcome)
	return strings.TrimRight(line, " ")
}

// printRun prints an event of a run. remark is "", or begins with an arrow.
func (v *view) printRun(at time.Time, r *run, outcome, remark string) {
	slot, token := strconv.Itoa(r.Slot), strconv.FormatInt(r.Token, 10)
	if r.Token == 0 { // a tick without a run has no token
		slot, token = "-", "-"
	}
	text := v.paintText(colourOf(outcome), outcome)
	if remark != "" {
		text += "  " + v.paintText(bold, remark)
	}
	fmt.Fprintln(v.out, v.formatColumns(v.localClock(at), r.Job, v.localClock(r.Tick), r.Replica, slot, token, text))
}

// printNote prints an event that is not about one run.
func (v *view) printNote(at time.Time, c colour, format string, args ...any) {
	text := cutTo(fmt.Sprintf(format, args...), 160)
	fmt.Fprintf(v.out, "%-8s  %-*s  %s\n", v.localClock(at), v.job, "--", v.paintText(c, text))
}

func (v *view) localClock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.In(v.zone).Format("15:04:05")
}

// widestOutcome is the maximum width of an outcome, so that a line has at most 100 columns.
const widestOutcome = 28

func colourOf(outcome string) colour {
	switch word, _, _ := strings.Cut(outcome, " "); word {
	case "ok":
		return green
	case "running":
		return cyan
	case "abandoned", "skipped", "missed", "canceled":
		return yellow
	}
	return red
}

func cutTo(s string, width int) string {
	if r := []rune(s); len(r) > width {
		return string(r[:width-1]) + "…"
	}
	return s
}
