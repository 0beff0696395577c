package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler/cronspec"
	"github.com/cronclave/cronclave/scheduler/run"
)

// A Phase is a stage of a tick, from its schedule to its outcome.
type Phase string

// The phases.
const (
	PhaseNoTick  Phase = "no tick"
	PhaseDue     Phase = "due"     // a tick in the future
	PhaseOpen    Phase = "open"    // a tick that is due, and neither granted nor settled
	PhaseRunning Phase = "running" // a run of the tick is in progress
	PhaseOver    Phase = "over"    // the tick has an outcome
	PhaseUnknown Phase = "unknown" // the data that is left in Redis does not show the phase
)

// An Explanation describes what happened at one instant of a job, and why. Its JSON is part of the contract with users.
type Explanation struct {
	Job   string    `json:"job"`
	At    time.Time `json:"at"` // in the job's zone
	Phase Phase     `json:"fate"`
	// Lines are the sentences of the explanation, the main one first.
	Lines []string `json:"lines"`
	// Runs are the records of the tick, sorted by slot, attempt and end.
	Runs []journal.Record `json:"runs"`
}

// Why explains what happened at an instant of a job, and why. at is RFC 3339, a date and a local time in the job's zone, or a recent instant as in readRecent. If
// no replica has described the job, at is in UTC, and Why fails unless the history has a record of that instant.
func (o *Operator) Why(ctx context.Context, job, at string) (*Explanation, error) {
	if !journal.IsJobName(job) { // a job with an invalid name has no lock to inspect
		if err := o.mustKnow(ctx, job); err != nil {
			return nil, err
		}
		return nil, refusalError(ErrUnknownJob, "%.40q cannot be the name of a job", job)
	}
	infos, err := o.describedJobs(ctx)
	if err != nil {
		return nil, err
	}
	s, err := o.readFacts(ctx, infos, job, at)
	if err != nil {
		return nil, err
	}
	s.readActs(ctx, o)
	if err := s.explainPhase(); err != nil {
		return nil, err
	}
	return &s.Explanation, o.explainParents(ctx, infos, s)
}

// readFacts reads the facts about an instant, except the audit log.
func (o *Operator) readFacts(ctx context.Context, infos []journal.JobInfo, job, at string) (*explainer, error) {
	info, described := findJob(infos, job)
	if !described {
		info = journal.JobInfo{Name: job, Timezone: "UTC"}
	}
	s := &explainer{info: info, zones: o.Zones()}
	zone, err := s.zones.Location(s.info.Timezone)
	if err != nil {
		return nil, fmt.Errorf("job %s: its time zone, as replicas describe it: %w", job, err)
	}
	spec := namingSchedule(s.zones, infos, info)
	if s.instant, err = readInstant(at, zone); err != nil {
		if s.instant, err = o.readRecent(ctx, at, zone, info, spec, err); err != nil {
			return nil, err
		}
	}
	s.at = s.at.Truncate(time.Second)
	if spec != nil {
		s.name = spec.ID(s.at.UTC())
	}
	s.Explanation = Explanation{Job: job, At: s.at, Lines: []string{}, Runs: []journal.Record{}}
	if err := s.readState(ctx, o); err != nil {
		return nil, err
	}
	if !described && !s.hasRecords() {
		if err := o.mustKnow(ctx, job); err != nil {
			return nil, err
		}
		return nil, refusalError(ErrNoReplica, "job %s: no replica has it", job)
	}
	return s, nil
}

// readRecent is like the function readRecent, by the clock of Redis. If the text is no such instant, it returns refused.
func (o *Operator) readRecent(ctx context.Context, text string, zone *time.Location, info journal.JobInfo, spec *cronspec.Schedule, refused error) (instant, error) {
	now, err := o.Now(ctx)
	if err != nil {
		return instant{}, err
	}
	if spec == nil && len(info.Schedule) > 0 {
		spec, _, _ = scheduleOf(o.Zones(), info) // nil with an error
	}
	i, ok := readRecent(text, zone, now, spec)
	if !ok {
		return i, refused
	}
	return i, nil
}

type explainer struct {
	Explanation
	instant
	info      journal.JobInfo
	zones     *cronspec.Zones
	state     election.State
	past      []journal.Record   // all records of the job
	incidents []journal.Incident // of Redis, from new to old
	acts      []journal.Act      // the audit log, from old to new; read only if a pause skipped the tick, and never for a parent of the requested job
	// actsErr is the error of reading the audit log. Even with an error, a part of the log may have been read.
	actsErr error
	// bySchedule is set if neither the records nor the lock mention the instant, so that only the schedule explains it.
	bySchedule bool
	name       time.Time // [cronspec.Schedule.ID] of the tick, if local times identify the ticks of the job; otherwise zero
	since      string    // reason why a parent of the job prevents the tick; "" if none does
}

func (s *explainer) readState(ctx context.Context, o *Operator) (err error) {
	s.state = o.elector.Inspect(ctx, []election.InspectRequest{{Lock: election.JobLock(s.Job)}})[0]
	if s.state.Err != nil {
		return unavailableError("inspect job "+s.Job, s.state.Err)
	}
	s.past, err = o.journal.Runs(ctx, s.Job, 0, false)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) { // with ErrCorrupt, only the damaged records are missing
		return o.historyError(err)
	}
	if s.incidents, err = o.journal.Incidents(ctx, s.state.Now); err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return o.historyError(err)
	}
	// One record may stand for a gap, a series of ticks that did not run. Only the output of the record names the other end of the gap.
	for _, i := range s.neighbours() {
		if err := o.journal.AddOutput(ctx, s.past[i:i+1]); err != nil && !errors.Is(err, journal.ErrCorrupt) {
			return o.historyError(err)
		}
	}
	return nil
}

func (s *explainer) readActs(ctx context.Context, o *Operator) {
	if !s.needsActs() {
		return
	}
	s.acts, s.actsErr = o.journal.Acts(ctx, journal.MaxActs)
	slices.SortStableFunc(s.acts, func(a, b journal.Act) int { return a.Time.Compare(b.Time) })
}

// neighbours returns the indexes of up to two records of ticks without a run: the record of the last such tick until the instant, and the record of the first
// such tick after the instant.
func (s *explainer) neighbours() (indexes []int) {
	before, after := -1, -1
	for i, r := range s.past {
		switch {
		case !r.Started.IsZero() || r.Tick.IsZero():
		case !r.Tick.After(s.at) && (before < 0 || r.Tick.After(s.past[before].Tick)):
			before = i
		case r.Tick.After(s.at) && (after < 0 || r.Tick.Before(s.past[after].Tick)):
			after = i
		}
	}
	return slices.DeleteFunc([]int{before, after}, func(i int) bool { return i < 0 })
}

func (s *explainer) hasRecords() bool {
	return slices.ContainsFunc(s.past, s.isOf)
}

// isOf reports whether a record belongs to the tick. It also compares local times, because a replica with other zone data may have run the tick at another
// instant.
func (s *explainer) isOf(r journal.Record) bool {
	return r.Tick.Equal(s.at) || r.TickLocal != "" && !s.tickID().Equal(s.at) && r.TickLocal == run.LocalText(cronspec.LocalTime(s.tickID()))
}

// tickID returns the time that identifies the tick on every replica. See [cronspec.Schedule.ID].
func (s *explainer) tickID() time.Time {
	if s.name.IsZero() {
		return s.at
	}
	return s.name
}

func (s *explainer) isHeldBy(h election.Run) bool {
	return h.Tick.Equal(s.tickID()) || h.Instant().Equal(s.at)
}

func (s *explainer) addLine(format string, args ...any) {
	s.Lines = append(s.Lines, fmt.Sprintf(format, args...))
}

func (s *explainer) formatTime(t time.Time) string {
	return t.In(s.At.Location()).Format("2006-01-02 15:04:05 MST")
}

// explainPhase sets the phase from the records and the lock. If neither mentions the tick, it sets the phase from the schedule.
func (s *explainer) explainPhase() error {
	s.Phase = PhaseUnknown
	if s.face.IsZero() || s.info.After != nil || movedTo(s.info, s.instant, s.At.Location()) {
		s.explainRuns()
		s.explainHolders()
		s.explainSettlement()
	}
	if s.bySchedule = len(s.Lines) == 0; s.bySchedule {
		if err := s.explainSchedule(); err != nil {
			return err
		}
	}
	explainIncidents(s)
	switch {
	case s.Phase == PhaseNoTick || s.remark == "":
	case !s.face.IsZero():
		s.addLine("%s, so the tick of %s is right after that", s.remark, s.face.Format("15:04:05"))
	default:
		s.addLine("%s", s.remark)
	}
	return nil
}

func (s *explainer) explainSettlement() {
	if len(s.Runs) > 0 {
		return
	}
	for _, settled := range s.state.Settled {
		if settled.Tick.Equal(s.tickID()) || !settled.After.IsZero() && s.tickID().After(settled.After) && s.tickID().Before(settled.Tick) {
			verdict := run.ParseVerdict(settled.Outcome)
			record := journal.Record{Job: s.Job, Outcome: verdict.Outcome, Reason: verdict.Reason}
			s.Phase = PhaseOver
			s.addLine("%s: %s; no replica has recorded that yet", record.Outcome, ReasonText(record))
			return
		}
	}
}

// explainSchedule explains an instant that neither the records nor the lock mention: a tick without a known outcome, or no tick at all.
func (s *explainer) explainSchedule() error {
	switch {
	case !s.info.Enabled:
		s.Phase = PhaseNoTick
		s.addLine("no tick: job %s is not enabled", s.Job)
		return nil
	case len(s.info.After) > 0:
		s.addLine("job %s runs after %s, and has no record of %s", s.Job, strings.Join(s.info.After, ", "), s.formatTime(s.at))
		return nil
	}
	reason, err := noTick(s.zones, s.info, s.instant)
	switch {
	case err != nil:
		return err
	case reason != "":
		s.Phase = PhaseNoTick
		s.addLine("no tick of job %s: %s", s.Job, reason)
		s.explainNeighbours()
		if s.at.Before(s.state.Now) {
			s.addLine("that is by the job's present schedule")
		}
	case s.at.After(s.state.Now):
		s.Phase = PhaseDue
		s.addLine("a tick that comes in %v", s.at.Sub(s.state.Now).Round(time.Second))
		s.explainPause(s.state.Pause.On(s.at), "it is skipped if the job is still paused then")
	default:
		s.explainDue()
	}
	return nil
}

func (s *explainer) explainDue() {
	since := s.state.Now.Sub(s.at).Round(time.Second)
	pauses := s.state.Pause.On(s.state.Now) || s.state.Pause.Covers(s.at)
	switch {
	case s.state.Decided.IsZero():
		s.addLine("no tick of job %s has been decided in Redis: no replica has announced its schedule yet, or Redis has lost its data; see cronclave status", s.Job)
	case slices.ContainsFunc(s.state.Open, s.tickID().Equal):
		s.Phase = PhaseOpen
		s.addLine("the tick came %v ago; it was granted, given back before its run began, and waits for a replica", since)
		s.explainPause(pauses, "its ticks are skipped")
	case s.tickID().After(s.state.Decided) && len(s.state.Open) > 0:
		s.addLine("the tick came %v ago; an earlier tick still waits, so Redis does not say yet how this one was decided", since)
	case s.tickID().After(s.state.Decided):
		s.Phase = PhaseOpen
		s.addLine("the tick came %v ago and has not started: it waits for its jitter, for a slot, for a replica that can run it, or for Redis", since)
		s.explainPause(pauses, "its ticks are skipped")
	default:
		s.explainForgotten()
	}
}

// explainForgotten explains a decided tick without a record.
func (s *explainer) explainForgotten() {
	for _, i := range s.neighbours() {
		r := s.past[i]
		if !standsFor(r, s.at) {
			continue
		}
		s.Phase = PhaseOver
		s.addLine("%s: %s; the record of the tick of %s stands for many: %s", r.Outcome, ReasonText(r), s.formatTime(r.Tick), strings.TrimSpace(*r.Output))
		return
	}
	if lostHistory(s, s.incidents...) {
		s.addLine("whether this tick ran is not known; it will not run now")
		return
	}
	s.addLine("whether this tick ran is not known; it will not run now. Its record was dropped, or the schedule did not have it then")
	switch oldest := s.oldestTick(); {
	case oldest.IsZero():
		s.addLine("the history has nothing of job %s", s.Job)
	case s.at.Before(oldest):
		s.addLine("the history of job %s begins with the tick of %s; older records are dropped ([history] runs, max_age)", s.Job, s.formatTime(oldest))
	}
}

// standsFor reports whether a record stands for a gap, a series of ticks that did not run, and the gap includes the instant. The record has the tick at one end
// of the gap. Its output names the other end: the last tick, or the tick before the first one.
func standsFor(r journal.Record, at time.Time) bool {
	if r.Output == nil {
		return false
	}
	gap, ok := strings.CutPrefix(strings.TrimSpace(*r.Output), "one record for ")
	if !ok {
		return false
	}
	if gap, ok = strings.CutPrefix(gap, "the ticks after "); ok {
		after, _, _ := strings.Cut(gap, " ")
		from, err := time.Parse(time.RFC3339, after)
		return err == nil && at.After(from) && !at.After(r.Tick)
	}
	_, last, _ := strings.Cut(gap, " to ")
	until, err := time.Parse(time.RFC3339, last)
	return err == nil && !at.Before(r.Tick) && !at.After(until)
}

func (s *explainer) oldestTick() (oldest time.Time) {
	for _, r := range s.past {
		if !r.Tick.IsZero() && (oldest.IsZero() || r.Tick.Before(oldest)) {
			oldest = r.Tick
		}
	}
	return oldest
}

func (s *explainer) explainNeighbours() {
	spec, _, err := scheduleOf(s.zones, s.info)
	if err != nil {
		return
	}
	if before := spec.Prev(s.at); !before.IsZero() {
		s.addLine("the tick before is %s", s.formatTime(before))
	}
	after := spec.Next(s.at)
	if !s.face.IsZero() && isTick(spec, s.at) {
		after = s.at
	}
	if !after.IsZero() {
		s.addLine("the tick after is %s", s.formatTime(after))
	}
}

// explainIncidents adds lines about outages of Redis at the time of the tick, and about losses of Redis' data after the tick.
func explainIncidents(s *explainer) {
	for _, in := range s.incidents {
		switch during := s.formatTime(in.From) + " and " + s.formatTime(in.To); {
		case s.Phase == PhaseNoTick || s.at.After(in.To):
		case lostHistory(s, in) && !s.hasRecords():
			s.addLine("Redis lost its data between %s: earlier records may be missing", during)
		case in.Kind == journal.Outage && !s.at.Before(in.From.Truncate(time.Second)):
			s.addLine("Redis did not answer %s between %s", cmp.Or(in.Replica, "a replica"), during)
		}
	}
	if closed := s.state.Closed; s.Phase == PhaseOpen && closed.After(s.state.Now) {
		s.addLine("its lock stays closed until %s, for one lease, since Redis lost its data", s.formatTime(closed))
	}
}

// lostHistory reports whether one of the incidents may have removed the record of the instant. A loss does not count if the job has a record from before the
// loss, because the loss would have removed that record too.
func lostHistory(s *explainer, incidents ...journal.Incident) bool {
	return slices.ContainsFunc(incidents, func(in journal.Incident) bool {
		older := func(r journal.Record) bool { return !r.Finished.IsZero() && r.Finished.Before(in.From) }
		return in.Kind == journal.DataLoss && !s.at.After(in.To) && !slices.ContainsFunc(s.past, older)
	})
}
