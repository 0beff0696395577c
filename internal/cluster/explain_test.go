package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/journal"
)

// noon is a tick of the hourly job of these explanations.
var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// explained is the explanation of noon by what the history and the locks have, half an hour later.
func explained(t *testing.T, state election.State, past ...journal.Record) *explainer {
	t.Helper()
	return explainNoon(t, &explainer{state: state, past: past})
}

// explainNoon is the explanation of noon by facts.
func explainNoon(t *testing.T, s *explainer) *explainer {
	t.Helper()
	if s.state.Now.IsZero() {
		s.state.Now = noon.Add(30 * time.Minute)
	}
	s.info = journal.JobInfo{Name: "j", Timezone: "UTC", Schedule: []string{"0 * * * *"}, Enabled: true}
	s.Explanation, s.instant = Explanation{Job: "j", At: noon}, instant{at: noon}
	if err := s.explainPhase(); err != nil {
		t.Fatal(err)
	}
	return s
}

// inSlot is a record in a slot.
func inSlot(slot int, r journal.Record) journal.Record {
	r.Slot = &slot
	return r
}

func (s *explainer) wants(t *testing.T, what string, phase Phase, lines ...string) {
	t.Helper()
	text := strings.Join(s.Lines, "\n")
	if s.Phase != phase {
		t.Errorf("%s: %s, want %s:\n%s", what, s.Phase, phase, text)
	}
	for _, line := range lines {
		if !strings.Contains(text, line) {
			t.Errorf("%s: no %q in\n%s", what, line, text)
		}
	}
}

// A tick with records is explained by them, and by the runs that were in its way.
func TestWhyOfRecords(t *testing.T) {
	t.Parallel()
	took := int64(90_000)
	ran := func(id, replica string, outcome journal.Outcome, tick, began, ended time.Time) journal.Record {
		return journal.Record{RunID: id, Job: "j", Replica: replica, Outcome: outcome, Tick: tick, Started: began, Finished: ended, Token: 7, Attempt: 1, Trigger: "schedule", DurationMS: &took}
	}
	settled := func(outcome journal.Outcome, reason journal.Reason) journal.Record {
		return journal.Record{Job: "j", Replica: "r1", Outcome: outcome, Reason: reason, Tick: noon, Finished: noon.Add(time.Second)}
	}
	good := ran("a", "r3", "ok", noon, noon, noon.Add(90*time.Second))
	explained(t, election.State{}, good).wants(t, "a good run", PhaseOver, "ran on r3 with token 7: ok after 1m30s, from 2026-11-26 12:00:00 UTC to 2026-11-26 12:01:30 UTC")

	late := ran("a", "r3", "failed", noon, noon.Add(5*time.Second), noon.Add(time.Minute))
	late.Reason = "exit code 3"
	explained(t, election.State{}, late).wants(t, "a late failure", PhaseOver, "failed (exit code 3)", "it started 5s late, by its jitter")

	slot := 0
	dead := ran("a", "r1", "abandoned", noon, noon, noon.Add(time.Minute))
	twin := ran("t", "r4", "ok", noon, noon, noon.Add(time.Minute))
	tried := ran("b.2", "r2", "failed", noon, noon.Add(time.Minute), noon.Add(time.Minute))
	again := ran("b", "r2", "running", noon, noon.Add(time.Minute), time.Time{})
	dead.Slot, again.Slot, tried.Slot = &slot, &slot, &slot
	again.Trigger, again.Attempt, tried.Trigger, tried.Attempt, tried.Retried = "recovery", 3, "recovery", 2, true
	held := election.State{Running: []election.Run{{ID: "b", Holder: "r2", Tick: noon}}}
	s := explained(t, held, again, tried, dead, twin)
	s.wants(t, "a take-over", PhaseRunning, "ran on r1 with token 7: abandoned (its replica died, or was cut off from Redis)", "runs on r2 with token 7, attempt 3, since 2026-11-26 12:01:00 UTC",
		"take-over from r1, whose run was abandoned")
	if n := strings.Count(strings.Join(s.Lines, "\n"), "take-over"); n != 1 {
		t.Errorf("%d take-overs: %q", n, s.Lines)
	}
	explained(t, election.State{}, again, dead).wants(t, "a run whose lease has ended", PhaseUnknown, "began on r2 with token 7, attempt 3, at 2026-11-26 12:01:00 UTC; its lease has ended")
	explained(t, election.State{}, ran("c", "r3", "running", noon, noon, time.Time{}), inSlot(1, good)).wants(t, "a fan-out, the end of a part of which is not known", PhaseUnknown, "began on r3", "ran on r3")
	fanOut := election.State{Running: []election.Run{{ID: "c", Holder: "r5", Token: 8, Slot: 1, Tick: noon}}}
	explained(t, fanOut, good).wants(t, "a part of a fan-out", PhaseRunning, "ran on r3", "granted to r5 with token 8, slot 1")

	long := ran("x", "r2", "ok", noon.Add(-time.Hour), noon.Add(-time.Hour), noon.Add(10*time.Minute))
	before := ran("w", "r2", "ok", noon.Add(-2*time.Hour), noon.Add(-2*time.Hour), noon.Add(-90*time.Minute))
	s = explained(t, election.State{}, settled("skipped", "overlap"), long, before)
	s.wants(t, "an overlap", PhaseOver, "skipped: all slots of the job were held", "run x of r2 held a slot from 2026-11-26 11:00:00 UTC to 2026-11-26 12:10:00 UTC")
	if strings.Contains(strings.Join(s.Lines, "\n"), "run w") {
		t.Errorf("a run that was over was in the way: %q", s.Lines)
	}

	pause := election.Pause{From: noon.Add(-time.Minute), Outcome: "skipped paused", Reason: "an upgrade"}
	explained(t, election.State{Pause: pause}, settled("skipped", "paused")).wants(t, "a pause", PhaseOver, "skipped: the job was paused", "job j is paused since 2026-11-26 11:59:00 UTC (an upgrade)")
	ended := election.Pause{From: noon.Add(-time.Minute), Until: noon.Add(10 * time.Minute), Outcome: "skipped paused"}
	explained(t, election.State{Pause: ended}, settled("skipped", "paused")).wants(t, "a pause that is over", PhaseOver, "job j was paused from 2026-11-26 11:59:00 UTC to 2026-11-26 12:10:00 UTC")
	later := election.Pause{From: noon.Add(20 * time.Minute), Outcome: "skipped paused"}
	explained(t, election.State{Pause: later}, settled("skipped", "paused")).wants(t, "a pause that began later", PhaseOver, "the audit log has no pause of job j at that time")
	outage := settled("missed", "redis")
	outage.Detail = "Redis did not answer replica r1 from 2026-11-26T11:59:00Z to 2026-11-26T12:02:00Z"
	explained(t, election.State{}, outage).wants(t, "an outage", PhaseOver, "missed: Redis did not answer, or could not decide", outage.Detail)
}

// A tick without a record is explained by the locks and by the schedule.
func TestWhyWithoutRecords(t *testing.T) {
	t.Parallel()
	known := election.State{Decided: noon.Add(-time.Hour)}
	explained(t, known).wants(t, "a waiting tick", PhaseOpen, "came 30m0s ago and has not started")
	open := election.State{Decided: noon.Add(time.Hour), Open: []time.Time{noon}}
	explained(t, open).wants(t, "a tick that was given back", PhaseOpen, "given back before its run began")
	behind := election.State{Decided: noon.Add(-time.Hour), Open: []time.Time{noon.Add(-30 * time.Minute)}}
	explained(t, behind).wants(t, "a tick behind an open one", PhaseUnknown, "an earlier tick still waits")
	unrecorded := election.State{Decided: noon.Add(time.Hour), Settled: []election.Settlement{{Tick: noon, Outcome: "missed redis"}}}
	explained(t, unrecorded).wants(t, "a settlement without a record", PhaseOver, "missed: Redis did not answer, or could not decide; no replica has recorded that yet")
	gap := election.State{Decided: noon.Add(time.Hour), Settled: []election.Settlement{{Tick: noon.Add(time.Hour), After: noon.Add(-time.Hour), Outcome: "missed down"}}}
	explained(t, gap).wants(t, "a gap without a record", PhaseOver, "missed: no replica was up")
	explained(t, election.State{}).wants(t, "a lock that knows nothing", PhaseUnknown, "no replica has announced its schedule yet, or Redis has lost its data")

	past := election.State{Decided: noon.Add(time.Hour)}
	explained(t, past).wants(t, "no history", PhaseUnknown, "whether this tick ran is not known", "has nothing of job j")
	newer := journal.Record{Job: "j", Tick: noon.Add(time.Hour), Finished: noon.Add(time.Hour), Outcome: "ok"}
	explained(t, past, newer).wants(t, "a history that is younger", PhaseUnknown, "begins with the tick of 2026-11-26 13:00:00 UTC")
	many := "one record for 900 ticks, from 2026-11-26T11:00:00Z to 2026-11-26T12:30:00Z\n"
	older := journal.Record{Job: "j", Tick: noon.Add(-time.Hour), Finished: noon.Add(-time.Hour), Outcome: "missed", Reason: "down", Output: &many}
	explained(t, past, newer, older).wants(t, "a gap", PhaseOver, "missed: no replica was up that may run the job", "stands for many: one record for 900 ticks, from")

	many = "one record for 900 ticks, from 2026-11-26T11:00:00Z to 2026-11-26T11:30:00Z\n"
	explained(t, past, older).wants(t, "a gap before the tick", PhaseUnknown, "whether this tick ran is not known")

	former := "one record for the ticks after 2026-11-26T11:30:00Z and up to this one, of a schedule that was edited since\n"
	last := journal.Record{Job: "j", Tick: noon.Add(time.Hour), Finished: noon.Add(time.Hour), Outcome: "missed", Reason: "down", Output: &former}
	explained(t, past, last).wants(t, "a gap of a former schedule", PhaseOver, "missed: no replica was up", "the record of the tick of 2026-11-26 13:00:00 UTC stands for many")
	former = "one record for the ticks after 2026-11-26T12:00:00Z and up to this one, of a schedule that was edited since\n"
	explained(t, past, last).wants(t, "a gap after the tick", PhaseUnknown, "whether this tick ran is not known")

	held := election.State{Decided: noon, Running: []election.Run{{Holder: "r1", Token: 9, Slot: 1, Tick: noon}}}
	explained(t, held).wants(t, "a run without a record", PhaseRunning, "granted to r1 with token 9, slot 1")
	orphaned := election.State{Decided: noon, Orphans: []election.Run{{Holder: "r1", Token: 9, Tick: noon}}}
	explained(t, orphaned).wants(t, "an orphan", PhaseUnknown, "granted to r1 with token 9, whose lease has ended")

	due := election.State{Now: noon.Add(-10 * time.Minute), Decided: noon.Add(-time.Hour), Pause: election.Pause{From: noon.Add(-time.Hour), Outcome: "skipped paused"}}
	explained(t, due).wants(t, "a tick to come", PhaseDue, "a tick that comes in 10m0s", "job j is paused since 2026-11-26 11:00:00 UTC: it is skipped if the job is still paused then")
}

// An instant that is no tick has its neighbours named; a job that follows others has no schedule of its own.
func TestWhyOfNoTick(t *testing.T) {
	t.Parallel()
	s := &explainer{info: journal.JobInfo{Name: "j", Timezone: "UTC", Schedule: []string{"0 * * * *"}, Enabled: true}, state: election.State{Now: noon},
		Explanation: Explanation{Job: "j", At: noon.Add(7 * time.Minute)}, instant: instant{at: noon.Add(7 * time.Minute)}}
	if err := s.explainPhase(); err != nil {
		t.Fatal(err)
	}
	s.wants(t, "between two ticks", PhaseNoTick, "no tick of job j: its schedule does not name it", "the tick before is 2026-11-26 12:00:00 UTC", "the tick after is 2026-11-26 13:00:00 UTC")
	for what, info := range map[string]journal.JobInfo{"not enabled": {Name: "j", Timezone: "UTC", Schedule: []string{"0 * * * *"}}, "runs after p": {Name: "j", Timezone: "UTC", After: []string{"p"}, Enabled: true}} {
		s := &explainer{info: info, state: election.State{Now: noon}, Explanation: Explanation{Job: "j", At: noon}, instant: instant{at: noon}}
		if err := s.explainPhase(); err != nil || !strings.Contains(strings.Join(s.Lines, "\n"), what) {
			t.Errorf("%v, %q, want %q", err, s.Lines, what)
		}
	}
}

// A time that the clock skips is no tick of a job that follows the clock, and the one after the gap of a job of a fixed time. Of a time that the clock shows
// twice the first counts for the latter.
func TestWhyWhereTheClockIsSet(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		schedule, at string
		phase        Phase
		line         string
	}{
		{"@daily", "2026-04-24 00:00", PhaseDue, "the clock of Africa/Cairo jumps from 2026-04-24 00:00:00 to 2026-04-24 01:00:00, so the tick of 00:00:00 is right after that"},
		{"@hourly", "2026-04-24 00:00", PhaseNoTick, "the clock of Africa/Cairo jumps"},
		{"*/30 * * * *", "2026-03-29 02:30", PhaseNoTick, "no tick of job j: the clock of Europe/Berlin jumps from 2026-03-29 02:00:00 to 2026-03-29 03:00:00"},
		{"30 2 * * *", "2026-03-29 02:30", PhaseDue, "jumps from 2026-03-29 02:00:00 to 2026-03-29 03:00:00, so the tick of 02:30:00 is right after that"},
		{"30 2 * * *", "2026-03-29 02:10", PhaseNoTick, "no tick of job j: the clock of Europe/Berlin jumps"},
		{"30 2 * * *", "2026-03-29T01:00:00Z", PhaseDue, ""},
		{"30 2 * * *", "2026-10-25T02:30:00+02:00", PhaseDue, ""},
		{"30 2 * * *", "2026-10-25T02:30:00+01:00", PhaseNoTick, "the first time was the tick"},
		{"*/30 * * * *", "2026-10-25T02:30:00+01:00", PhaseDue, ""},
		{"30 2 * * *", "2026-10-25 02:30", PhaseDue, "is put back, and shows 2026-10-25 02:30:00 twice"},
	} {
		info := journal.JobInfo{Name: "j", Timezone: "Europe/Berlin", Schedule: []string{tc.schedule}, Enabled: true}
		if strings.Contains(tc.line, "Cairo") { // its clock skips midnight
			info.Timezone = "Africa/Cairo"
		}
		i, err := readInstant(tc.at, zoneOf(t, info.Timezone))
		if err != nil {
			t.Fatal(err)
		}
		s := &explainer{info: info, state: election.State{Now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}, Explanation: Explanation{Job: "j", At: i.at}, instant: i}
		if err := s.explainPhase(); err != nil {
			t.Fatal(err)
		}
		s.wants(t, tc.schedule+" at "+tc.at, tc.phase, tc.line)
	}
}

// A tick of a chain is explained by the jobs before it, as far up as they have no record, and has their phase where it has no record.
func TestWhyOfAChain(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	o := c.operator(t, Config{})
	c.describe(t, journal.JobInfo{Name: "extract", Enabled: true, Schedule: []string{"0 0 * * *"}, Timezone: "UTC"}, journal.JobInfo{Name: "load", Enabled: true, After: []string{"extract"}, Timezone: "UTC"},
		journal.JobInfo{Name: "report", Enabled: true, After: []string{"extract", "load", "removed"}, Timezone: "UTC"}, journal.JobInfo{Name: "mail", Enabled: true, After: []string{"load"}},
		journal.JobInfo{Name: "close", Enabled: true, After: []string{"mail", "load"}}, journal.JobInfo{Name: "round", Enabled: true, After: []string{"trip"}}, journal.JobInfo{Name: "trip", Enabled: true, After: []string{"round"}})
	midnight := time.Now().UTC().Truncate(24 * time.Hour)
	record := func(job, id string, outcome journal.Outcome, tick time.Time) {
		r := ended(job, id)
		r.Tick, r.Outcome = tick, outcome
		c.record(t, r)
	}
	failed, good, loaded := midnight.AddDate(0, 0, -2), midnight.AddDate(0, 0, -1), midnight.AddDate(0, 0, -3)
	record("extract", "e1", "failed", failed)
	record("extract", "e2", "ok", good)
	record("extract", "e3", "ok", loaded)
	record("load", "l3", "ok", loaded)
	for _, tc := range []struct {
		job   string
		at    time.Time
		phase Phase
		lines []string
	}{
		{"load", failed, PhaseNoTick, []string{"no tick of job load: it runs only when job extract has ended ok, and that is not so for", "before it, extract: ran"}},
		{"report", failed, PhaseNoTick, []string{"no tick of job report: it runs only when all of the jobs extract, load, removed have ended ok", ": the outcome of job extract is failed", "before it, extract: ran", "before it, load: no tick of job load", "before it, removed: no replica has this job"}},
		{"load", good, PhaseUnknown, []string{"job load runs after extract, and has no record of", "before it, extract: ran"}},
		{"load", loaded, PhaseOver, []string{"ran", "before it, extract: ran"}},
		{"load", midnight.AddDate(0, 0, 1), PhaseDue, []string{"job load has not run yet: it waits until job extract has ended ok", "before it, extract: a tick that comes in"}},
		{"load", good.Add(time.Hour), PhaseNoTick, []string{"no tick of job load", "before it, extract: no tick of job extract"}},
		{"extract", good, PhaseOver, []string{"ran"}},
		{"mail", failed, PhaseNoTick, []string{"no tick of job mail: it runs only when job load has ended ok, and that is not so for", ": the outcome of job extract is failed", "before it, load: no tick of job load", "before load, extract: ran"}},
		{"close", failed, PhaseNoTick, []string{"no tick of job close", ": the outcome of job extract is failed", "before it, mail: no tick of job mail", "before mail, load: no tick of job load", "before load, extract: ran", "before it, load: no tick of job load"}},
		{"close", midnight.AddDate(0, 0, 1), PhaseDue, []string{"job close has not run yet", "before it, mail: job mail has not run yet", "before load, extract: a tick that comes in"}},
		{"close", good.Add(time.Hour), PhaseNoTick, []string{": job extract has no tick then"}},
		{"mail", good, PhaseUnknown, []string{"job mail runs after load, and has no record of", "before it, load: job load runs after extract, and has no record of", "before load, extract: ran"}},
		{"round", good, PhaseUnknown, []string{"job round runs after trip", "before it, trip: job trip runs after round", "before trip, round: job round runs after trip"}},
	} {
		s, err := o.Why(t.Context(), tc.job, tc.at.Format(time.RFC3339))
		if err != nil {
			t.Fatal(err)
		}
		(&explainer{Explanation: *s}).wants(t, tc.job+" at "+tc.at.Format(time.RFC3339), tc.phase, tc.lines...)
		if strings.Contains(s.Lines[0], "before it") {
			t.Errorf("the first line is about another job: %q", s.Lines)
		}
		if lines := slices.Compact(slices.Sorted(slices.Values(s.Lines))); len(lines) < len(s.Lines) {
			t.Errorf("a line is there twice: %q", s.Lines)
		}
	}
}

// A explanation asks about so many jobs at most, the nearest first.
func TestWhyOfALongChain(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	o := c.operator(t, Config{})
	var jobs []journal.JobInfo
	for n := range mostParents + 10 {
		jobs = append(jobs, journal.JobInfo{Name: fmt.Sprintf("j%d", n), Enabled: true, After: []string{fmt.Sprintf("j%d", n+1)}})
	}
	jobs[0].After = append(jobs[0].After, "near")
	c.describe(t, append(jobs, journal.JobInfo{Name: "near", Enabled: true})...)
	s, err := o.Why(t.Context(), "j0", time.Now().UTC().Truncate(24*time.Hour).Add(time.Hour).Format(time.RFC3339))
	if err != nil {
		t.Fatal(err)
	}
	(&explainer{Explanation: *s}).wants(t, "a long chain", PhaseNoTick, "before it, near: no tick of job near", fmt.Sprintf("before j%d, j%d: ", mostParents-2, mostParents-1), fmt.Sprintf("j%d runs after more jobs, which are left out here: 1", mostParents-1))
	if len(s.Lines) != mostParents+2 {
		t.Errorf("%d lines", len(s.Lines))
	}
}

// Why reads all that from Redis.
func TestWhyReadsTheCluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	o := c.operator(t, Config{})
	c.describe(t, journal.JobInfo{Name: "j", Enabled: true})
	midnight := time.Now().UTC().Truncate(24 * time.Hour)
	r := ended("j", "r1")
	r.Tick = midnight
	c.record(t, r)
	explanation, err := o.Why(t.Context(), "j", midnight.Format("2006-01-02 15:04"))
	if err != nil || explanation.Phase != PhaseOver || len(explanation.Runs) != 1 || !explanation.At.Equal(midnight) {
		t.Errorf("%+v, %v", explanation, err)
	}
	gone := ended("gone", "g1")
	gone.Tick = midnight
	c.record(t, gone)
	if explanation, err := o.Why(t.Context(), "gone", midnight.Format(time.RFC3339)); err != nil || explanation.Phase != PhaseOver {
		t.Errorf("of a job that no replica has: %+v, %v", explanation, err)
	}
	if _, err := o.Why(t.Context(), "gone", "2026-11-26 12:00"); !errors.Is(err, ErrUnknownJob) {
		t.Error(err)
	}
	if _, err := o.Why(t.Context(), "k", "2026-11-26 12:00"); !errors.Is(err, ErrUnknownJob) {
		t.Error(err)
	}
	if _, err := o.Why(t.Context(), "j", "soon"); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}

// ranAtNoon is the record of a run of noon in a slot.
func ranAtNoon(slot, attempt int, trigger string, outcome journal.Outcome) journal.Record {
	r := journal.Record{RunID: trigger + string(outcome), Job: "j", Replica: "r1", Outcome: outcome, Trigger: trigger, Tick: noon, Started: noon, Token: 7, Attempt: attempt, Slot: &slot}
	if outcome != journal.OutcomeRunning {
		r.Finished = noon.Add(time.Minute)
	}
	return r
}

// A user may run a tick again that has an outcome. Such a run counts its attempts from the first.
func TestWhyOfARerun(t *testing.T) {
	t.Parallel()
	tried, failed, again := ranAtNoon(0, 1, "schedule", "failed"), ranAtNoon(0, 3, "schedule", "failed"), ranAtNoon(0, 1, "manual", "running")
	tried.RunID, tried.Retried = "x.1", true
	held := election.State{Decided: noon, Running: []election.Run{{ID: again.RunID, Holder: "r1"}}} // a run that a user asked for holds its slot without a tick
	explained(t, held, again, failed, tried).wants(t, "a re-run that goes on", PhaseRunning, "runs on r1 with token 7, since", "a user asked for it", "attempt 3: failed")
	explained(t, election.State{Decided: noon}, again, failed, tried).wants(t, "a re-run that died", PhaseUnknown, "its lease has ended, and no replica has recorded how the run ended")
	explained(t, election.State{Decided: noon}, ranAtNoon(0, 1, "manual", "ok"), failed, tried).wants(t, "a re-run that ended", PhaseOver)
	once, twice := ranAtNoon(0, 1, "manual", "running"), ranAtNoon(0, 2, "manual", "failed")
	twice.Token, twice.RunID = 6, "y"
	explained(t, election.State{Decided: noon}, once, twice, failed).wants(t, "a re-run that died, after one with a retry", PhaseUnknown, "its lease has ended, and no replica has recorded how the run ended")

	recovery := ranAtNoon(0, 4, "recovery", "ok")
	explained(t, held, again, recovery, ranAtNoon(1, 3, "schedule", "abandoned")).wants(t, "a re-run after a recovery", PhaseRunning, "take-over from r1, whose run was abandoned")
	manual := ranAtNoon(2, 2, "manual", "lost")
	manual.Replica = "r9"
	explained(t, election.State{Decided: noon}, ranAtNoon(0, 3, "recovery", "ok"), manual, ranAtNoon(1, 1, "schedule", "abandoned")).wants(t, "a recovery and a re-run", PhaseOver, "take-over from r1, whose run was abandoned")
}

// A recovery in another slot than the run that it follows is the last run of the tick.
func TestWhyOfARecoveryInAnotherSlot(t *testing.T) {
	t.Parallel()
	explained(t, election.State{Decided: noon}, ranAtNoon(0, 2, "recovery", "ok"), ranAtNoon(1, 1, "schedule", "running")).wants(t, "a recovery that ended", PhaseOver)
	explained(t, election.State{Decided: noon}, ranAtNoon(0, 2, "schedule", "ok"), ranAtNoon(1, 1, "schedule", "running")).wants(t, "another run of a fan-out", PhaseUnknown)
}

// A job before others goes on, has ended ok, or keeps them from having a tick, by its last runs: open while one of them may still be recovered.
func TestStatesOfParents(t *testing.T) {
	t.Parallel()
	run, past := ranAtNoon, func(records ...journal.Record) []journal.Record { return records }
	for what, tc := range map[string]struct {
		state election.State
		past  []journal.Record
		want  parentState
	}{
		"good":                             {past: past(run(0, 1, "schedule", "ok")), want: parentOK},
		"failed":                           {past: past(run(0, 1, "schedule", "failed")), want: parentBad},
		"good at the second try":           {past: past(run(0, 2, "schedule", "ok"), run(0, 1, "schedule", "failed")), want: parentOK},
		"failed in one slot of two":        {past: past(run(0, 1, "schedule", "ok"), run(1, 1, "schedule", "failed")), want: parentBad},
		"abandoned":                        {past: past(run(0, 1, "schedule", "abandoned")), want: parentBad},
		"abandoned, with its recovery":     {state: election.State{Orphans: []election.Run{{ID: "01", Tick: noon}}}, past: past(run(0, 1, "schedule", "abandoned")), want: parentPending},
		"recovered, and running":           {state: election.State{Running: []election.Run{{ID: "02", Tick: noon}}}, past: past(run(0, 1, "schedule", "abandoned"), run(0, 2, "recovery", "running")), want: parentPending},
		"recovered in another slot":        {past: past(run(0, 2, "recovery", "ok"), run(1, 1, "schedule", "abandoned")), want: parentOK},
		"recovered twice":                  {past: past(run(2, 1, "schedule", "lost"), run(1, 2, "recovery", "canceled"), run(0, 3, "recovery", "ok")), want: parentOK},
		"a retry beside a lost run":        {past: past(run(0, 1, "schedule", "lost"), run(1, 2, "schedule", "ok")), want: parentBad},
		"good, then run again, and failed": {past: past(run(0, 1, "schedule", "ok"), run(0, 1, "manual", "failed")), want: parentOK},
		"good, and runs again":             {state: election.State{Running: []election.Run{{ID: "manualrunning"}}}, past: past(run(0, 1, "schedule", "ok"), run(0, 1, "manual", "running")), want: parentOK},
		"failed, then run again, and good": {past: past(run(0, 1, "schedule", "failed"), run(1, 2, "manual", "ok")), want: parentBad},
		"failed, and runs again":           {state: election.State{Running: []election.Run{{ID: "manualrunning"}}}, past: past(run(0, 1, "schedule", "failed"), run(0, 1, "manual", "running")), want: parentBad},
		"run by a user alone":              {past: past(run(0, 1, "manual", "ok")), want: parentUnknown},
		"died, and is not recorded":        {past: past(run(0, 1, "schedule", "running")), want: parentUnknown},
		"without a record":                 {state: election.State{Decided: noon.Add(time.Hour)}, want: parentUnknown},
		"due":                              {state: election.State{Decided: noon.Add(-time.Hour)}, want: parentPending},
		"missed, and is not recorded":      {state: election.State{Settled: []election.Settlement{{Tick: noon, Outcome: "missed redis"}}}, want: parentBad},
	} {
		if got := explained(t, tc.state, tc.past...).parentState(); got != tc.want {
			t.Errorf("%s: %v, want %v", what, got, tc.want)
		}
	}
}

// A tick of a chain is not due while a job before it is not known: that may have failed. One that failed is enough to have no tick.
func TestWhyOfAChainThatIsNotKnown(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	o := c.operator(t, Config{})
	after := func(name string, parents ...string) journal.JobInfo {
		return journal.JobInfo{Name: name, Enabled: true, After: parents}
	}
	var many []string
	for n := range mostParents {
		many = append(many, fmt.Sprintf("a%d", n))
	}
	c.describe(t, journal.JobInfo{Name: "daily", Enabled: true}, after("known", "daily"), after("removed", "daily", "gone"),
		after("over", "removed", "daily"), after("capped", append(many, "daily")...))
	for _, name := range many {
		c.describe(t, journal.JobInfo{Name: name, Enabled: true})
	}
	tomorrow := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, 1)
	for job, want := range map[string]Phase{"known": PhaseDue, "removed": PhaseUnknown, "over": PhaseUnknown, "capped": PhaseUnknown} {
		s, err := o.Why(t.Context(), job, tomorrow.Format(time.RFC3339))
		if err != nil {
			t.Fatal(err)
		}
		if s.Phase != want || want == PhaseUnknown && strings.Contains(s.Lines[0], "it waits until") {
			t.Errorf("%s: %s, want %s: %q", job, s.Phase, want, s.Lines)
		}
	}
	if s, err := o.Why(t.Context(), "removed", tomorrow.Add(time.Hour).Format(time.RFC3339)); err != nil || s.Phase != PhaseNoTick {
		t.Errorf("%+v, %v", s, err)
	}
}
