package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

const (
	// mostParents is the maximum number of ancestors of a job that one explanation examines. chainTimeout is the time limit for reading them.
	mostParents  = 50
	chainTimeout = 10 * time.Second
)

// A chain has the ancestors of a job at one tick: its parents, and further ancestors if the phase of a parent depends on them.
type chain struct {
	operator *Operator
	infos    []journal.JobInfo
	at       string // the tick, in the form that [Operator.Why] takes
	parents  map[string]*parent
}

// A parent is one of the ancestors in a chain.
type parent struct {
	*explainer        // nil if the parent could not be explained
	unknown    string // reason why the parent could not be explained
	settled    bool   // settlePhase was called for the parent
}

// explainParents adds lines about the ancestors of the job. If the tick of the job has no record, its phase follows from the ancestors.
func (o *Operator) explainParents(ctx context.Context, infos []journal.JobInfo, s *explainer) error {
	c := &chain{o, infos, s.At.UTC().Format(time.RFC3339), map[string]*parent{}}
	within, cancel := context.WithTimeoutCause(ctx, chainTimeout, fmt.Errorf("no answer in %v", chainTimeout))
	defer cancel()
	c.readParents(within, s)
	if ctx.Err() != nil {
		return unavailableError("explain the jobs before job "+s.Job, context.Cause(ctx))
	}
	lines := c.settlePhase(s, "it")
	s.Lines = append(s.Lines, lines...)
	return nil
}

// readParents reads the explanations of a job's parents. If the phase of a parent depends on its own parents, readParents reads their explanations too.
func (c *chain) readParents(ctx context.Context, s *explainer) {
	for queue := []*explainer{s}; len(queue) > 0; queue = queue[1:] {
		for _, job := range queue[0].info.After {
			if len(c.parents) == mostParents {
				return
			}
			if c.parents[job] != nil {
				continue
			}
			p := c.readParent(ctx, job)
			if c.parents[job] = p; p.explainer != nil && p.bySchedule && p.Phase == PhaseUnknown {
				queue = append(queue, p.explainer)
			}
		}
	}
}

// readParent returns the explanation of one parent, without the audit log, because only the phase and the main line of a parent are shown. After an error, it
// returns a parent with the reason in unknown, so that the job itself is still explained.
func (c *chain) readParent(ctx context.Context, job string) *parent {
	s, err := c.operator.readFacts(ctx, c.infos, job, c.at)
	if err == nil {
		err = s.explainPhase()
	}
	if timeout := context.Cause(ctx); err != nil && timeout != nil {
		err = timeout
	}
	switch {
	case errors.Is(err, ErrNoReplica), errors.Is(err, ErrUnknownJob):
		return &parent{unknown: "no replica has this job"}
	case err != nil:
		return &parent{unknown: "not known: " + err.Error()}
	}
	s.past = nil // not needed any more; the histories of all parents together may be large
	return &parent{explainer: s}
}

// settlePhase returns the lines about a job's ancestors, in which name stands for the job. If no record shows what happened to the tick of the job, settlePhase
// also sets the phase that follows from the states of the parents.
func (c *chain) settlePhase(s *explainer, name string) (lines []string) {
	cause, more, states := "", 0, map[parentState]bool{}
	for _, job := range s.info.After {
		p := c.parents[job]
		if p == nil {
			more++
			states[parentUnknown] = true
			continue
		}
		lines = append(lines, c.parentLines(p, job, name)...)
		state := p.chainState()
		if states[state] = true; state == parentBad && cause == "" {
			cause = p.causeText()
		}
	}
	if more > 0 {
		lines = append(lines, fmt.Sprintf("%s runs after more jobs, which are left out here: %d", name, more))
	}
	if phase := phaseAfter(states); s.bySchedule && s.Phase == PhaseUnknown && phase != PhaseUnknown {
		s.Phase, s.since, s.Lines = phase, cause, []string{s.chainText(phase, cause)}
	}
	return lines
}

// phaseAfter returns the phase of a tick without a record, which follows from the states of the parents.
func phaseAfter(parents map[parentState]bool) Phase {
	switch {
	case parents[parentBad]:
		return PhaseNoTick
	case parents[parentPending] && !parents[parentUnknown]: // a parent with an unknown state may have failed, and then there is no tick
		return PhaseDue
	}
	return PhaseUnknown
}

// parentLines returns the line about a parent. On the first call for a parent it also returns the lines about the parent's own ancestors.
func (c *chain) parentLines(p *parent, job, child string) []string {
	if p.explainer == nil {
		return []string{fmt.Sprintf("before %s, %s: %s", child, job, p.unknown)}
	}
	var before []string
	if !p.settled {
		p.settled = true
		before = c.settlePhase(p.explainer, job)
	}
	return append([]string{fmt.Sprintf("before %s, %s: %s", child, job, p.Lines[0])}, before...)
}

// causeText returns the reason why jobs that run after this job have no tick.
func (s *explainer) causeText() string {
	switch outcome := s.badOutcome(); {
	case s.since != "":
		return s.since
	case s.Phase == PhaseNoTick:
		return fmt.Sprintf("job %s has no tick then", s.Job)
	case outcome != "":
		return fmt.Sprintf("the outcome of job %s is %s", s.Job, outcome)
	}
	return fmt.Sprintf("job %s did not end ok", s.Job)
}

// parentState is the effect of a job's tick on the jobs that run after the job.
type parentState string

const (
	parentBad     parentState = "bad"     // the jobs after it have no tick
	parentPending parentState = "pending" // the jobs after it wait for it
	parentOK      parentState = "ok"
	parentUnknown parentState = "unknown"
)

func (p *parent) chainState() parentState {
	if p.explainer == nil {
		return parentUnknown
	}
	return p.parentState()
}

// parentState returns the state that follows from the phase and the last runs of the tick. Manual runs do not count.
func (s *explainer) parentState() parentState {
	switch {
	case s.Phase == PhaseNoTick:
		return parentBad
	case slices.ContainsFunc(slices.Concat(s.state.Running, s.state.Orphans), s.isHeldBy):
		return parentPending
	case len(s.Runs) > 0:
		return s.stateOfRuns()
	case s.Phase == PhaseOver: // the tick had no run
		return parentBad
	case s.Phase == PhaseDue, s.Phase == PhaseOpen:
		return parentPending
	}
	return parentUnknown
}

// stateOfRuns returns the state of a tick whose runs have all ended.
func (s *explainer) stateOfRuns() parentState {
	runs := s.countingRuns()
	switch {
	case s.badOutcome() != "":
		return parentBad
	case len(runs) == 0, slices.ContainsFunc(runs, func(r journal.Record) bool { return r.Outcome == journal.OutcomeRunning }):
		return parentUnknown
	}
	return parentOK
}

// countingRuns returns the runs of lastRuns except manual runs, because no job runs after a manual run.
func (s *explainer) countingRuns() []journal.Record {
	return slices.DeleteFunc(s.lastRuns(), isManual)
}

// badOutcome returns the outcome of the first slot whose last run has ended, but not ok; "" if no slot has such a run.
func (s *explainer) badOutcome() journal.Outcome {
	for _, r := range s.countingRuns() { // the runs are sorted by slot
		if r.Outcome != journal.OutcomeOK && r.Outcome != journal.OutcomeRunning {
			return r.Outcome
		}
	}
	return ""
}

// chainText returns the main line for a tick that has no record, and a phase that follows from its parents. cause names the parent that did not end ok.
func (s *explainer) chainText(phase Phase, cause string) string {
	parents := "job " + s.info.After[0] + " has"
	if len(s.info.After) > 1 {
		parents = "all of the jobs " + strings.Join(s.info.After, ", ") + " have"
	}
	if phase == PhaseNoTick {
		return fmt.Sprintf("no tick of job %s: it runs only when %s ended ok, and that is not so for %s: %s", s.Job, parents, s.formatTime(s.at), cause)
	}
	return fmt.Sprintf("job %s has not run yet: it waits until %s ended ok", s.Job, parents)
}
