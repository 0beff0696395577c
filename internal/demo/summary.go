package demo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// summarize prints the result of the demo. It returns an error if cronclave broke a promise.
func (d *demo) summarize(ctx context.Context) error {
	t := newTally(d.jobs, d.from, d.until)
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
	d.view.printLine(plain, "%s    %s", tokens, d.killSummary(t.runs))
	if d.builtIn {
		d.view.printLine(faint, "counted from what the jobs wrote themselves")
	} else {
		d.view.printLine(faint, "counted from the replicas' logs and the history: what your commands did, only they know")
	}
	return d.listFaults(&c)
}

// gatherRuns adds to a tally the runs, and the outcomes of runs and ticks.
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
	journal, err := d.redis.OpenJournal(d.cfg, nil)
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
	return strings.TrimRight(fmt.Sprintf("%s  %s due  %d settled  %d doubled  %d early    %s", countOf(len(d.jobs), "job"), countOf(c.due, "tick"),
		c.settled, c.doubled, c.early, strings.Join(replicas, "  ")), " ")
}

// killSummary describes the kill and the take-over in a sentence.
func (d *demo) killSummary(runs []run) string {
	p := &d.plan
	switch {
	case !p.killed() && (d.cut || d.builtIn):
		return "no replica was killed: it ended before"
	case !p.killed():
		return "no replica was killed: no run left time for a take-over"
	case p.takeOver.ID == "":
		return fmt.Sprintf("%s was killed; no take-over before the end", p.victim.Replica)
	}
	began := p.takeOver.Started
	for _, r := range runs {
		if r.ID == p.takeOver.ID {
			began = r.Started
		}
	}
	which := "next tick"
	if next := d.known.jobs[p.victim.Job].Spec.Next(p.victim.Tick); !next.Equal(p.takeOver.Tick) {
		which = "tick " + clockText(p.takeOver.Tick.In(d.view.zone))
	}
	return fmt.Sprintf("take-over %.1fs after the kill (%s, elsewhere)", began.Sub(p.killedAt).Seconds(), which)
}

// listFaults prints the faults, and returns [ErrBroken] if there is one. A tick without an outcome is not a fault if a signal ended the demo, or if the
// configuration is the user's, because its deadlines may be long.
func (d *demo) listFaults(c *counted) error {
	open := c.due - c.settled
	wrong := c.doubled + c.early + c.strays + c.shrank + d.surprises
	if open > 0 && (d.cut || !d.builtIn) {
		d.view.printLine(yellow, "%s still open when it ended", countOf(open, "tick"))
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
		d.view.printLine(red, "%s ended by itself", countOf(d.surprises, "replica"))
	}
	if wrong > 0 {
		return ErrBroken
	}
	return nil
}

func countOf(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
