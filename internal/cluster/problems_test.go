package cluster

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/journal"
)

// Problems are named with their age: jobs whose last outcome is a failure, and replicas that are gone.
func TestProblemsAreNamed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	o := c.operator(t, Config{})
	c.describe(t, journal.JobInfo{Name: "good", Enabled: true}, journal.JobInfo{Name: "bad", Enabled: true}, journal.JobInfo{Name: "late", Enabled: true})
	bad := ended("bad", "r2")
	bad.Outcome, bad.Reason = "failed", "exit code 3\nand more"
	bad.Started, bad.Finished = bad.Started.Add(time.Second), bad.Finished.Add(time.Second)
	tried := ended("good", "r0.1") // before the end of its run
	tried.Started, tried.Finished = tried.Started.Add(-time.Second), tried.Finished.Add(-time.Second)
	tried.Outcome, tried.Retried = "failed", true
	before := ended("bad", "r1")
	good := before.Finished.UTC().Format(time.RFC3339)
	c.record(t, before, bad, tried, ended("good", "r1"), journal.Record{RunID: "m", Job: "late", Tick: time.Now(), Finished: time.Now(), Outcome: "missed", Reason: "redis"})
	c.register(t, journal.Replica{Name: "up"})
	c.lose(t, "gone", time.Minute, true)
	c.lose(t, "lone", time.Minute, true)
	c.describe(t, journal.JobInfo{Name: "tidy@lone", Enabled: true}, journal.JobInfo{Name: "tidy@up", Enabled: true}, journal.JobInfo{Name: "off@gone"})
	if err := c.conn.Do(t.Context(), "ZADD", "cronclave:default:lost", time.Now().UnixMilli(), "up").Err(); err != nil { // a leader noted it late
		t.Fatal(err)
	}
	st, err := o.Status(t.Context(), StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, p := range st.Problems {
		if p.Job+p.Replica == "" {
			continue
		}
		found = append(found, string(p.Level)+" "+p.Code+" "+p.Job+p.Replica+": "+p.Message)
		if p.Since == nil || time.Since(*p.Since) > time.Hour || p.Since.Location() != time.UTC {
			t.Errorf("%s since %v", p.Message, p.Since)
		}
	}
	want := []string{
		"warning replica_lost lone: the registration of replica lone expired: it died, or was cut off; its ticks go to the other replicas, except for jobs with per_tick = \"all\", whose ticks on it are missed; start it again, or say that it is gone for good: cronclave forget lone",
		"warning replica_lost gone: the registration of replica gone expired: it died, or was cut off; its ticks go to the other replicas; start it again, or say that it is gone for good: cronclave forget gone",
		"error job_failed bad: job bad failed on a: exit code 3; last ok at " + good,
		"warning job_missed late: job late missed: redis",
	}
	if !slices.Equal(found, want) || !st.NeedsPerson() {
		t.Errorf("%s", strings.Join(found, "\n"))
	}
	if len(st.Lost) != 2 || st.Lost[0].Name != "lone" || st.Lost[1].Name != "gone" {
		t.Errorf("lost: %+v", st.Lost)
	}
}

// Problems of replicas have the time that these have registered, the earliest of several, and the replica where it is one. Older versions register none.
func TestProblemsOfReplicasHaveTheirTime(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	early, late := time.Now().Add(-time.Hour).UTC().Truncate(time.Second), time.Now().Add(-time.Minute).UTC().Truncate(time.Second)
	c.register(t, journal.Replica{Name: "a", ConfigDigest: "1", Refused: "a fault", Unable: "no memory", ClockOffsetMS: 90_000,
		Since: map[string]time.Time{CodeConfigRefused: early, CodeCannotStart: late, CodeClockOff: late, CodeConfigDiffers: late}})
	c.register(t, journal.Replica{Name: "b", ConfigDigest: "2", Since: map[string]time.Time{CodeConfigDiffers: early}})
	c.register(t, journal.Replica{Name: "old", ConfigDigest: "2", ClockOffsetMS: -90_000})
	for _, id := range []string{"1", "2"} {
		twin := journal.Replica{ID: "twin-" + id, Name: "twin", ConfigDigest: "2", Seen: time.Now(), Since: map[string]time.Time{CodeSameName: late}}
		if _, err := c.journal.Register(t.Context(), twin, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	st, err := c.operator(t, Config{}).Status(t.Context(), StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, p := range st.Problems {
		if p.Since != nil && p.Since.Location() != time.UTC {
			t.Errorf("%+v", p)
		}
		if p.Code == CodeCannotStart && !strings.HasSuffix(p.Message, `; other replicas run its ticks, except for jobs with per_tick = "all"`) {
			t.Errorf("%s", p.Message)
		}
		if since := orZero(p.Since); p.Code != "embedded" {
			found[strings.TrimSpace(p.Code+" "+p.Replica)] = map[time.Time]string{early: "early", late: "late"}[since]
		}
	}
	want := map[string]string{"config_refused a": "early", "cannot_start a": "late", "clock_off a": "late", "clock_off old": "", "config_differs": "early", "same_name": "late"}
	if !maps.Equal(found, want) {
		t.Errorf("%v, want %v", found, want)
	}
}

// A cluster without a replica says so first.
func TestNoReplicaComesFirst(t *testing.T) {
	t.Parallel()
	st, err := newCluster(t).operator(t, Config{}).Status(t.Context(), StatusRequest{})
	if err != nil || len(st.Problems) == 0 || st.Problems[0].Code != "no_replica" || st.Problems[0].Level != LevelError {
		t.Errorf("%v, %+v", err, st)
	}
}

// A replica is shown as what it does by its last sign of life.
func TestReplicasHaveStates(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for state, r := range map[ReplicaState]journal.Replica{
		ReplicaUp:       {Seen: now},
		ReplicaDraining: {Seen: now, Draining: true, Unable: "too many files"},
		ReplicaUnable:   {Seen: now, Unable: "too many files"},
		ReplicaSilent:   {Seen: now.Add(-RegisterEvery - RegistrationDelay), Draining: true},
	} {
		if got := stateOf(r, now, time.Time{}); got != state {
			t.Errorf("%s, want %s", got, state)
		}
	}
}

// TestLateRenewalFitsItsLease: a lost lease is said to be lost, and the leadership stops no run and has no length to set.
func TestLateRenewalFitsItsLease(t *testing.T) {
	t.Parallel()
	for of, tc := range map[string]struct {
		left  int64
		want  string
		stops bool
	}{
		"job a":                    {1, "renewed the lease of job a with only 0.0s", true},
		"pool db":                  {0, "lost the lease of pool db", false},
		"":                         {14_000, "renewed the lease of a job with", true},
		journal.MarginOfLeadership: {7_000, "renewed the lease of the leadership with only 7.0s", false},
	} {
		text := Replica{Name: "r", LeaseMargin: &journal.LeaseMargin{Of: of, LeftMS: tc.left, LeaseMS: 30_000}}.lateRenewal()
		if !strings.Contains(text, tc.want) || strings.Contains(text, "38 %") != tc.stops || strings.Contains(text, "longer lease") != tc.stops {
			t.Errorf("%s: %s", of, text)
		}
	}
}

// A renewal of which less than half of the lease was left is a warning that says what to do. Replicas that say nothing of their leases have no problem.
func TestLateRenewalIsAWarning(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for name, left := range map[string]int64{"late": 14_999, "prompt": 15_000} {
		c.register(t, journal.Replica{Name: name, Running: 3, MaxRunning: 8, LeaseMargin: &journal.LeaseMargin{Of: "job a", LeftMS: left, LeaseMS: 30_000}})
	}
	c.register(t, journal.Replica{Name: "old", Running: 3})
	st, err := c.operator(t, Config{}).Status(t.Context(), StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	found := slices.DeleteFunc(slices.Clone(st.Problems), func(p Problem) bool { return p.Code != "lease_margin" })
	if len(found) != 1 || found[0].Level != LevelWarning || found[0].Replica != "late" || !strings.Contains(found[0].Message, "renewed the lease of job a with only 15.0s of 30s left") || !strings.Contains(found[0].Message, "Redis or the network is slow") {
		t.Errorf("%+v", found)
	}
	var loads []string
	for _, r := range st.Replicas {
		loads = append(loads, fmt.Sprint(r.Name, " ", r.Load(), " ", r.LowMargin()))
	}
	if want := []string{"late 3 of 8 true", "old 3 false", "prompt 3 of 8 false"}; !slices.Equal(loads, want) {
		t.Errorf("%q, want %q", loads, want)
	}
	if st.Redis.Kind != "embedded" || len(st.Redis.Servers) != 1 || len(st.Redis.Limits) == 0 {
		t.Errorf("%+v", st.Redis)
	}
}

// A failure is one until the job has ended well: skipped ticks, runs that are stopped, tries and runs under way do not end it. It is none while its recovery
// is under way, or where the job is not enabled.
func TestFailuresLast(t *testing.T) {
	t.Parallel()
	tick := time.Unix(1000, 0)
	record := func(outcome journal.Outcome) journal.Record { return journal.Record{Outcome: outcome} }
	for name, tc := range map[string]struct {
		newestFirst []journal.Record
		failing     bool
	}{
		"nothing":                    {nil, false},
		"a good end":                 {[]journal.Record{record("ok"), record("failed")}, false},
		"a failure":                  {[]journal.Record{record("failed"), record("ok")}, true},
		"a skipped tick since":       {[]journal.Record{record("skipped"), record("canceled"), record("timeout")}, true},
		"a run since":                {[]journal.Record{record("running"), record("lost")}, true},
		"a try since":                {[]journal.Record{{Outcome: "failed", Retried: true}, record("ok")}, false},
		"a recovery under way":       {[]journal.Record{{Outcome: "running", Tick: tick}, {Outcome: "abandoned", Tick: tick}}, false},
		"a failure of another tick":  {[]journal.Record{{Outcome: "running", Tick: tick}, {Outcome: "abandoned", Tick: tick.Add(-time.Second)}}, true},
		"many runs and tries before": {append(slices.Repeat([]journal.Record{record("running")}, 2*RecentRuns), record("failed")), true},
	} {
		j := jobOf(nil, nil, journal.JobInfo{Name: "j", Enabled: true}, election.State{}, tc.newestFirst, tick)
		if j.isFailing() != tc.failing {
			t.Errorf("after %s: failing %v", name, j.isFailing())
		}
		if j.Enabled = false; j.isFailing() {
			t.Errorf("after %s: failing though it is not enabled", name)
		}
	}
}

// TestFailureOfAnExpiredJob checks that the failure of a job without further ticks is a problem for a week. If the job has ticks left, or its ticks are unknown,
// the failure stays a problem.
func TestFailureOfAnExpiredJob(t *testing.T) {
	t.Parallel()
	end := time.Date(2026, 11, 27, 3, 30, 0, 0, time.UTC)
	const week = 7 * 24 * time.Hour
	daily := journal.JobInfo{Name: "daily", Schedule: []string{"0 3 * * *"}, Timezone: "UTC", Enabled: true}
	expired := daily
	expired.Name, expired.ExpiresAt = "expired", end
	after := func(parents ...string) journal.JobInfo {
		return journal.JobInfo{Name: "child", After: parents, Timezone: "UTC", Enabled: true}
	}
	for name, tc := range map[string]struct {
		info    journal.JobInfo
		outcome journal.Outcome
		age     time.Duration
		failing bool
	}{
		"expired, after a week":          {expired, "failed", week, true},
		"expired, after more":            {expired, "failed", week + 1, false},
		"expired and missed, after more": {expired, "missed", week + 1, false},
		"with ticks":                     {daily, "failed", 50 * week, true},
		"chained, after a week":          {after("expired", "daily"), "failed", week, true},
		"chained, after more":            {after("expired", "daily"), "failed", week + 1, false},
		"chained with ticks":             {after("daily"), "failed", 50 * week, true},
		"after a job that is not known":  {after("expired", "removed"), "failed", 50 * week, true},
	} {
		j := jobOf(nil, []journal.JobInfo{tc.info, daily, expired}, tc.info, election.State{}, []journal.Record{{Outcome: tc.outcome, Finished: end}}, end.Add(tc.age))
		if j.isFailing() != tc.failing {
			t.Errorf("%s: failing %v", name, j.isFailing())
		}
		if _, problem := j.failureProblem(); problem != tc.failing {
			t.Errorf("%s: a problem %v", name, problem)
		}
	}
}

// A failure behind more skipped ticks than a status shows is found.
func TestFailureBehindManySkippedTicks(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.describe(t, journal.JobInfo{Name: "j", Enabled: true})
	failed := ended("j", "r")
	failed.Outcome, failed.Started, failed.Finished = "failed", failed.Started.Add(-time.Hour), failed.Finished.Add(-time.Hour)
	records := []journal.Record{failed}
	for i := range 2 * RecentRuns {
		at := time.Now().Add(time.Duration(i-60) * time.Second)
		records = append(records, journal.Record{RunID: fmt.Sprint("s", i), Job: "j", Replica: "a", Tick: at, Finished: at, Outcome: "skipped", Reason: "overlap"})
	}
	c.record(t, records...)
	st, err := c.operator(t, Config{}).Status(t.Context(), StatusRequest{})
	if err != nil || len(st.Jobs) != 1 || st.Jobs[0].LastEnd == nil || st.Jobs[0].LastEnd.Outcome != "failed" || len(st.Jobs[0].Recent) != RecentRuns {
		t.Errorf("%v, %+v", err, st)
	}
	few, err := c.operator(t, Config{}).Status(t.Context(), StatusRequest{Recent: 1})
	if err != nil || !reflect.DeepEqual(few.Jobs[0].LastEnd, st.Jobs[0].LastEnd) || !reflect.DeepEqual(few.Problems, st.Problems) {
		t.Errorf("fewer records change more than their number: %v, %+v", err, few)
	}
	recent, err := c.operator(t, Config{}).Recent(t.Context(), []string{"j", "other"})
	if err != nil || len(recent) != 1 || !reflect.DeepEqual(recent["j"], st.Jobs[0].Recent) {
		t.Errorf("%v, %+v", err, recent)
	}
}

// Jobs are picked by their state, by a tag and by their names; all that is set has to match.
func TestJobsOfAStatusAreChosen(t *testing.T) {
	t.Parallel()
	failed := journal.Record{Outcome: "timeout"}
	all := []Job{
		{Name: "backup-a", Enabled: true, LastEnd: &failed, Tags: []string{"night"}},
		{Name: "backup-b", Enabled: true, Holders: []Holder{{}}},
		{Name: "report", Enabled: true, Paused: true, Tags: []string{"night"}},
	}
	o := newCluster(t).operator(t, Config{Jobs: []ConfiguredJob{{Name: "configured"}, {Name: "report"}}})
	_, err := o.Status(t.Context(), StatusRequest{Job: "reprot"})
	if !errors.Is(err, ErrUnknownJob) || !strings.Contains(err.Error(), `did you mean "report"`) {
		t.Errorf("a job that is unknown: %v", err)
	}
	if _, err := o.Status(t.Context(), StatusRequest{Job: "configured"}); !errors.Is(err, ErrNoReplica) || !strings.Contains(err.Error(), "no replica has it") {
		t.Errorf("a job that no replica has: %v", err)
	}
	choose := func(req StatusRequest) (*Status, error) {
		st := &Status{Jobs: slices.Clone(all), JobCount: len(all), Problems: []Problem{{Job: "backup-a"}, {Job: "report"}, {Code: "redis"}}}
		return st, st.filterJobs(req)
	}
	for name, tc := range map[string]struct {
		request StatusRequest
		want    []string
	}{
		"all":              {StatusRequest{}, []string{"backup-a", "backup-b", "report"}},
		"failed":           {StatusRequest{Failed: true}, []string{"backup-a"}},
		"running":          {StatusRequest{Running: true}, []string{"backup-b"}},
		"paused":           {StatusRequest{Paused: true}, []string{"report"}},
		"a tag":            {StatusRequest{Tag: "night"}, []string{"backup-a", "report"}},
		"a pattern":        {StatusRequest{Match: "backup-?"}, []string{"backup-a", "backup-b"}},
		"a part of a name": {StatusRequest{Match: "port"}, []string{"report"}},
		"both":             {StatusRequest{Match: "backup", Tag: "night"}, []string{"backup-a"}},
		"a job":            {StatusRequest{Job: "report"}, []string{"report"}},
	} {
		st, err := choose(tc.request)
		if err != nil || st.JobCount != len(all) {
			t.Errorf("%s: %v, of %d", name, err, st.JobCount)
		}
		var names []string
		for _, j := range st.Jobs {
			names = append(names, j.Name)
		}
		if !slices.Equal(names, tc.want) {
			t.Errorf("%s: %v, want %v", name, names, tc.want)
		}
		if tc.request.Job != "" && len(st.Problems) != 2 {
			t.Errorf("%s: problems %+v", name, st.Problems)
		}
	}
	for _, tc := range []struct {
		request StatusRequest
		want    error
		text    string
	}{
		{StatusRequest{Tag: "day"}, ErrUnknownTag, `"day"`},
		{StatusRequest{Match: "["}, ErrInvalid, "faulty"},
	} {
		if _, err := choose(tc.request); !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%+v: %v", tc.request, err)
		}
	}
}

// TestFailingSinceTheFirst lets a job fail 70 times in a row, which is more than the history keeps: the problem is as old as the first failure. Skipped and
// canceled ticks in between, and a run under way, change nothing.
func TestFailingSinceTheFirst(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	o := c.operator(t, Config{})
	c.describe(t, journal.JobInfo{Name: "bad", Enabled: true}, journal.JobInfo{Name: "once", Enabled: true}, journal.JobInfo{Name: "good", Enabled: true})
	now := time.Now().UTC().Truncate(time.Second)
	at := func(job, id string, outcome journal.Outcome, ago time.Duration) journal.Record {
		r := ended(job, id)
		r.Outcome, r.Started, r.Finished = outcome, now.Add(-ago), now.Add(-ago)
		return r
	}
	records := []journal.Record{at("bad", "ok", "ok", 30*time.Hour), at("once", "ok", "ok", 2*time.Hour), at("once", "f", "timeout", time.Hour),
		at("good", "f", "failed", 2*time.Hour), at("good", "ok", "ok", time.Hour)}
	for n := range 70 {
		ago := time.Duration(70-n) * 10 * time.Minute
		records = append(records, at("bad", fmt.Sprint("f", n), "failed", ago), at("bad", fmt.Sprint("s", n), "skipped", ago-time.Minute), at("bad", fmt.Sprint("c", n), "canceled", ago-time.Minute))
	}
	running := at("bad", "r", "running", 0)
	running.Finished = time.Time{}
	c.record(t, append(records, running)...)
	for _, few := range []int{0, 1} {
		st, err := o.Status(t.Context(), StatusRequest{Recent: few})
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]Problem{}
		for _, p := range st.Problems {
			if p.Code == "job_failed" {
				found[p.Job] = p
			}
		}
		bad, once := found["bad"], found["once"]
		if f := bad.Failures; len(found) != 2 || f == nil || f.Count != 70 || f.AtLeast || !f.Since.Equal(now.Add(-700*time.Minute)) || f.LastOK == nil || !f.LastOK.Equal(now.Add(-30*time.Hour)) || !bad.Since.Equal(f.Since) {
			t.Errorf("of %d: %+v, %+v", len(found), bad, f)
		}
		if want := "job bad failed on a; 70 in a row; last ok at " + now.Add(-30*time.Hour).Format(time.RFC3339); bad.Message != want {
			t.Errorf("%s, want %s", bad.Message, want)
		}
		if f := once.Failures; f == nil || f.Count != 1 || f.AtLeast || !f.Since.Equal(now.Add(-time.Hour)) || !f.LastOK.Equal(now.Add(-2*time.Hour)) {
			t.Errorf("%+v, %+v", once, f)
		}
		for _, j := range st.Jobs {
			if (j.Failures != nil) != (j.Name != "good") {
				t.Errorf("job %s: %+v", j.Name, j.Failures)
			}
		}
	}
}

// TestStreakOfAnEarlierVersion: failures that replicas of a version without streaks recorded are counted as far as they are read, and marked so.
func TestStreakOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_000_000, 0)
	failed := func(n int) (newestFirst []journal.Record) {
		for i := range n {
			newestFirst = append(newestFirst, journal.Record{Outcome: "failed", Finished: at.Add(-time.Duration(i) * time.Second)})
		}
		return newestFirst
	}
	for name, tc := range map[string]struct {
		newestFirst []journal.Record
		kept        journal.Streak
		count       int
		since       time.Duration
		atLeast     bool
	}{
		"nothing kept":               {failed(10), journal.Streak{}, 10, 9 * time.Second, true},
		"all records are read":       {failed(9), journal.Streak{}, 9, 8 * time.Second, false},
		"the end was kept":           {failed(10), journal.Streak{Count: 3, Since: at.Add(-2 * time.Second)}, 10, 9 * time.Second, true},
		"no ok was kept":             {failed(10), journal.Streak{Count: 12, Since: at.Add(-11 * time.Second)}, 12, 11 * time.Second, true},
		"an ok was kept":             {failed(10), journal.Streak{Count: 12, Since: at.Add(-11 * time.Second), LastOK: at.Add(-time.Hour)}, 12, 11 * time.Second, false},
		"a late ok was kept":         {failed(10), journal.Streak{Count: 12, Since: at.Add(-11 * time.Second), LastOK: at.Add(-time.Hour), AtLeast: true}, 12, 11 * time.Second, true},
		"an ok is among the records": {append(failed(4), journal.Record{Outcome: "ok", Finished: at.Add(-time.Minute)}), journal.Streak{Count: 12, Since: at.Add(-time.Hour)}, 4, 3 * time.Second, false},
	} {
		if s := streakOf(tc.newestFirst, tc.kept, 10); s.Count != tc.count || s.Since != at.Add(-tc.since) || s.AtLeast != tc.atLeast {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// A lock whose key is of another type, or has a field that no client writes, is a warning of its job. The status of all others stays.
func TestDamagedLockIsAWarningOfItsJob(t *testing.T) {
	t.Parallel()
	for damage, command := range map[string][]any{
		"another type": {"SET", "cronclave:default:{bad}:job", "garbage"},
		"a bad field":  {"HSET", "cronclave:default:{bad}:job", "low", "garbage"},
	} {
		t.Run(damage, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.describe(t, journal.JobInfo{Name: "bad", Enabled: true}, journal.JobInfo{Name: "good", Enabled: true})
			if err := c.conn.Do(t.Context(), command...).Err(); err != nil {
				t.Fatal(err)
			}
			st, err := c.operator(t, Config{}).Status(t.Context(), StatusRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if len(st.Jobs) != 2 {
				t.Errorf("jobs: %+v", st.Jobs)
			}
			var damaged []string
			for _, w := range st.Warnings {
				if w.Code == "corrupt_data" {
					damaged = append(damaged, w.Message)
				}
			}
			if len(damaged) != 1 || !strings.HasPrefix(damaged[0], "job bad: ") || !strings.Contains(damaged[0], "cronclave:default:{bad}:job") || !strings.Contains(damaged[0], "redis-cli DEL") {
				t.Errorf("warnings: %q", damaged)
			}
		})
	}
}
