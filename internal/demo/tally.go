package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/units"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// tally counts the outcomes of all ticks of a demo. To detect missing and wrong runs, it calculates the due ticks from the schedules alone, and compares them
// with the runs and outcomes.
type tally struct {
	jobs     []*config.Job
	from     map[string]time.Time       // by job: ticks after this time are due
	until    time.Time                  // ticks up to this time are due; its zone is the zone of printed times
	runs     []run                      // one per start, so a run that started twice occurs twice
	outcomes map[string]journal.Outcome // final outcomes, by run id
	decided  map[tickOf]bool            // ticks with an outcome other than ok; they are settled even if no job has written anything
	killed   string                     // id of the run whose replica was killed; only a recorded outcome settles this run, not an end that its job reported
}

type tickOf struct {
	job string
	at  int64 // seconds since 1970
}

func newTally(jobs []*config.Job, from map[string]time.Time, until time.Time) *tally {
	return &tally{jobs: jobs, from: from, until: until, outcomes: map[string]journal.Outcome{}, decided: map[tickOf]bool{}}
}

func (t *tally) addOutcome(r journal.Record) {
	if r.Outcome == journal.OutcomeRunning {
		return
	}
	if r.Outcome != journal.OutcomeOK {
		t.decided[tickOf{r.Job, r.Tick.Unix()}] = true
	}
	if r.RunID != "" {
		t.outcomes[r.RunID] = r.Outcome
	}
}

type counted struct {
	due, settled, doubled, early int
	strays                       int // number of runs of ticks that were not due
	shrank                       int // number of tokens that did not grow
	runs                         map[string]int
	faults                       []string // a description of each fault
}

func (c *counted) addFault(n *int, format string, args ...any) {
	*n++
	c.faults = append(c.faults, fmt.Sprintf(format, args...))
}

func (t *tally) countTicks() counted {
	for i := range t.runs {
		t.runs[i].Tick = t.runs[i].Tick.In(t.until.Location())
	}
	c := counted{runs: map[string]int{}}
	byTick := map[tickOf][]run{}
	for _, r := range t.runs {
		c.runs[r.Replica]++
		key := tickOf{r.Job, r.Tick.Unix()}
		byTick[key] = append(byTick[key], r)
	}
	for _, job := range t.jobs {
		for _, at := range t.dueTicks(job) {
			key := tickOf{job.Name, at.Unix()}
			t.countTick(&c, job, at, byTick[key])
			delete(byTick, key)
		}
		t.countTokens(&c, job)
	}
	for _, runs := range byTick {
		for _, r := range runs {
			c.addFault(&c.strays, "%s ran, which was not due", r)
		}
	}
	slices.Sort(c.faults)
	return c
}

// dueTicks returns the ticks of a job that were due during the demo. It adds later ticks that ran while the demo was ending.
func (t *tally) dueTicks(job *config.Job) []time.Time {
	var ticks []time.Time
	for at := job.Spec.Next(t.from[job.Name]); !at.IsZero() && !dueAt(job, at).After(t.until); at = job.Spec.Next(at) {
		ticks = append(ticks, at.In(t.until.Location()))
	}
	for _, r := range t.runs {
		if r.Job == job.Name && dueAt(job, r.Tick).After(t.until) && job.Spec.Next(r.Tick.Add(-time.Nanosecond)).Equal(r.Tick) &&
			!slices.ContainsFunc(ticks, r.Tick.Equal) {
			ticks = append(ticks, r.Tick)
		}
	}
	return ticks
}

// dueAt returns the earliest time at which a tick may start: the tick plus its jitter.
func dueAt(job *config.Job, tick time.Time) time.Time {
	if job.Jitter == 0 {
		return tick
	}
	return tick.Add(cronspec.Jitter(job.Name, tick, job.Spec.Next(tick), job.Jitter))
}

func (t *tally) countTick(c *counted, job *config.Job, at time.Time, runs []run) {
	c.due++
	slots, ids := map[int]bool{}, map[string]bool{}
	settled := len(runs) > 0 || t.decided[tickOf{job.Name, at.Unix()}]
	for i, r := range runs {
		switch {
		case i >= job.PerTick:
			c.addFault(&c.doubled, "%s is run %d of a tick that has %d", r, i+1, job.PerTick)
		case slots[r.Slot] || ids[r.ID]:
			c.addFault(&c.doubled, "%s ran a second time", r)
		}
		slots[r.Slot], ids[r.ID] = true, true
		if due := dueAt(job, at); r.Started.Before(due) {
			c.addFault(&c.early, "%s started %v before its time", r, due.Sub(r.Started))
		}
		settled = settled && t.hasEnded(r)
	}
	if settled {
		c.settled++
		return
	}
	c.faults = append(c.faults, fmt.Sprintf("%s %s has no outcome", job.Name, clockText(at)))
}

// hasEnded reports whether a run has ended: its job has reported the end, or an outcome other than ok is recorded. For the run whose replica was killed, only the
// outcome counts.
func (t *tally) hasEnded(r run) bool {
	if !r.Ended.IsZero() && r.ID != t.killed {
		return true
	}
	outcome, known := t.outcomes[r.ID]
	return known && outcome != journal.OutcomeOK
}

// countTokens counts tokens of a job that did not grow. If run A started before the tick of run B, A must have the smaller token, because no tick is granted
// before it is due. Otherwise only Redis knows which of the two was granted first, but their tokens must be different.
func (t *tally) countTokens(c *counted, job *config.Job) {
	runs := slices.DeleteFunc(slices.Clone(t.runs), func(r run) bool { return r.Job != job.Name })
	holders := map[int64]string{} // id of the run with a token
	for _, r := range runs {
		if id, taken := holders[r.Token]; taken && id != r.ID {
			c.addFault(&c.shrank, "%s has a token that another run has", r)
		}
		holders[r.Token] = r.ID
		var greatest run
		for _, before := range runs {
			if before.Started.Before(r.Tick) && before.Token > greatest.Token {
				greatest = before
			}
		}
		if greatest.Token > r.Token {
			c.addFault(&c.shrank, "%s has a smaller token than %s, which ran before", r, greatest)
		}
	}
}

func clockText(t time.Time) string { return t.Format("15:04:05") }

func (r run) String() string {
	return fmt.Sprintf("%s %s on %s (slot %d, token %d)", r.Job, clockText(r.Tick), r.Replica, r.Slot, r.Token)
}

// summarize prints the result of the demo. It returns an error if cronclave broke a promise.
func (d *demo) summarize(ctx context.Context) error {
	t := newTally(d.jobs, d.from, d.until.In(d.view.zone))
	t.killed = d.plan.victim.ID
	if err := d.gatherRuns(ctx, t); err != nil {
		return err
	}
	c := t.countTicks()
	d.view.printLine(plain, "")
	d.view.printLine(bold, "%s", d.countsLine(&c))
	tokens := "tokens grew with every grant"
	if c.shrank > 0 {
		tokens = "tokens did NOT grow with every grant"
	}
	d.view.printLine(plain, "%s    %s", tokens, d.killSummary())
	if d.builtIn {
		d.view.printLine(faint, "counted from what the jobs wrote themselves")
	} else {
		d.view.printLine(faint, "counted from the replicas' logs and the history: what your commands did, only they know")
	}
	return d.listFaults(&c)
}

func (d *demo) gatherRuns(ctx context.Context, t *tally) error {
	if d.builtIn {
		lines, err := readEntries(d.runsFile())
		if err != nil {
			return err
		}
		t.runs = runsOf(lines)
	} else {
		for _, r := range d.known.runs {
			t.runs = append(t.runs, *r)
		}
		for _, r := range d.known.outcomes {
			t.addOutcome(r)
		}
	}
	journal, err := d.redis.OpenJournal(d.cfg, nil, nil)
	if err != nil {
		return err
	}
	const all = 0
	records, err := journal.Runs(ctx, "", all, false)
	if err != nil {
		return err
	}
	for _, r := range records {
		t.addOutcome(r)
	}
	return nil
}

func (d *demo) countsLine(c *counted) string {
	var replicas []string
	for _, name := range slices.Sorted(maps.Keys(c.runs)) {
		replicas = append(replicas, fmt.Sprintf("%s %d", name, c.runs[name]))
	}
	return strings.TrimRight(fmt.Sprintf("%s  %s due  %d settled  %d doubled  %d early    %s", units.Count(len(d.jobs), "job"), units.Count(c.due, "tick"),
		c.settled, c.doubled, c.early, strings.Join(replicas, "  ")), " ")
}

func (d *demo) killSummary() string {
	p := &d.plan
	switch {
	case !p.killed() && (d.cut || d.builtIn):
		return "no replica was killed: it ended before"
	case !p.killed():
		return "no replica was killed: no run left time for a take-over"
	case p.takeOver.ID == "":
		return fmt.Sprintf("%s was killed; no take-over before the end", p.victim.Replica)
	}
	which := "next tick"
	if next := d.known.jobs[p.victim.Job].Spec.Next(p.victim.Tick); !next.Equal(p.takeOver.Tick) {
		which = "tick " + clockText(p.takeOver.Tick.In(d.view.zone))
	}
	return fmt.Sprintf("take-over %.1fs after the kill (%s, elsewhere)", p.takeOver.Started.Sub(p.killedAt).Seconds(), which)
}

// listFaults prints the faults, and returns [ErrBroken] if there is one. A tick without an outcome is not a fault if a signal ended the demo, or if the
// configuration is the user's, because its deadlines may be long.
func (d *demo) listFaults(c *counted) error {
	open := c.due - c.settled
	wrong := c.doubled + c.early + c.strays + c.shrank + d.surprises
	if open > 0 && (d.cut || !d.builtIn) {
		d.view.printLine(yellow, "%s still open when it ended", units.Count(open, "tick"))
	} else {
		wrong += open
	}
	const most = 10
	for i, f := range c.faults {
		if i == most {
			d.view.printLine(red, "and %d more", len(c.faults)-most)
			break
		}
		d.view.printLine(red, "%s", f)
	}
	if d.surprises > 0 {
		d.view.printLine(red, "%s ended by itself", units.Count(d.surprises, "replica"))
	}
	if wrong > 0 {
		return ErrBroken
	}
	return nil
}

// Environment variables for the jobs of the built-in configuration: the program to execute, and the file to which jobs write.
const (
	programVariable  = "DEMO_PROGRAM"
	runsFileVariable = "DEMO_RUNS_FILE"
)

// entry is a line in the file of runs. A job of the demo writes one when it starts and one when it ends.
type entry struct {
	run
	Event string    `json:"event"` // "start" or "end"
	At    time.Time `json:"at"`
}

// Work executes a job of the built-in configuration. It writes an entry to the file of runs, waits for length, and writes another entry. It returns
// [ErrNoDemo] if it does not run as a job of a demo.
func Work(ctx context.Context, length time.Duration) error {
	t, err := newEntry(os.Getenv)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoDemo, err)
	}
	path := os.Getenv(runsFileVariable)
	if err := t.appendTo("start", path); err != nil {
		return err
	}
	backoff.Sleep(ctx, length)
	return t.appendTo("end", path)
}

// ErrNoDemo reports that [Work] was started by hand, not as a job of a demo.
var ErrNoDemo = errors.New("demo-work runs as a job of the demo")

// newEntry returns an entry about the run that the environment describes. The replica has set these variables.
func newEntry(env func(string) string) (entry, error) {
	t := entry{run: run{Job: env("CRONCLAVE_JOB"), Replica: env("CRONCLAVE_REPLICA"), ID: env("CRONCLAVE_RUN_ID")}}
	var errs [3]error
	t.Tick, errs[0] = time.Parse(time.RFC3339, env("CRONCLAVE_TICK"))
	t.Slot, errs[1] = strconv.Atoi(env("CRONCLAVE_SLOT"))
	t.Token, errs[2] = strconv.ParseInt(env("CRONCLAVE_FENCING_TOKEN"), 10, 64)
	if err := errors.Join(errs[:]...); err != nil {
		return t, fmt.Errorf("its environment: %w", err)
	}
	return t, nil
}

// appendTo appends the entry to a file. The encoder writes it at once, so the lines of several jobs do not mix.
func (t entry) appendTo(event, path string) error {
	t.Event, t.At = event, time.Now()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err == nil {
		err = errors.Join(json.NewEncoder(f).Encode(t), f.Close())
	}
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// readEntries reads the file of runs. If the file is missing, no job has run.
func readEntries(path string) ([]entry, error) {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the jobs' records: %w", err)
	}
	var list []entry
	for line := range bytes.Lines(data) {
		var t entry
		if err := json.Unmarshal(line, &t); err != nil {
			return nil, fmt.Errorf("read the jobs' records: %w: %q", err, line)
		}
		list = append(list, t)
	}
	return list, nil
}

// runsOf returns a run for each start, in the order of the file.
func runsOf(lines []entry) []run {
	var runs []run
	for _, t := range lines {
		if t.Event == "start" {
			t.Started = t.At
			runs = append(runs, t.run)
			continue
		}
		for i := range runs {
			if runs[i].ID == t.ID && runs[i].Ended.IsZero() {
				runs[i].Ended = t.At
				break
			}
		}
	}
	return runs
}
