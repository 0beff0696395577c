package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// Verdict is what an instant is to a job.
type Verdict string

// The verdicts.
const (
	NoTick  Verdict = "no tick"
	Due     Verdict = "due"     // a tick that is still to come
	Open    Verdict = "open"    // a tick that is due, and neither granted nor settled
	Running Verdict = "running" // its run is not over
	Over    Verdict = "over"    // it has an outcome
	Unknown Verdict = "unknown" // it was decided, or was due before the cluster knew the job, and no record is left
)

// Story is all that is known of one instant of a job. Its JSON is part of the contract with users.
type Story struct {
	Job     string    `json:"job"`
	At      time.Time `json:"at"` // in the job's zone
	Verdict Verdict   `json:"verdict"`
	// Lines are the answer in sentences, the main one first.
	Lines []string `json:"lines"`
	// Runs are the records of the tick, oldest first.
	Runs []journal.Record `json:"runs"`
}

// Why explains what became of an instant of a job, and for which reason. at is RFC 3339, or a date and a time by the clock of the job's zone.
func (o *Operator) Why(ctx context.Context, job, at string) (*Story, error) {
	infos, err := o.described(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(infos, func(info journal.JobInfo) bool { return info.Name == job })
	if i < 0 {
		if err := o.mustKnow(ctx, job); err != nil {
			return nil, err
		}
		return nil, refuse(ErrNoReplica, "job %s: no replica has it", job)
	}
	return o.why(ctx, infos[i], at)
}

func (o *Operator) why(ctx context.Context, info journal.JobInfo, text string) (*Story, error) {
	zone, err := cronspec.LoadLocation(info.Timezone)
	if err != nil {
		zone = time.UTC
	}
	at, remark, err := readInstant(text, zone)
	if err != nil {
		return nil, err
	}
	state := o.elector.Inspect(ctx, []election.InspectRequest{{Job: info.Name}})[0]
	if state.Err != nil {
		return nil, unavailable("inspect job "+info.Name, state.Err)
	}
	past, err := o.journal.Runs(ctx, info.Name, 0, false)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) { // the others are good
		return nil, o.historyError(err)
	}
	s := &story{info: info, state: state, past: past, Story: Story{Job: info.Name, At: at.Truncate(time.Second), Runs: []journal.Record{}, Lines: []string{}}}
	if err := s.explain(); err != nil {
		return nil, err
	}
	if remark != "" {
		s.say("%s", remark)
	}
	return &s.Story, nil
}

// story is a story in the making.
type story struct {
	Story
	info  journal.JobInfo
	state election.State
	past  []journal.Record // all that is kept of the job
}

func (s *story) say(format string, args ...any) {
	s.Lines = append(s.Lines, fmt.Sprintf(format, args...))
}

// show is an instant in the job's zone.
func (s *story) show(t time.Time) string {
	return t.In(s.At.Location()).Format("2006-01-02 15:04:05 MST")
}

// explain comes to a verdict by records of the tick, else by the lock, else by the schedule.
func (s *story) explain() error {
	for _, r := range slices.Backward(s.past) {
		if r.Tick.Equal(s.At) {
			s.Runs = append(s.Runs, r)
		}
	}
	slices.SortStableFunc(s.Runs, func(a, b journal.Record) int { return a.When().Compare(b.When()) })
	switch {
	case len(s.Runs) > 0:
		s.explainRuns()
	case s.explainHolders():
	case len(s.info.After) > 0:
		s.Verdict = Unknown
		s.say("job %s runs after %s, and the history has no tick of %s", s.Job, joinNames(s.info.After), s.show(s.At))
	default:
		return s.explainSchedule()
	}
	return nil
}

// explainHolders is about a tick that is held by a run without a record: the history of a replica may lag behind its locks.
func (s *story) explainHolders() bool {
	for _, r := range s.state.Running {
		if r.Tick.Equal(s.At) {
			s.Verdict = Running
			s.say("granted to %s with token %d; its run holds slot %d, and is not in the history yet", r.Holder, r.Token, r.Slot)
			return true
		}
	}
	for _, r := range s.state.Orphans {
		if r.Tick.Equal(s.At) {
			s.Verdict = Over
			s.say("granted to %s with token %d, which has disappeared; no replica has recorded that yet", r.Holder, r.Token)
			return true
		}
	}
	return false
}

// explainSchedule is about an instant without a run: it is none of the job's, it is to come, or no record of it is left.
func (s *story) explainSchedule() error {
	if !s.info.Enabled {
		s.Verdict = NoTick
		s.say("no tick: job %s is not enabled", s.Job)
		return nil
	}
	reason, err := noTick(s.info, s.At)
	switch {
	case err != nil:
		return err
	case reason != "":
		s.Verdict = NoTick
		s.say("no tick of job %s: %s", s.Job, reason)
		s.explainNeighbours()
	case s.At.After(s.state.Now):
		s.Verdict = Due
		s.say("a tick that is due in %v", s.At.Sub(s.state.Now).Round(time.Second))
		s.explainPause("it is skipped if the job is still paused then")
	case s.state.Decided.IsZero():
		s.Verdict = Unknown
		s.say("the locks know no tick of job %s yet: no replica has announced its schedule, or Redis has lost its data", s.Job)
	case s.At.After(s.state.Decided) || slices.ContainsFunc(s.state.Open, s.At.Equal):
		s.Verdict = Open
		s.say("the tick is due since %v, and neither granted nor settled: it waits for a slot, for a replica that can run it, or for its jitter",
			s.state.Now.Sub(s.At).Round(time.Second))
		s.explainPause("its ticks are skipped")
	default:
		s.explainForgotten()
	}
	return nil
}

// explainForgotten is about a tick that the lock has as decided, without a record.
func (s *story) explainForgotten() {
	s.Verdict = Unknown
	s.say("the tick was decided, and the history has no record of it")
	switch oldest := s.oldest(); {
	case oldest.IsZero():
		s.say("the history has nothing of job %s: replicas may have learned of the job after this tick", s.Job)
	case s.At.Before(oldest):
		s.say("the history of job %s begins with the tick of %s: older records were dropped ([history] runs, max_age), or replicas learned of the job later", s.Job, s.show(oldest))
	default:
		s.say("one record stands for the ticks of a long gap in which no replica was up; else the replica that decided it died before it could record that")
	}
}

// oldest is the oldest tick with a record.
func (s *story) oldest() (oldest time.Time) {
	for _, r := range s.past {
		if !r.Tick.IsZero() && (oldest.IsZero() || r.Tick.Before(oldest)) {
			oldest = r.Tick
		}
	}
	return oldest
}

func (s *story) explainNeighbours() {
	spec, _, err := scheduleOf(s.info)
	if err != nil {
		return
	}
	if before := spec.Prev(s.At); !before.IsZero() {
		s.say("the tick before is %s", s.show(before))
	}
	if after := spec.Next(s.At); !after.IsZero() {
		s.say("the tick after is %s", s.show(after))
	}
}

// explainPause adds that the job is paused now, if the pause covers the instant.
func (s *story) explainPause(effect string) {
	p := s.state.Pause
	if !p.On(s.state.Now) || s.At.Before(p.From) || !p.Until.IsZero() && !s.At.Before(p.Until) {
		return
	}
	text := fmt.Sprintf("job %s is paused since %s", s.Job, s.show(p.From))
	if until := untilOf(p); until != nil {
		text += ", until " + s.show(*until)
	}
	if p.Reason != "" {
		text += " (" + p.Reason + ")"
	}
	s.say("%s: %s", text, effect)
}
