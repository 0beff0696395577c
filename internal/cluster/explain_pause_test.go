package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/journal"
)

// skippedAtNoon is the record of a tick in a pause.
func skippedAtNoon() journal.Record {
	return journal.Record{RunID: "p", Job: "j", Replica: "r1", Outcome: "skipped", Reason: "paused", Tick: noon, Finished: noon.Add(time.Second)}
}

// A tick in an earlier pause than the newest, and in one that was resumed, is explained by the audit log.
func TestWhyOfAnEarlierPause(t *testing.T) {
	t.Parallel()
	var many []string
	for n := range 20 {
		many = append(many, fmt.Sprintf("a%d", n))
	}
	at := func(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }
	act := func(kind, by string, minutes int, jobs ...string) journal.Act {
		return journal.Act{Kind: kind, By: by, Time: at(minutes), Jobs: jobs, JobCount: len(jobs), Reason: by + "'s reason"}
	}
	until := func(a journal.Act, minutes int) journal.Act {
		end := at(minutes)
		a.Until = &end
		return a
	}
	all := func(a journal.Act, last string) journal.Act {
		a.Jobs, a.JobCount = append(append(a.Jobs, many[1:]...), last), 300
		return a
	}
	allJobs := func(a journal.Act) journal.Act { return all(a, "i") } // an act that may be on job j
	onSince := func(minutes int, by string) election.Pause {
		return election.Pause{From: at(minutes), By: by, Reason: by + "'s reason", Outcome: "skipped paused"}
	}
	later := election.Pause{From: at(20), By: "zoe", Outcome: "skipped paused"}
	for what, tc := range map[string]struct {
		newest election.Pause
		acts   []journal.Act
		want   string
	}{
		"resumed by a user":                        {later, []journal.Act{act("pause", "ann", -10, "i", "j"), act("resume", "bob", 5, "j")}, "job j was paused by ann from 2026-11-26 11:50:00 UTC to 2026-11-26 12:05:00 UTC (ann's reason)"},
		"ended by itself":                          {later, []journal.Act{until(act("pause", "ann", -10, "j"), 10)}, "job j was paused by ann from 2026-11-26 11:50:00 UTC to 2026-11-26 12:10:00 UTC (ann's reason)"},
		"carried on before":                        {later, []journal.Act{until(act("pause", "ann", -10, "j"), 10), act("pause", "bob", -5, "j"), act("resume", "bob", 5, "j")}, "job j was paused by bob from 2026-11-26 11:50:00 UTC to 2026-11-26 12:05:00 UTC (bob's reason)"},
		"carried on later":                         {later, []journal.Act{until(act("pause", "ann", -10, "j"), 10), until(act("pause", "bob", 5, "j"), 15)}, "job j was paused by ann from 2026-11-26 11:50:00 UTC to 2026-11-26 12:15:00 UTC (ann's reason)"},
		"asked for in the pause":                   {later, []journal.Act{{Kind: "pause", By: "ann", Time: noon.Add(time.Second), Jobs: []string{"j"}, JobCount: 1}, act("resume", "bob", 5, "j")}, "job j was paused by ann from 2026-11-26 12:00:01 UTC to 2026-11-26 12:05:00 UTC"},
		"without a known end":                      {later, []journal.Act{act("pause", "ann", -10, "j")}, "job j was paused by ann at 2026-11-26 11:50:00 UTC, its end is not known (ann's reason)"},
		"of many jobs":                             {later, []journal.Act{all(act("pause", "ann", -10), "i"), all(act("resume", "bob", 5), "i")}, "job j was paused by ann from 2026-11-26 11:50:00 UTC to 2026-11-26 12:05:00 UTC (ann's reason)\nnot certain: the audit log"},
		"of many other jobs":                       {later, []journal.Act{all(act("pause", "ann", -10), "k")}, "the audit log has no pause of job j at that time"},
		"of another job":                           {later, []journal.Act{act("pause", "ann", -10, "i")}, "the audit log has no pause of job j at that time"},
		"over before the tick":                     {later, []journal.Act{act("pause", "ann", -10, "j"), act("resume", "bob", -5, "j")}, "the audit log has no pause of job j at that time"},
		"begun later":                              {later, []journal.Act{act("pause", "zoe", 20, "j")}, "the audit log has no pause of job j at that time"},
		"the newest, resumed":                      {election.Pause{From: at(-10), Until: at(5), Outcome: "skipped paused"}, []journal.Act{act("pause", "ann", -10, "j"), act("resume", "bob", 5, "j")}, "job j was paused by ann from 2026-11-26 11:50:00 UTC to 2026-11-26 12:05:00 UTC (ann's reason)"},
		"on, carried on later":                     {onSince(-10, "zoe"), []journal.Act{act("pause", "ann", -10, "j"), act("pause", "zoe", 10, "j")}, "job j is paused by ann since 2026-11-26 11:50:00 UTC (ann's reason)"},
		"on, carried on before":                    {onSince(-10, "zoe"), []journal.Act{act("pause", "ann", -10, "j"), act("pause", "zoe", -5, "j")}, "job j is paused by zoe since 2026-11-26 11:50:00 UTC (zoe's reason)"},
		"on, not logged":                           {onSince(-10, "zoe"), nil, "job j is paused by zoe since 2026-11-26 11:50:00 UTC (zoe's reason)"},
		"on, since an act that is not logged":      {onSince(-5, "zoe"), []journal.Act{act("pause", "ann", -20, "j"), act("resume", "ann", -15, "j")}, "job j is paused by zoe since 2026-11-26 11:55:00 UTC (zoe's reason)"},
		"an act on many jobs ends a named pause":   {onSince(-5, "zoe"), []journal.Act{act("pause", "ann", -60, "j"), allJobs(act("resume", "bob", -30)), allJobs(act("pause", "zoe", -5))}, "job j is paused by zoe since 2026-11-26 11:55:00 UTC (zoe's reason): its ticks are skipped"},
		"an earlier act on many jobs does so":      {later, []journal.Act{act("pause", "ann", -60, "j"), allJobs(act("resume", "bob", -30)), allJobs(act("pause", "zoe", -5)), allJobs(act("resume", "zoe", 5))}, "job j was paused by zoe from 2026-11-26 11:55:00 UTC to 2026-11-26 12:05:00 UTC (zoe's reason)\nnot certain: the audit log"},
		"an act on many jobs was not on this one":  {later, []journal.Act{act("pause", "ann", -60, "j"), allJobs(act("resume", "bob", -30))}, "job j was paused by ann at 2026-11-26 11:00:00 UTC, its end is not known (ann's reason)"},
		"an act on many jobs before a named pause": {later, []journal.Act{allJobs(act("pause", "zoe", -60)), allJobs(act("resume", "zoe", -30)), act("pause", "ann", -10, "j"), act("resume", "ann", 5, "j")}, "job j was paused by ann from 2026-11-26 11:50:00 UTC to 2026-11-26 12:05:00 UTC (ann's reason)"},
		"the newest, not logged":                   {election.Pause{From: at(-10), Until: at(5), Outcome: "skipped paused"}, nil, "job j was paused from 2026-11-26 11:50:00 UTC to 2026-11-26 12:05:00 UTC"},
	} {
		s := explainNoon(t, &explainer{state: election.State{Pause: tc.newest}, past: []journal.Record{skippedAtNoon()}, acts: tc.acts})
		if text := strings.Join(s.Lines, "\n"); !strings.HasPrefix(text, "skipped: the job was paused\n"+tc.want) || !s.needsActs() || strings.Contains(text, "many jobs") != strings.Contains(tc.want, "many jobs") {
			t.Errorf("%s: %q, want %q", what, text, tc.want)
		}
	}
}

// A tick is settled by the newest pause when a replica asks for it, which may have begun after another one that had the tick.
func TestWhyOfTwoPauses(t *testing.T) {
	t.Parallel()
	at := func(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }
	act := func(kind, by string, minutes int) journal.Act {
		return journal.Act{Kind: kind, By: by, Time: at(minutes), Jobs: []string{"j"}, JobCount: 1}
	}
	asked := skippedAtNoon()
	asked.Finished = at(10)
	acts := []journal.Act{act("pause", "ann", -10), act("resume", "ann", 5), act("pause", "bob", 8), act("resume", "bob", 15)}
	for what, tc := range map[string]struct {
		newest election.Pause
		want   string
	}{
		"the newest":         {election.Pause{From: at(8), Until: at(15), Outcome: "skipped paused"}, "job j was paused by bob from 2026-11-26 12:08:00 UTC to 2026-11-26 12:15:00 UTC"},
		"one before another": {election.Pause{From: at(20), Outcome: "skipped paused"}, "job j was paused by bob from 2026-11-26 12:08:00 UTC to 2026-11-26 12:15:00 UTC"},
	} {
		explainNoon(t, &explainer{state: election.State{Pause: tc.newest}, past: []journal.Record{asked}, acts: acts}).wants(t, what, PhaseOver, tc.want)
	}
	s := explainNoon(t, &explainer{state: election.State{Pause: election.Pause{From: at(-10), Until: at(5), Outcome: "skipped paused"}}, past: []journal.Record{asked}, acts: acts[:2]})
	s.wants(t, "one that was over when the tick was asked for", PhaseOver, "job j was paused by ann from 2026-11-26 11:50:00 UTC to 2026-11-26 12:05:00 UTC")
	acts[2].Time, acts[3].Time = at(6), at(7)
	s = explainNoon(t, &explainer{state: election.State{Pause: election.Pause{From: at(20), Outcome: "skipped paused"}}, past: []journal.Record{asked}, acts: acts})
	s.wants(t, "a settlement that was recorded late", PhaseOver, "job j was paused by ann from 2026-11-26 11:50:00 UTC to 2026-11-26 12:05:00 UTC")
}

// Why reads the audit log for such a tick.
func TestWhyReadsTheAuditLog(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	o, ctx := c.operator(t, Config{}), t.Context()
	c.describe(t, journal.JobInfo{Name: "j", Enabled: true})
	selected := Selection{Jobs: []string{"j"}}
	pause := func(by string) {
		if _, err := o.Pause(ctx, PauseRequest{selected, Requester{By: by, Reason: "disks of " + by}, 0}); err != nil {
			t.Fatal(err)
		}
	}
	pause("ann")
	r := skippedAtNoon()
	r.Tick, r.Finished = time.Now().UTC().Truncate(24*time.Hour), time.Now()
	c.record(t, r)
	if _, err := o.Resume(ctx, ResumeRequest{selected, Requester{By: "bob"}}); err != nil {
		t.Fatal(err)
	}
	for _, by := range []string{"", "zoe"} { // after the resumption, and after another pause
		if by != "" {
			pause(by)
		}
		s, err := o.Why(ctx, "j", r.Tick.Format(time.RFC3339))
		if err != nil || len(s.Lines) != 2 || !strings.HasPrefix(s.Lines[1], "job j was paused by ann from ") || !strings.HasSuffix(s.Lines[1], "(disks of ann)") {
			t.Errorf("%+v, %v", s, err)
		}
	}
}

// The audit log is read once, for the job in question and not for those before it, and a explanation is sound without it.
func TestWhyReadsTheAuditLogOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	o, ctx := c.operator(t, Config{}), t.Context()
	c.describe(t, journal.JobInfo{Name: "j", Enabled: true, After: []string{"p", "q"}}, journal.JobInfo{Name: "p", Enabled: true}, journal.JobInfo{Name: "q", Enabled: true})
	r := skippedAtNoon()
	r.Tick, r.Finished = time.Now().UTC().Truncate(24*time.Hour), time.Now()
	for _, job := range []string{"j", "p", "q"} {
		r.Job = job
		c.record(t, r)
	}
	read := c.count(t, func(args []any) bool {
		return args[0] == "zrevrange" && strings.HasSuffix(fmt.Sprint(args[1]), "audit")
	})
	s, err := o.Why(ctx, "j", r.Tick.Format(time.RFC3339))
	if err != nil || read.n.Load() != 1 {
		t.Errorf("read %d times, %+v, %v", read.n.Load(), s, err)
	}
	(&explainer{Explanation: *s}).wants(t, "a readable log", PhaseOver, "the audit log has no pause of job j at that time", "before it, p: skipped: the job was paused", "before it, q: ")
	unread := func(what, want string) {
		s, err := o.Why(ctx, "j", r.Tick.Format(time.RFC3339))
		if err != nil {
			t.Fatal(what, err)
		}
		(&explainer{Explanation: *s}).wants(t, what, PhaseOver, "skipped: the job was paused", want, "before it, p: skipped")
		if strings.Contains(strings.Join(s.Lines, "\n"), "has no pause") {
			t.Errorf("%s: %q", what, s.Lines)
		}
	}
	read.failing = context.DeadlineExceeded
	unread("no answer", "the audit log cannot be read: context deadline exceeded")
	read.failing = nil
	if err := c.conn.Set(ctx, "cronclave:default:audit", "junk", 0).Err(); err != nil {
		t.Fatal(err)
	}
	unread("another kind of value", "the audit log cannot be read: ")
}
