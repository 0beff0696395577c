package replica

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/events"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn/redistest"
	"github.com/cronclave/cronclave/scheduler/run"
)

// The description of a calendar has the days that may still matter in any time zone, as far back as the history goes, and not more than so many that are over.
func TestDescribedDates(t *testing.T) {
	dates := []string{"2026-01-01", "2026-12-24", "2026-12-25"}
	now := func(day int) time.Time { return time.Date(2026, 12, day, 1, 0, 0, 0, time.UTC) }
	for day, want := range map[int]int{23: 2, 24: 2, 25: 2, 26: 2, 27: 1, 28: 0} {
		if got := describedDates(dates, now(day), 0); len(got) != want {
			t.Errorf("from day %d: %v", day, got)
		}
	}
	if got := describedDates(dates, now(31), 5*24*time.Hour); !slices.Equal(got, dates[1:]) {
		t.Errorf("with a history of five days: %v", got)
	}
	if got := describedDates(nil, time.Now(), time.Hour); len(got) != 0 {
		t.Error(got)
	}
	var years []string
	for n := range 1000 {
		years = append(years, now(0).AddDate(0, 0, n-900).Format(time.DateOnly))
	}
	got := describedDates(years, now(0), 900*24*time.Hour)
	if past, _ := slices.BinarySearch(got, now(-2).Format(time.DateOnly)); past != mostPastDates || got[len(got)-1] != years[999] {
		t.Errorf("%d days of %d that are over, until %s", past, len(got), got[len(got)-1])
	}
}

// An abandoned run is logged by the replica whose record is the first, at WARN if it runs again or was to stop. A run that a drained replica has recorded
// before it handed it over is not logged at all.
func TestAbandonedRunsAreLoggedOnce(t *testing.T) {
	t.Parallel()
	_, conn, _ := redistest.StartJournal(t)
	var log bytes.Buffer
	said := func(name string, records ...run.Record) {
		t.Helper()
		own := hclog.New(&hclog.LoggerOptions{Output: &log, DisableTime: true, Name: name})
		j, err := conn.OpenJournal(&config.Config{Namespace: "default"}, func(first journal.Record) { logAbandoned(own, events.Outcome{Record: first}) }, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := (recorder{journal: j}).Record(t.Context(), records); err != nil {
			t.Fatal(err)
		}
	}
	at := time.Unix(1000, 0)
	recordOf := func(id string, outcome run.Outcome, reason run.Reason, recovers bool) run.Record {
		return run.Record{RunID: id, Job: "j", Token: 7, Attempt: 1, Replica: "r1", Outcome: outcome, Reason: reason, Finished: at, Recovers: recovers}
	}
	drained := recordOf("drained", run.Canceled, "drain", false)
	drained.Started = at
	said("r1", drained)
	for _, survivor := range []string{"r2", "r3"} {
		said(survivor, recordOf("gone", run.Abandoned, "", false), recordOf("recovered", run.Abandoned, "", true), recordOf("stopped", run.Abandoned, "user", false),
			recordOf("well", run.OK, "", false), recordOf("drained", run.Abandoned, "", true))
	}
	want := `[ERROR] r2: run abandoned: its holder is gone: job=j run_id=gone replica_lost=r1 token=7
[WARN]  r2: run abandoned: its holder is gone: job=j run_id=recovered replica_lost=r1 token=7
[WARN]  r2: run abandoned: its holder is gone: job=j run_id=stopped replica_lost=r1 token=7
[WARN]  r2: run ended well: its holder was gone before it could release it: job=j run_id=well replica_lost=r1 token=7
`
	if log.String() != want {
		t.Errorf("logged\n%swant\n%s", log.String(), want)
	}
}

// A day that a calendar takes out is explained as long as the history goes back: the calendar's day reaches the readers by way of the descriptions in Redis.
func TestWhyKnowsPastDaysOfCalendars(t *testing.T) {
	_, conn, _ := redistest.StartJournal(t)
	today := time.Now().UTC().Truncate(24 * time.Hour)
	holiday := today.AddDate(0, 0, -20)
	cfg := &config.Config{Namespace: "default", History: config.History{MaxAge: 30 * 24 * time.Hour}, Jobs: []config.Job{{Name: "j", Enabled: true,
		Ticks: config.Ticks{Schedule: []string{"@daily"}, Location: time.UTC, ExceptDates: []string{holiday.Format(time.DateOnly)}}}}}
	j, err := conn.OpenJournal(cfg, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	o, err := cluster.New(cluster.Config{Conn: conn, Journal: j, Namespace: cfg.Namespace})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Close() })
	if err := j.DescribeJobs(t.Context(), DescribeJobs(cfg, time.Now())); err != nil {
		t.Fatal(err)
	}
	story, err := o.Why(t.Context(), "j", holiday.Format(time.RFC3339))
	if err != nil || story.Phase != cluster.PhaseNoTick || !strings.Contains(story.Lines[0], "a calendar of the job's except has this day") {
		t.Errorf("%+v, %v", story, err)
	}
	r := journal.Record{RunID: "after", Job: "j", Replica: "a", Outcome: "ok", Token: 1, Tick: holiday.AddDate(0, 0, 1), Started: holiday.AddDate(0, 0, 1), Finished: holiday.AddDate(0, 0, 1)}
	if err := j.Record(t.Context(), []journal.Record{r}); err != nil {
		t.Fatal(err)
	}
	if story, err := o.Why(t.Context(), "j", r.Tick.Format(time.RFC3339)); err != nil || story.Phase != cluster.PhaseOver {
		t.Errorf("the day after it: %+v, %v", story, err)
	}
}

// TestDateJobs: a description takes over the earliest date of one with the same ticks.
func TestDateJobs(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	before := now.Add(-time.Hour)
	job := journal.JobInfo{Name: "j", Schedule: []string{"0 3 * * *"}, Timezone: "UTC", Except: []string{"0 0 * * 7"}, ExceptDates: []string{"2026-12-25"},
		StartsAt: before, ExpiresAt: now.Add(time.Hour), Enabled: true, Digest: "1", StaleAfterMS: 1, Since: before}
	known := func(change func(*journal.JobInfo)) journal.JobInfo {
		k := job
		change(&k)
		return k
	}
	at := func(since time.Time) journal.JobInfo { return known(func(k *journal.JobInfo) { k.Since = since }) }
	for name, tc := range map[string]struct {
		known []journal.JobInfo
		want  time.Time
	}{
		"nothing":                   {nil, now},
		"the same":                  {[]journal.JobInfo{job}, before},
		"of this instant":           {[]journal.JobInfo{at(now)}, now},
		"by an older version":       {[]journal.JobInfo{job, at(time.Time{})}, time.Time{}},
		"the earliest is the first": {[]journal.JobInfo{job, at(before.Add(time.Second))}, before},
		"the earliest is the last":  {[]journal.JobInfo{at(before.Add(time.Second)), job}, before},
		"after now":                 {[]journal.JobInfo{at(now.Add(time.Second))}, now},
		"after now, and the same":   {[]journal.JobInfo{at(now.Add(time.Second)), job}, before},
		"another job":               {[]journal.JobInfo{known(func(k *journal.JobInfo) { k.Name = "k" })}, now},
		"not enabled":               {[]journal.JobInfo{known(func(k *journal.JobInfo) { k.Enabled = false })}, now},
		"another schedule":          {[]journal.JobInfo{known(func(k *journal.JobInfo) { k.Schedule = []string{"0 4 * * *"} })}, now},
		"another zone":              {[]journal.JobInfo{known(func(k *journal.JobInfo) { k.Timezone = "Europe/Berlin" })}, now},
		"chained":                   {[]journal.JobInfo{known(func(k *journal.JobInfo) { k.After = []string{"k"} })}, now},
		"other exceptions":          {[]journal.JobInfo{known(func(k *journal.JobInfo) { k.Except = nil })}, now},
		"another start":             {[]journal.JobInfo{known(func(k *journal.JobInfo) { k.StartsAt = time.Time{} })}, now},
		"another end":               {[]journal.JobInfo{known(func(k *journal.JobInfo) { k.ExpiresAt = now })}, now},
		"a day that is over":        {[]journal.JobInfo{known(func(k *journal.JobInfo) { k.ExceptDates = []string{"2026-10-25", "2026-12-25"} })}, before},
		"another command":           {[]journal.JobInfo{known(func(k *journal.JobInfo) { k.Digest = "2" })}, before},
		"another stale_after":       {[]journal.JobInfo{known(func(k *journal.JobInfo) { k.StaleAfterMS = 2 })}, before},
	} {
		if got := dateJobs([]journal.JobInfo{at(time.Time{}), {Name: "new"}}, tc.known, now); !got[0].Since.Equal(tc.want) || !got[1].Since.Equal(now) {
			t.Errorf("%s: %v and %v, want %v", name, got[0].Since, got[1].Since, tc.want)
		}
	}
}

// TestStreakForALogLine: a failed run is logged with the number of failures since the last ok, the first of them, and that ok.
func TestStreakForALogLine(t *testing.T) {
	_, _, j := redistest.StartJournal(t)
	r := recorder{journal: j}
	now := time.Now().Truncate(time.Second)
	end := func(id string, outcome journal.Outcome, ago time.Duration) journal.Record {
		return journal.Record{RunID: id, Job: "j", Replica: "a", Outcome: outcome, Started: now.Add(-ago), Finished: now.Add(-ago)}
	}
	if got := r.streakFields(t.Context(), "j"); got != nil {
		t.Errorf("without a record: %v", got)
	}
	if err := j.Record(t.Context(), []journal.Record{end("1", "ok", time.Hour), end("2", "timeout", 2*time.Minute), end("3", "skipped", time.Minute), end("4", "failed", 0)}); err != nil {
		t.Fatal(err)
	}
	want := []any{"failures", 2, "failing_since", now.Add(-2 * time.Minute).UTC().Format(time.RFC3339), "last_ok", now.Add(-time.Hour).UTC().Format(time.RFC3339)}
	if got := r.streakFields(t.Context(), "j"); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
