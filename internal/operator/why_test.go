package operator

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/journal"
)

// noon is a tick of the hourly job of these stories.
var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// explained is the story of noon by what the history and the locks have, half an hour later.
func explained(t *testing.T, state election.State, past ...journal.Record) *story {
	t.Helper()
	if state.Now.IsZero() {
		state.Now = noon.Add(30 * time.Minute)
	}
	s := &story{info: journal.JobInfo{Name: "j", Timezone: "UTC", Schedule: []string{"0 * * * *"}, Enabled: true}, state: state, past: past, Story: Story{Job: "j", At: noon}, instant: instant{at: noon}}
	if err := s.explain(); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *story) wants(t *testing.T, what string, fate Fate, lines ...string) {
	t.Helper()
	text := strings.Join(s.Lines, "\n")
	if s.Fate != fate {
		t.Errorf("%s: %s, want %s:\n%s", what, s.Fate, fate, text)
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
	ran := func(id, replica, outcome string, tick, began, ended time.Time) journal.Record {
		return journal.Record{RunID: id, Job: "j", Replica: replica, Outcome: outcome, Tick: tick, Started: began, Finished: ended, Token: 7, Attempt: 1, Trigger: "schedule", DurationMS: &took}
	}
	settled := func(outcome, reason string) journal.Record {
		return journal.Record{Job: "j", Replica: "r1", Outcome: outcome, Reason: reason, Tick: noon, Finished: noon.Add(time.Second)}
	}
	good := ran("a", "r3", "ok", noon, noon, noon.Add(90*time.Second))
	explained(t, election.State{}, good).wants(t, "a good run", Over, "ran on r3 with token 7: ok after 1m30s, from 2026-11-26 12:00:00 UTC to 2026-11-26 12:01:30 UTC")

	late := ran("a", "r3", "failed", noon, noon.Add(5*time.Second), noon.Add(time.Minute))
	late.Reason = "exit code 3"
	explained(t, election.State{}, late).wants(t, "a late failure", Over, "failed (exit code 3)", "it started 5s after its time")

	slot := 0
	dead := ran("a", "r1", "abandoned", noon, noon, noon.Add(time.Minute))
	twin := ran("t", "r4", "ok", noon, noon, noon.Add(time.Minute))
	tried := ran("b.2", "r2", "failed", noon, noon.Add(time.Minute), noon.Add(time.Minute))
	again := ran("b", "r2", "running", noon, noon.Add(time.Minute), time.Time{})
	dead.Slot, again.Slot, tried.Slot = &slot, &slot, &slot
	again.Trigger, again.Attempt, tried.Trigger, tried.Attempt, tried.Retried = "recovery", 3, "recovery", 2, true
	held := election.State{Running: []election.Run{{ID: "b", Holder: "r2", Tick: noon}}}
	s := explained(t, held, again, tried, dead, twin)
	s.wants(t, "a take-over", Running, "ran on r1 with token 7: abandoned (its lease ended before it did)", "runs on r2 with token 7, attempt 3, since 2026-11-26 12:01:00 UTC",
		"take-over from r1, whose run was abandoned")
	if n := strings.Count(strings.Join(s.Lines, "\n"), "take-over"); n != 1 {
		t.Errorf("%d take-overs: %q", n, s.Lines)
	}
	explained(t, election.State{}, again, dead).wants(t, "a run whose lease has ended", Unknown, "began on r2 with token 7, attempt 3, at 2026-11-26 12:01:00 UTC; its lease has ended")
	fanOut := election.State{Running: []election.Run{{ID: "c", Holder: "r5", Token: 8, Slot: 1, Tick: noon}}}
	explained(t, fanOut, good).wants(t, "a part of a fan-out", Running, "ran on r3", "granted to r5 with token 8, slot 1")

	long := ran("x", "r2", "ok", noon.Add(-time.Hour), noon.Add(-time.Hour), noon.Add(10*time.Minute))
	before := ran("w", "r2", "ok", noon.Add(-2*time.Hour), noon.Add(-2*time.Hour), noon.Add(-90*time.Minute))
	s = explained(t, election.State{}, settled("skipped", "overlap"), long, before)
	s.wants(t, "an overlap", Over, "skipped: all slots of the job were held", "run x of r2 held a slot from 2026-11-26 11:00:00 UTC to 2026-11-26 12:10:00 UTC")
	if strings.Contains(strings.Join(s.Lines, "\n"), "run w") {
		t.Errorf("a run that was over was in the way: %q", s.Lines)
	}

	pause := election.Pause{From: noon.Add(-time.Minute), Outcome: "skipped paused", Reason: "an upgrade"}
	explained(t, election.State{Pause: pause}, settled("skipped", "paused")).wants(t, "a pause", Over, "skipped: the job was paused", "job j is paused since 2026-11-26 11:59:00 UTC (an upgrade)")
	ended := election.Pause{From: noon.Add(-time.Minute), Until: noon.Add(10 * time.Minute), Outcome: "skipped paused"}
	explained(t, election.State{Pause: ended}, settled("skipped", "paused")).wants(t, "a pause that is over", Over, "job j was paused from 2026-11-26 11:59:00 UTC to 2026-11-26 12:10:00 UTC")
	later := election.Pause{From: noon.Add(20 * time.Minute), Outcome: "skipped paused"}
	if s := explained(t, election.State{Pause: later}, settled("skipped", "paused")); len(s.Lines) != 1 {
		t.Errorf("a pause that began later: %q", s.Lines)
	}
	explained(t, election.State{}, settled("missed", "redis")).wants(t, "an outage", Over, "missed: Redis did not answer, or had lost its data")
}

// A tick without a record is explained by the locks and by the schedule.
func TestWhyWithoutRecords(t *testing.T) {
	t.Parallel()
	known := election.State{Decided: noon.Add(-time.Hour)}
	explained(t, known).wants(t, "a waiting tick", Open, "has been due for 30m0s and has not started")
	open := election.State{Decided: noon.Add(time.Hour), Open: []time.Time{noon}}
	explained(t, open).wants(t, "a tick that was given back", Open, "given back before its run began")
	behind := election.State{Decided: noon.Add(-time.Hour), Open: []time.Time{noon.Add(-30 * time.Minute)}}
	explained(t, behind).wants(t, "a tick behind an open one", Unknown, "an earlier tick still waits")
	unrecorded := election.State{Decided: noon.Add(time.Hour), Settled: []election.Settlement{{Tick: noon, Outcome: "missed redis"}}}
	explained(t, unrecorded).wants(t, "a settlement without a record", Over, "missed: Redis did not answer, or had lost its data; no replica has recorded that yet")
	gap := election.State{Decided: noon.Add(time.Hour), Settled: []election.Settlement{{Tick: noon.Add(time.Hour), After: noon.Add(-time.Hour), Outcome: "missed down"}}}
	explained(t, gap).wants(t, "a gap without a record", Over, "missed: no replica was up")
	explained(t, election.State{}).wants(t, "a lock that knows nothing", Unknown, "no replica has announced its schedule yet, or Redis has lost its data")

	past := election.State{Decided: noon.Add(time.Hour)}
	explained(t, past).wants(t, "no history", Unknown, "whether this tick ran is not known", "has nothing of job j")
	newer := journal.Record{Job: "j", Tick: noon.Add(time.Hour), Finished: noon.Add(time.Hour), Outcome: "ok"}
	explained(t, past, newer).wants(t, "a history that is younger", Unknown, "begins with the tick of 2026-11-26 13:00:00 UTC")
	many := "one record for 900 ticks, from 2026-11-26T11:00:00Z to 2026-11-26T12:30:00Z\n"
	older := journal.Record{Job: "j", Tick: noon.Add(-time.Hour), Finished: noon.Add(-time.Hour), Outcome: "missed", Reason: "down", Output: &many}
	explained(t, past, newer, older).wants(t, "a gap", Over, "missed: no replica was up that may run the job", "stands for many: one record for 900 ticks, from")

	held := election.State{Decided: noon, Running: []election.Run{{Holder: "r1", Token: 9, Slot: 1, Tick: noon}}}
	explained(t, held).wants(t, "a run without a record", Running, "granted to r1 with token 9, slot 1")
	orphaned := election.State{Decided: noon, Orphans: []election.Run{{Holder: "r1", Token: 9, Tick: noon}}}
	explained(t, orphaned).wants(t, "an orphan", Unknown, "granted to r1 with token 9, whose lease has ended")

	due := election.State{Now: noon.Add(-10 * time.Minute), Decided: noon.Add(-time.Hour), Pause: election.Pause{From: noon.Add(-time.Hour), Outcome: "skipped paused"}}
	explained(t, due).wants(t, "a tick to come", Due, "a tick that is due in 10m0s", "job j is paused since 2026-11-26 11:00:00 UTC: it is skipped if the job is still paused then")
}

// An instant that is no tick has its neighbours named; a job that follows others has no schedule of its own.
func TestWhyOfNoTick(t *testing.T) {
	t.Parallel()
	s := &story{info: journal.JobInfo{Name: "j", Timezone: "UTC", Schedule: []string{"0 * * * *"}, Enabled: true}, state: election.State{Now: noon},
		Story: Story{Job: "j", At: noon.Add(7 * time.Minute)}, instant: instant{at: noon.Add(7 * time.Minute)}}
	if err := s.explain(); err != nil {
		t.Fatal(err)
	}
	s.wants(t, "between two ticks", NoTick, "no tick of job j: its schedule does not name it", "the tick before is 2026-11-26 12:00:00 UTC", "the tick after is 2026-11-26 13:00:00 UTC")
	for what, info := range map[string]journal.JobInfo{"not enabled": {Name: "j", Timezone: "UTC", Schedule: []string{"0 * * * *"}}, "runs after p": {Name: "j", Timezone: "UTC", After: []string{"p"}, Enabled: true}} {
		s := &story{info: info, state: election.State{Now: noon}, Story: Story{Job: "j", At: noon}, instant: instant{at: noon}}
		if err := s.explain(); err != nil || !strings.Contains(strings.Join(s.Lines, "\n"), what) {
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
		fate         Fate
		line         string
	}{
		{"*/30 * * * *", "2026-03-29 02:30", NoTick, "no tick of job j: the clock of Europe/Berlin jumps from 2026-03-29 02:00:00 to 2026-03-29 03:00:00"},
		{"30 2 * * *", "2026-03-29 02:30", Due, "jumps from 2026-03-29 02:00:00 to 2026-03-29 03:00:00, so the tick of 02:30:00 is right after that"},
		{"30 2 * * *", "2026-03-29 02:10", NoTick, "no tick of job j: the clock of Europe/Berlin jumps"},
		{"30 2 * * *", "2026-03-29T01:00:00Z", Due, ""},
		{"30 2 * * *", "2026-10-25T02:30:00+02:00", Due, ""},
		{"30 2 * * *", "2026-10-25T02:30:00+01:00", NoTick, "the first time was the tick"},
		{"*/30 * * * *", "2026-10-25T02:30:00+01:00", Due, ""},
		{"30 2 * * *", "2026-10-25 02:30", Due, "is put back, and shows 2026-10-25 02:30:00 twice"},
	} {
		info := journal.JobInfo{Name: "j", Timezone: "Europe/Berlin", Schedule: []string{tc.schedule}, Enabled: true}
		i, err := readInstant(tc.at, zoneOf(t, info.Timezone))
		if err != nil {
			t.Fatal(err)
		}
		s := &story{info: info, state: election.State{Now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}, Story: Story{Job: "j", At: i.at}, instant: i}
		if err := s.explain(); err != nil {
			t.Fatal(err)
		}
		s.wants(t, tc.schedule+" at "+tc.at, tc.fate, tc.line)
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
	story, err := o.Why(t.Context(), "j", midnight.Format("2006-01-02 15:04"))
	if err != nil || story.Fate != Over || len(story.Runs) != 1 || !story.At.Equal(midnight) {
		t.Errorf("%+v, %v", story, err)
	}
	gone := ended("gone", "g1")
	gone.Tick = midnight
	c.record(t, gone)
	if story, err := o.Why(t.Context(), "gone", midnight.Format(time.RFC3339)); err != nil || story.Fate != Over {
		t.Errorf("of a job that no replica has: %+v, %v", story, err)
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
