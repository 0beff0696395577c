package console

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func before(d time.Duration) *time.Time {
	t := now.Add(-d)
	return &t
}

// exampleStatus has one of everything that a status shows.
func exampleStatus() *cluster.Status {
	failed := journal.Record{RunID: "r9", Job: "wordy", Tick: *before(2 * time.Minute), Started: *before(2 * time.Minute), Finished: *before(time.Minute), Outcome: "failed",
		Reason: "exec: \"/no/such/program\": no such file or directory", Replica: "b", Token: 9}
	return &cluster.Status{
		Namespace: "default", Now: now, Leader: &cluster.Leader{Replica: "a", Token: 7},
		Replicas: []cluster.Replica{
			{Name: "a", Version: "v1", Started: *before(time.Hour), Seen: *before(1400 * time.Millisecond), ConfigDigest: "0123456789abcdef", ZoneData: "2026f", ClockOffsetMS: -3, State: cluster.ReplicaUp,
				MaxRunning: 8, LeaseMargin: &journal.LeaseMargin{LeftMS: 19700, LeaseMS: 30000}},
			{Name: "b", Version: "v1", Started: *before(72 * time.Hour), Seen: now.Add(time.Millisecond), ConfigDigest: "0123456789abcdef", Running: 2, State: cluster.ReplicaDraining},
		},
		Lost: []cluster.LostReplica{{Name: "c", Seen: *before(4 * time.Minute)}},
		Jobs: []cluster.Job{
			{Name: "asked", Enabled: true, Schedule: []string{"@daily"}, Last: &journal.Record{Started: now, Finished: now, Trigger: "manual", Outcome: "ok", FailedTries: 2}},
			{Name: "child", Enabled: true, After: []string{"wordy"}, Timezone: "UTC"},
			{Name: "idle", Enabled: true, Schedule: []string{"@daily"}, Paused: true, PausedSince: before(time.Hour), PausedReason: "disks are replaced", PausedBy: "ann@host"},
			{Name: "wordy", Enabled: true, Schedule: []string{"* * * * *"}, Timezone: "UTC", Next: before(-25 * time.Second), Parallel: 2, Tags: []string{"night"},
				Holders: []cluster.Holder{{Replica: "b", Slot: 1, Token: 10, Tick: before(0), Expires: *before(-30 * time.Second)}}, Last: &failed,
				Recent: []journal.Record{failed, {Job: "wordy", Outcome: "ok"}, {Job: "wordy", Outcome: "missed"}, {Job: "wordy", Outcome: "skipped"}}, LastEnd: &failed},
		},
		Problems: []cluster.Problem{
			{Level: cluster.LevelError, Code: "job_failed", Job: "wordy", Since: before(time.Minute), Message: "job wordy failed on b: exec: \"/no/such/program\": no such file or directory,"},
			{Level: cluster.LevelWarning, Code: "config_differs", Message: "replicas run different configurations:\na, b"},
			{Level: cluster.LevelAdvice, Code: "replica_lost", Message: "the registration of replica c expired"},
		},
		JobCount: 40,
		Pools: []cluster.Pool{{Lock: cluster.Lock{Name: "warehouse", Slots: 1, Waiters: 11,
			Holders: []cluster.SlotHolder{{Owner: "b", Job: "wordy", Since: before(time.Minute), Token: 10, Expires: *before(-30 * time.Second)}},
			Waiting: []cluster.Waiter{{Owner: "a", Job: "asked", Since: before(20 * time.Second)}, {Owner: "host (pid 9)"}}}}},
		Locks: []cluster.Lock{{Name: "deploy", Slots: 9, Holders: slices.Repeat([]cluster.SlotHolder{{Owner: "build-server-7.example.org (pid 12345)"}}, 7)},
			{Name: "free", Slots: 1}},
	}
}

func printed(print func(Printer), p Printer) string {
	var out strings.Builder
	p.Out = &out
	print(p)
	return out.String()
}

// TestOldFailuresAreOneLine: jobs that have failed for more than a day share a line, but in the wide form. A streak has its length, a single failure its age.
func TestOldFailuresAreOneLine(t *testing.T) {
	t.Parallel()
	st := exampleStatus()
	at := st.Now.Add(-3 * time.Hour)
	old := st.Now.Add(-75 * time.Hour)
	st.Problems = []cluster.Problem{
		{Level: cluster.LevelError, Code: "job_failed", Job: "new", Message: "job new failed; 4 in a row", Since: &at, Failures: &cluster.Streak{Count: 4, Since: at}},
		{Level: cluster.LevelError, Code: "job_failed", Job: "once", Message: "job once failed", Since: &at, Failures: &cluster.Streak{Count: 1, Since: at}},
		{Level: cluster.LevelError, Code: "job_failed", Job: "a", Message: "job a failed", Since: &old, Failures: &cluster.Streak{Count: 9, Since: old}},
		{Level: cluster.LevelWarning, Code: "job_missed", Job: "b", Message: "job b missed", Since: &old, Failures: &cluster.Streak{Count: 1, Since: old}},
	}
	const want = "\n\n✗ job new failed; 4 in a row (for 3h)\n✗ job once failed (3h ago)\n✗ 2 jobs have failed for more than a day: a, b\n"
	if got := printed(func(p Printer) { p.Status(st) }, Printer{}); !strings.Contains(got, want) {
		t.Errorf("%s", got)
	}
	if wide := printed(func(p Printer) { p.Status(st) }, Printer{Wide: true}); !strings.Contains(wide, "✗ job a failed (for 3d)\n! job b missed (3d ago)\n") {
		t.Errorf("%s", wide)
	}
}

func TestStatusReadsWell(t *testing.T) {
	t.Parallel()
	got := printed(func(p Printer) { p.Status(exampleStatus()) }, Printer{})
	want := `namespace default at 2026-03-01 12:00:00 UTC: 1 replica up, leader a, 4 of 40 jobs

✗ job wordy failed on b: exec: "/no/such/program": no such file or directory, (1m ago)
! replicas run different configurations:
  a, b
· the registration of replica c expired
- job idle is paused by ann@host since 1h, until it is resumed: disks are replaced

REPLICA  STATE     SEEN    STARTED  RUNNING  CLOCK  CONFIG     VERSION
a        up        1s ago  1h ago   0 of 8   -3ms   01234567…  v1
b        draining  0s ago  3d ago   2        +0ms   01234567…  v1
c        lost      4m ago  -        -        -      -          -

JOB    LAST                   LAST 10  NEXT         RUNS ON
asked  ✓ ok 0s ago, tried 3x  -        -            -
child  -                      -        after wordy  -
idle   -                      -        paused       -
wordy  ✗ failed 1m ago        -!✓✗     in 25s       b/1

POOL       SLOTS   HELD BY     SINCE   WAITING
warehouse  1 of 1  wordy on b  1m ago  11: asked on a for 20s

LOCK    SLOTS   HELD BY                       SINCE  WAITING
deploy  7 of 9  build-server-…rg (pid 12345)  -      -
                build-server-…rg (pid 12345)  -
                build-server-…rg (pid 12345)  -
                build-server-…rg (pid 12345)  -
                and 3 more
free    0 of 1  -                             -      -
`
	if got != want {
		t.Error(got)
	}
	for line := range strings.Lines(got) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > Width {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// A text of 100 columns at most has long names cut; a wide one has all.
func TestNamesAreCutUnlessWide(t *testing.T) {
	t.Parallel()
	st, long := exampleStatus(), strings.Repeat("x", 128)
	st.Namespace, st.Leader.Replica, st.Problems[0].Message = long, long, "job "+long+" failed"
	st.Replicas[0].ClockOffsetMS, st.Replicas[0].ClockErrorMS, st.Replicas[0].Version = 123456, 123456, long
	st.Jobs[3].Name, st.Replicas[0].Name, st.Jobs[3].Holders[0].Replica, st.Jobs[1].After = long, long, long, []string{long}
	for _, print := range []func(Printer){func(p Printer) { p.Status(st) }, func(p Printer) { p.Job(st, st.Jobs[3]) }} {
		for line := range strings.Lines(printed(print, Printer{})) {
			if n := utf8.RuneCountInString(line) - 1; n > Width {
				t.Errorf("%d columns: %s", n, line)
			}
		}
	}
	if wide := printed(func(p Printer) { p.Status(st) }, Printer{Wide: true}); strings.Count(wide, long) != 9 || !strings.Contains(wide, "* * * * *") {
		t.Errorf("%d:\n%s", strings.Count(wide, long), wide)
	}
}

// Damaged data moves no row, and stops nothing.
func TestDamagedNamesStayInTheirCells(t *testing.T) {
	t.Parallel()
	st := exampleStatus()
	st.Jobs[1].After, st.Jobs[0].Name, st.Jobs[3].Holders[0].Replica = []string{"a\nb"}, "x\ty\f\vz", "r\xff"
	shown := printed(func(p Printer) { p.Status(st) }, Printer{})
	for _, want := range []string{"\nx y z ", " after a b ", " r?/1\n"} {
		if !strings.Contains(shown, want) {
			t.Errorf("there is no %q in\n%s", want, shown)
		}
	}
}

// Colours are never the only sign.
func TestColoursAddNothing(t *testing.T) {
	t.Parallel()
	coloured := printed(func(p Printer) { p.Status(exampleStatus()) }, Printer{Colour: true})
	if !strings.Contains(coloured, "\x1b[31m✗ job wordy failed") || !strings.Contains(coloured, "\x1b[31mwordy") || strings.Contains(coloured, "\x1b[mchild") {
		t.Error(coloured)
	}
	for _, colour := range []string{"0", "2", "31", "32", "33", "36"} {
		coloured = strings.ReplaceAll(coloured, "\x1b["+colour+"m", "")
	}
	if want := printed(func(p Printer) { p.Status(exampleStatus()) }, Printer{}); coloured != want {
		t.Error(coloured)
	}
}

// TestRedisReadsWell: a wide text has the servers of Redis, their limits, and the margins of leases. Unknown facts have a dash.
// A job that is slow, stale or overdue is marked beside its last outcome.
func TestLateJobsAreMarked(t *testing.T) {
	t.Parallel()
	j := cluster.Job{Name: "nightly", Enabled: true, Schedule: []string{"@daily"}, Timezone: "UTC", UsualMS: new(int64(61_000)), Conditions: []cluster.Condition{{Code: cluster.Slow}, {Code: cluster.Overdue}},
		Last: &journal.Record{Outcome: journal.OutcomeRunning, Started: *before(time.Hour)}}
	st := &cluster.Status{Now: now, Jobs: []cluster.Job{j}}
	if out := printed(func(p Printer) { p.Status(st) }, Printer{Wide: true}); !strings.Contains(out, "running 1h ago, slow, overdue") {
		t.Error(out)
	}
	if out := printed(func(p Printer) { p.Job(st, j) }, Printer{}); !strings.Contains(out, "running 1h ago, slow, overdue") || !strings.Contains(out, "usually    takes 1m1s") {
		t.Error(out)
	}
}

func TestRedisReadsWell(t *testing.T) {
	t.Parallel()
	n := func(i int64) *int64 { return &i }
	st, took := exampleStatus(), 0.31
	st.Redis.Kind, st.Redis.ServerCount, st.Redis.Limits = "cluster", 5, []string{"There is a limit.", "There is another."}
	st.Redis.Servers = []cluster.RedisServer{
		{Address: "10.0.0.5:6379", Keeps: "all", State: "up", Version: "7.2.4", Persistence: "appendonly", UptimeS: n(90000), RoundTripMS: &took, MemoryUsed: n(1536), MemoryLimit: n(3 << 29), Clients: n(7), Replicas: n(2)},
		{Address: "10.0.0.6:6379", Keeps: "all", State: "up", MemoryUsed: n(512), MemoryLimit: n(0)},
		{Address: "10.0.0.7:6379", Keeps: "all", State: "away", Fault: "connection refused", UptimeS: n(1 << 62)},
	}
	wide := printed(func(p Printer) { p.Status(st) }, Printer{Wide: true})
	for _, want := range []string{
		`
REPLICA  STATE     SEEN    STARTED  RUNNING  CLOCK  CONFIG            VERSION  LEASE MARGIN  ZONE DATA
a        up        1s ago  1h ago   0 of 8   -3ms   0123456789abcdef  v1       19.7s of 30s  2026f
b        draining  0s ago  3d ago   2        +0ms   0123456789abcdef  v1       -             -
c        lost      4m ago  -        -        -      -                 -        -             -
`, `
REDIS          KEEPS  STATE  VERSION  UP FOR  ROUND TRIP  PERSISTENCE  MEMORY              CLIENTS  REPLICAS
10.0.0.5:6379  all    up     7.2.4    25h     0.3 ms      appendonly   1.5 KiB of 1.5 GiB  7        2
10.0.0.6:6379  all    up     -        -       -           -            512 B, no limit     -        -
10.0.0.7:6379  all    away   -        36500d  -           -            -                   -        -
and 2 more
✗ 10.0.0.7:6379: connection refused

limits of this Redis (cluster):
· There is a limit.
· There is another.
`,
	} {
		if !strings.Contains(wide, want) {
			t.Errorf("there is no %s in\n%s", want, wide)
		}
	}
	if narrow := printed(func(p Printer) { p.Status(st) }, Printer{}); strings.Contains(narrow, "REDIS") || strings.Contains(narrow, "MARGIN") {
		t.Error(narrow)
	}
}

// TestLateRenewalIsMarked: the row of a replica whose lease came close to its end is that of a warning.
func TestLateRenewalIsMarked(t *testing.T) {
	t.Parallel()
	st := exampleStatus()
	st.Replicas[0].LeaseMargin.LeftMS = 14999
	if got := printed(func(p Printer) { p.Status(st) }, Printer{Colour: true}); !strings.Contains(got, "\x1b[33ma  ") {
		t.Error(got)
	}
}

func TestJobReadsWell(t *testing.T) {
	t.Parallel()
	st := exampleStatus()
	zone := time.FixedZone("CET", 3600)
	got := printed(func(p Printer) { p.Job(st, st.Jobs[3]) }, Printer{Zone: zone})
	want := `job wordy: ✗ failed 1m ago

✗ job wordy failed on b: exec: "/no/such/program": no such file or directory, (1m ago)
! replicas run different configurations:
  a, b
· the registration of replica c expired

  schedule   * * * * * (UTC)
  next       2026-03-01 13:00:25 CET, in 25s
  tags       night
  slots      1 of 2 held
             b/1: tick 2026-03-01 13:00:00 CET, token 10, lease until 2026-03-01 13:00:30 CET unless
             it is renewed

BEGAN   TICK                     REPLICA  OUTCOME    DURATION  WHY
2m ago  2026-03-01 12:58:00 CET  b        ✗ failed   -         exec: "/no/such/program…
-       -                        -        ✓ ok       -         -
-       -                        -        ! missed   -         -
-       -                        -        - skipped  -         -
`
	if got != want {
		t.Error(got)
	}
}

func TestHistoryReadsWell(t *testing.T) {
	t.Parallel()
	slot, took, said := 0, int64(1500), "one\ntwo\n"
	got := printed(func(p Printer) {
		p.History([]journal.Record{
			{RunID: "r2", Job: "load", Replica: "a", Slot: &slot, Token: 8, Started: now, Trigger: "manual", Outcome: "running"},
			{RunID: "r1", Job: "load", Replica: "b", Slot: &slot, Token: 7, Attempt: 2, Tick: now, Started: now, DurationMS: &took, Outcome: "failed", Reason: "exit\ncode 3", Output: &said},
			{RunID: "r0.1", Job: "load", Replica: "b", Slot: &slot, Token: 6, Tick: now, Started: now, Outcome: "failed", Reason: "exit code 4", Retried: true},
			{Job: "extraction", Replica: "a", Tick: now, Finished: now, Outcome: "skipped", Reason: "overlap"},
		})
	}, Printer{})
	want := `TIME                  JOB         TICK                  REPLICA  SLOT  TOKEN  OUTCOME  DURATION  RUN   WHY
2026-03-01T12:00:00Z  load        -                     a        0     8      running  -         r2    manual
2026-03-01T12:00:00Z  load        2026-03-01T12:00:00Z  b        0     7      failed   1.5s      r1    exit code 3, attempt 2
    one
    two
2026-03-01T12:00:00Z  load        2026-03-01T12:00:00Z  b        0     6      failed   -         r0.1  exit code 4 (tried again)
2026-03-01T12:00:00Z  extraction  2026-03-01T12:00:00Z  a        -     -      skipped  -         -     overlap
`
	if got != want {
		t.Error(got)
	}
	if got := printed(func(p Printer) { p.History(nil) }, Printer{}); got != "no runs\n" {
		t.Error(got)
	}
}

func TestSpans(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{-time.Second: "0s", 59900 * time.Millisecond: "59s", time.Minute: "1m", 61 * time.Minute: "1h", 47 * time.Hour: "47h", 49 * time.Hour: "2d"} {
		if got := Span(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}

func TestSettingsReadWell(t *testing.T) {
	t.Parallel()
	known := func(timeout string, replicas ...string) cluster.JobForm {
		return cluster.JobForm{State: cluster.FormKnown, Replicas: replicas, Settings: []journal.Setting{{Key: "schedule", Value: `"@daily"`}, {Key: "timeout", Value: timeout}, {Key: "env_from_file", Value: "–"}}}
	}
	for _, tt := range []struct {
		settings cluster.JobSettings
		want     string
	}{
		{cluster.JobSettings{Agreement: cluster.SettingsAgree, Forms: []cluster.JobForm{known(`"1h"`, "r1", "r2")}}, `
configuration: the same on r1, r2
  schedule          "@daily"
  timeout           "1h"
  env_from_file     –
`},
		{cluster.JobSettings{Agreement: cluster.SettingsDiffer, Differing: []string{"timeout"}, More: 1, Forms: []cluster.JobForm{known(`"1h"`, "r1", "r2"), known(`"2h"`, "r3"),
			{State: cluster.FormAbsent, Replicas: []string{"r4"}}, {State: cluster.FormUnknown, Replicas: strings.Split("s1 s2 s3 s4 s5 s6 s7", " ")}}}, `
! configuration: the replicas differ; give all the same files
! r4: no such job in the configuration
! s1, s2, s3, s4, s5, s6 and 1 more: not known: not published yet, an older version, or too many
  jobs
! 1 more form not shown
  schedule          "@daily"
! timeout           r1, r2: "1h"
                    r3: "2h"
  env_from_file     –
`},
		{cluster.JobSettings{Agreement: cluster.SettingsHidden, Forms: []cluster.JobForm{known(`"1h"`, "r1"), known(`"1h"`, "r2")}}, `
! configuration: the replicas differ in something that is not shown: an argument of the command, a
  value of a variable, a day of a calendar, or the slots of a pool
  schedule          "@daily"
  timeout           "1h"
  env_from_file     –
`},
		{cluster.JobSettings{Agreement: cluster.SettingsDiffer, Differing: []string{"timeout"}, Forms: []cluster.JobForm{known(`"1h"`, "r1"), known(`"2h"`, "r2"), known(`"2h"`, "r3")}}, `
! configuration: the replicas differ, some of them only in something that is not shown: an argument
  of the command, a value of a variable, a day of a calendar, or the slots of a pool; give all the
  same files
  schedule          "@daily"
! timeout           r1: "1h"
                    r2: "2h"
                    r3: "2h"
  env_from_file     –
`},
		{cluster.JobSettings{Agreement: cluster.SettingsUnknown}, "\n! configuration: not known, since no replica is up\n"},
		{cluster.JobSettings{Agreement: cluster.SettingsUnknown, Fault: "read: timeout"}, "\n! configuration: not known: read: timeout\n"},
		{cluster.JobSettings{Agreement: cluster.SettingsAbsent, Forms: []cluster.JobForm{{State: cluster.FormAbsent, Replicas: []string{"r1"}}}},
			"\n! configuration: no replica has the job\n! r1: no such job in the configuration\n"},
	} {
		if got := printed(func(p Printer) { p.printSettings(&tt.settings) }, Printer{}); got != tt.want {
			t.Errorf("%s\nwant %s", got, tt.want)
		}
	}
}

func TestActsReadWell(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	until, tick := at.Add(time.Hour), at.Add(-time.Hour)
	var got bytes.Buffer
	Printer{Out: &got}.Acts(at.Add(time.Minute), []journal.Act{
		{Time: at, By: "ann", Kind: "pause", Jobs: []string{"a", "b"}, JobCount: 7, Until: &until, Reason: "new disks"},
		{Time: at, By: "somebody@a-host-with-a-long-name.example", Kind: "trigger", Jobs: []string{"backup"}, JobCount: 1, Tick: &tick},
		{Time: at, By: "ann", Kind: "cancel", Jobs: []string{"backup"}, JobCount: 1, RunID: "run-1"},
	})
	const want = `TIME    USER                  ACT      JOBS                                      REASON
1m ago  ann                   pause    a, b and 5 more, until 2026-03-01T13:00…  new disks
1m ago  somebody@a-host-wit…  trigger  backup, tick 2026-03-01T11:00:00Z         -
1m ago  ann                   cancel   backup, run run-1                         -
`
	if got.String() != want {
		t.Errorf("%s", got.String())
	}
}

// Lines of several runs stand behind their times, replicas and jobs, aligned; a gap stands where it is.
func TestFollowedLinesHavePrefixes(t *testing.T) {
	t.Parallel()
	slot := 1
	first, second := journal.Record{RunID: "a1", Job: "backup", Replica: "r1"}, journal.Record{RunID: "b2", Job: "load", Replica: "r2", Slot: &slot}
	show := func(viewer func(Logs) cluster.Viewer) (out, err string) {
		var stdout, stderr strings.Builder
		v := viewer(Logs{Out: &stdout, Err: &stderr})
		if v.Begin != nil {
			v.Begin(first)
			v.Begin(second)
		}
		v.Line(cluster.OutputLine{RunID: "a1", Stream: "stdout", Line: "one", Job: "backup", Replica: "r1", Time: now})
		v.Line(cluster.OutputLine{RunID: "b2", Stream: "stderr", Line: "two", Job: "load", Replica: "r2", Slot: 1, Time: now.Add(time.Second)})
		v.Line(cluster.OutputLine{RunID: "a1", Stream: "stdout", Line: "three", Job: "backup", Replica: "r1"})
		v.Note("b2", "… 12 kB left out …")
		v.Note("other", "gone")
		return stdout.String(), stderr.String()
	}
	for name, tc := range map[string]struct {
		viewer   func(Logs) cluster.Viewer
		out, err string
	}{
		"of several jobs": {func(l Logs) cluster.Viewer { return l.Prefixed(true) }, "12:00:00 r1 backup | one\n--:--:-- r1 backup | three\n",
			"==> run a1 of job backup on r1\n==> run b2 of job load on r2/1\n12:00:01 r2/1 load | two\n--:--:-- r2/1 load | … 12 kB left out …\ncronclave: run other: gone\n"},
		"of one job": {func(l Logs) cluster.Viewer { return l.Prefixed(false) }, "12:00:00 r1 | one\n--:--:-- r1   | three\n",
			"==> run a1 on r1\n==> run b2 on r2/1\n12:00:01 r2/1 | two\n--:--:-- r2/1 | … 12 kB left out …\ncronclave: run other: gone\n"},
		"plain": {Logs.Headed, "one\nthree\n", "==> run a1\n==> run b2\ntwo\n==> run a1\ncronclave: run b2: … 12 kB left out …\ncronclave: run other: gone\n"},
		"bare":  {Logs.Bare, "one\nthree\n", "two\ncronclave: run b2: … 12 kB left out …\ncronclave: run other: gone\n"},
	} {
		if out, err := show(tc.viewer); out != tc.out || err != tc.err {
			t.Errorf("%s:\n%s---\n%s", name, out, err)
		}
	}
}

func TestVersionOfACommitIsItsCommit(t *testing.T) {
	for version, want := range map[string]string{
		"0.0.0-20261128170406-cd825a417c5c": "cd825a417c5c", "0.0.0-20261128170406-cd825a417c5c+dirty": "cd825a417c5c+dirty", "0.1.1-0.20261128170406-cd825a417c5c": "cd825a417c5c", "0.1.0": "0.1.0", "0.1.0-rc-1": "0.1.0-rc-1", "cd825a4": "cd825a4", "": "",
	} {
		if got := shortVersion(version); got != want {
			t.Errorf("%q: %q, want %q", version, got, want)
		}
	}
}
