package demo

import (
	"fmt"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// tally counts the outcomes of all ticks of a demo. To detect missing and wrong runs, it calculates the due ticks from the schedules alone, and compares them
// with the runs and outcomes.
type tally struct {
	jobs     []*config.Job
	from     map[string]time.Time // by job: ticks after this time are due
	until    time.Time            // ticks up to this time are due; its zone is the zone of printed times
	runs     []run                // one per start, so a run that started twice occurs twice
	outcomes map[string]string    // final outcomes, by run id
	idle     map[tickOf]bool      // ticks that were decided without a run
	killed   string               // id of the run whose replica was killed; only an outcome settles this run, not the end of its process
}

// tickOf identifies a tick.
type tickOf struct {
	job string
	at  int64 // seconds since 1970
}

func newTally(jobs []*config.Job, from map[string]time.Time, until time.Time) *tally {
	return &tally{jobs: jobs, from: from, until: until, outcomes: map[string]string{}, idle: map[tickOf]bool{}}
}

// addOutcome adds an outcome from the history or from a log.
func (t *tally) addOutcome(r journal.Record) {
	switch {
	case r.Outcome == journal.OutcomeRunning:
	case r.Token == 0 && r.Started.IsZero():
		t.idle[tickOf{r.Job, r.Tick.Unix()}] = true
	default:
		t.outcomes[r.RunID] = r.Outcome
	}
}

// counted is the result of a tally.
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
		if r.Job == job.Name && dueAt(job, r.Tick).After(t.until) && isTick(job, r.Tick) &&
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

func isTick(job *config.Job, at time.Time) bool {
	return job.Spec.Next(at.Add(-time.Nanosecond)).Equal(at)
}

func (t *tally) countTick(c *counted, job *config.Job, at time.Time, runs []run) {
	c.due++
	slots, ids := map[int]bool{}, map[string]bool{}
	settled := len(runs) > 0 || t.idle[tickOf{job.Name, at.Unix()}]
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

// hasEnded reports whether a run has ended, according to the job itself. If the job did not report its end, or its replica was killed, the run has ended if
// an outcome other than ok is recorded.
func (t *tally) hasEnded(r run) bool {
	if !r.Ended.IsZero() && r.ID != t.killed {
		return true
	}
	outcome, known := t.outcomes[r.ID]
	return known && outcome != journal.OutcomeOK
}

// countTokens counts tokens of a job that did not grow. If a run started before the tick of another run, the first run must have the smaller token, because
// no tick is granted before it is due. If two runs are closer to each other, only Redis knows their order, but their tokens must be different.
func (t *tally) countTokens(c *counted, job *config.Job) {
	var runs []run
	seen := map[int64]string{} // id of the run with a token
	for _, r := range t.runs {
		if r.Job != job.Name {
			continue
		}
		if id, taken := seen[r.Token]; taken && id != r.ID {
			c.addFault(&c.shrank, "%s has a token that another run has", r)
		}
		seen[r.Token] = r.ID
		runs = append(runs, r)
	}
	byStart := slices.SortedFunc(slices.Values(runs), func(a, b run) int { return a.Started.Compare(b.Started) })
	byTick := slices.SortedFunc(slices.Values(runs), func(a, b run) int { return a.Tick.Compare(b.Tick) })
	var greatest run // run with the greatest token among those that started before the tick of r
	for _, r := range byTick {
		for len(byStart) > 0 && byStart[0].Started.Before(r.Tick) {
			if byStart[0].Token > greatest.Token {
				greatest = byStart[0]
			}
			byStart = byStart[1:]
		}
		if greatest.Token > r.Token {
			c.addFault(&c.shrank, "%s has a smaller token than %s, which ran before", r, greatest)
		}
	}
}

func clockText(t time.Time) string { return t.Format("15:04:05") }

// String returns a description of a run for messages.
func (r run) String() string {
	return fmt.Sprintf("%s %s on %s (slot %d, token %d)", r.Job, clockText(r.Tick), r.Replica, r.Slot, r.Token)
}
