package demo

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
)

// builtIn is the configuration that demo brings.
func builtIn(t *testing.T) []*config.Job {
	t.Helper()
	path := filepath.Join(t.TempDir(), "demo.toml")
	if err := os.WriteFile(path, builtInConfig, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(path, config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Warnings) > 0 {
		t.Errorf("the built-in configuration has warnings: %v", cfg.Warnings)
	}
	return cfg.EnabledJobs()
}

// second is an instant of the tests' demo, which begins at 0.
func second(s float64) time.Time {
	return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(s * float64(time.Second)))
}

// perfect is what the jobs write in the eleven seconds after 0: nothing is wrong with it.
func perfect() []entry {
	var lines []entry
	token := second(0).UnixMicro()
	run := func(job string, tick float64, slot int, replica string, lasts float64) {
		token += 1000
		t := entry{Event: "start", At: second(tick + 0.01)}
		t.ID, t.Job, t.Tick, t.Slot, t.Token, t.Replica = fmt.Sprintf("%s-%v-%d", job, tick, slot), job, second(tick), slot, token, replica
		lines = append(lines, t)
		t.Event, t.At = "end", second(tick+0.01+lasts)
		lines = append(lines, t)
	}
	run("beat", 2, 0, "r1", 0.01)
	run("beat", 4, 0, "r2", 0.01)
	run("batch", 5, 0, "r1", 0.3)
	run("batch", 5, 1, "r3", 0.3)
	run("beat", 6, 0, "r3", 0.01)
	run("beat", 8, 0, "r1", 0.01)
	run("beat", 10, 0, "r1", 0.01)
	run("batch", 10, 1, "r2", 0.3)
	run("batch", 10, 0, "r1", 0.3)
	run("report", 10, 0, "r2", 4)
	return lines
}

// without leaves out the lines of a run.
func without(id, event string, lines []entry) []entry {
	var rest []entry
	for _, l := range lines {
		if l.ID != id || event != "" && l.Event != event {
			rest = append(rest, l)
		}
	}
	return rest
}

// changed changes the lines of a run.
func changed(id string, lines []entry, change func(*entry)) []entry {
	for i := range lines {
		if lines[i].ID == id {
			change(&lines[i])
		}
	}
	return lines
}

// again adds a run that is like another but for what change does.
func again(id string, lines []entry, change func(*entry)) []entry {
	for _, l := range lines {
		if l.ID == id {
			l.ID, l.Token = "again", l.Token+50
			change(&l)
			lines = append(lines, l)
		}
	}
	return lines
}

func TestTally(t *testing.T) {
	abandoned := journal.Record{RunID: "report-10-0", Job: "report", Tick: second(10), Token: 1, Outcome: journal.OutcomeAbandoned}
	good := counted{due: 8, settled: 8}
	for _, tc := range []struct {
		name    string
		lines   []entry
		records []journal.Record
		killed  string
		want    counted // but for runs and faults
		fault   string  // in the only fault; "" for none
	}{
		{name: "nothing is wrong", lines: perfect(), want: good},
		{name: "a tick ran on two replicas", want: counted{due: 8, settled: 8, doubled: 1}, fault: "is run 2 of a tick that has 1",
			lines: again("beat-4-0", perfect(), func(l *entry) { l.Replica = "r3" })},
		{name: "a third run of a tick that has two", want: counted{due: 8, settled: 8, doubled: 1}, fault: "is run 3 of a tick that has 2",
			lines: again("batch-5-0", perfect(), func(l *entry) { l.Slot = 2 })},
		{name: "a slot was granted twice", want: counted{due: 8, settled: 8, doubled: 1}, fault: "ran a second time",
			lines: changed("batch-5-1", perfect(), func(l *entry) { l.Slot = 0 })},
		{name: "one grant was started twice", want: counted{due: 8, settled: 8, doubled: 1}, fault: "is run 2 of a tick that has 1",
			lines: again("beat-8-0", perfect(), func(l *entry) { l.ID, l.Token = "beat-8-0", l.Token-50 })},
		{name: "a run began before its tick", want: counted{due: 8, settled: 8, early: 1}, fault: "started 1ms before its time",
			lines: changed("beat-6-0", perfect(), func(l *entry) { l.At = second(5.999) })},
		{name: "a tick was forgotten", want: counted{due: 8, settled: 7}, fault: "beat " + clockText(second(6)) + " has no outcome",
			lines: without("beat-6-0", "", perfect())},
		{name: "a run never ended", want: counted{due: 8, settled: 7}, fault: "beat " + clockText(second(6)) + " has no outcome",
			lines: without("beat-6-0", "end", perfect())},
		{name: "a run never ended, whatever the history says", want: counted{due: 8, settled: 7}, fault: "beat " + clockText(second(6)) + " has no outcome",
			lines:   without("beat-6-0", "end", perfect()),
			records: []journal.Record{{RunID: "beat-6-0", Job: "beat", Tick: second(6), Token: 1, Outcome: journal.OutcomeOK}}},
		{name: "one of two runs never ended", want: counted{due: 8, settled: 7}, fault: "batch " + clockText(second(5)) + " has no outcome",
			lines: without("batch-5-1", "end", perfect())},
		{name: "a run is still running in the history", want: counted{due: 8, settled: 7}, fault: "beat " + clockText(second(6)) + " has no outcome",
			lines:   without("beat-6-0", "end", perfect()),
			records: []journal.Record{{RunID: "beat-6-0", Job: "beat", Tick: second(6), Token: 1, Outcome: journal.OutcomeRunning}}},
		{name: "a run was stopped", want: good, lines: without("beat-6-0", "end", perfect()),
			records: []journal.Record{{RunID: "beat-6-0", Job: "beat", Tick: second(6), Token: 1, Outcome: journal.OutcomeCanceled}}},
		{name: "a tick was skipped", want: good, lines: without("beat-6-0", "", perfect()),
			records: []journal.Record{{RunID: "beat.6", Job: "beat", Tick: second(6), Outcome: journal.OutcomeSkipped}}},
		{name: "a run was abandoned before its job wrote anything", want: good, lines: without("beat-6-0", "", perfect()),
			records: []journal.Record{{RunID: "beat-6-0", Job: "beat", Tick: second(6), Token: 1, Outcome: journal.OutcomeAbandoned}}},
		{name: "another tick was skipped", want: counted{due: 8, settled: 7}, fault: "beat " + clockText(second(6)) + " has no outcome",
			lines:   without("beat-6-0", "", perfect()),
			records: []journal.Record{{RunID: "beat.4", Job: "beat", Tick: second(4), Outcome: journal.OutcomeSkipped}}},
		{name: "the killed run was abandoned", want: good, lines: perfect(), killed: "report-10-0", records: []journal.Record{abandoned}},
		{name: "nobody noticed the killed run", want: counted{due: 8, settled: 7}, fault: "report " + clockText(second(10)) + " has no outcome",
			lines: perfect(), killed: "report-10-0"},
		{name: "a run at no tick", want: counted{due: 8, settled: 8, strays: 1}, fault: "beat " + clockText(second(3)) + " on r1",
			lines: again("beat-4-0", perfect(), func(l *entry) { l.Tick, l.At, l.Replica = second(3), second(4.5), "r1" })},
		{name: "a tick of before the beginning", want: counted{due: 8, settled: 8, strays: 1}, fault: "beat " + clockText(second(0)) + " on r2",
			lines: again("beat-2-0", perfect(), func(l *entry) { l.Tick, l.Token, l.Replica = second(0), l.Token-500, "r2" })},
		{name: "a tick while the replicas end", want: counted{due: 9, settled: 9},
			lines: again("beat-10-0", perfect(), func(l *entry) { l.Tick, l.At = second(12), l.At.Add(2*time.Second) })},
		{name: "a token shrank", want: counted{due: 8, settled: 8, shrank: 1}, fault: "has a smaller token than beat " + clockText(second(6)),
			lines: changed("beat-8-0", perfect(), func(l *entry) { l.Token -= 4500 })},
		{name: "a token came twice", want: counted{due: 8, settled: 8, shrank: 1}, fault: "has a token that another run has",
			lines: changed("batch-5-1", perfect(), func(l *entry) { l.Token -= 1000 })},
	} {
		t.Run(tc.name, func(t *testing.T) {
			jobs := builtIn(t)
			from := map[string]time.Time{"beat": second(0), "batch": second(0), "report": second(0)}
			tally := newTally(jobs, from, second(11))
			tally.runs, tally.killed = runsOf(tc.lines), tc.killed
			for _, r := range tc.records {
				tally.addOutcome(r)
			}
			got := tally.countTicks()
			if got.due != tc.want.due || got.settled != tc.want.settled || got.doubled != tc.want.doubled ||
				got.early != tc.want.early || got.strays != tc.want.strays || got.shrank != tc.want.shrank {
				t.Errorf("counted %+v\nwant %+v", got, tc.want)
			}
			if tc.fault == "" && len(got.faults) > 0 || tc.fault != "" && (len(got.faults) != 1 || !strings.Contains(got.faults[0], tc.fault)) {
				t.Errorf("faults %q, want one with %q", got.faults, tc.fault)
			}
		})
	}
}

func TestTallyCountsRunsOfReplicas(t *testing.T) {
	tally := newTally(builtIn(t), map[string]time.Time{"beat": second(0), "batch": second(0), "report": second(0)}, second(11))
	tally.runs = runsOf(perfect())
	got := tally.countTicks().runs
	if fmt.Sprint(got) != "map[r1:5 r2:3 r3:2]" {
		t.Errorf("runs %v", got)
	}
}

// A tick with jitter is due when the jitter is over.
func TestTallyKnowsJitter(t *testing.T) {
	jobs := builtIn(t)
	beat := *jobs[1]
	beat.Jitter = time.Second
	due := dueAt(&beat, second(2))
	if due.Equal(second(2)) {
		t.Fatal("the job's name gives no jitter at this tick")
	}
	tally := newTally([]*config.Job{&beat}, map[string]time.Time{"beat": second(0)}, due)
	tally.runs = []run{{ID: "a", Job: "beat", Replica: "r1", Tick: second(2), Token: 1, Started: due.Add(-time.Millisecond), Ended: due}}
	if got := tally.countTicks(); got.due != 1 || got.early != 1 {
		t.Errorf("counted %+v", got)
	}
	tally = newTally([]*config.Job{&beat}, map[string]time.Time{"beat": second(0)}, due.Add(-time.Nanosecond))
	if got := tally.countTicks(); got.due != 0 {
		t.Errorf("due before its jitter was over: %+v", got)
	}
}

func TestTestimonySurvivesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs")
	if lines, err := readEntries(path); err != nil || lines != nil {
		t.Errorf("of no file: %v, %v", lines, err)
	}
	env := map[string]string{"CRONCLAVE_JOB": "beat", "CRONCLAVE_TICK": "2026-03-01T12:00:02Z", "CRONCLAVE_SLOT": "1",
		"CRONCLAVE_FENCING_TOKEN": "9007199254740991", "CRONCLAVE_REPLICA": "r1", "CRONCLAVE_RUN_ID": "x"}
	said, err := newEntry(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	for _, event := range []string{"start", "end"} {
		if err := said.appendTo(event, path); err != nil {
			t.Fatal(err)
		}
	}
	lines, err := readEntries(path)
	if err != nil {
		t.Fatal(err)
	}
	runs := runsOf(lines)
	if len(runs) != 1 || runs[0].Token != 1<<53-1 || runs[0].Slot != 1 || !runs[0].Tick.Equal(second(2)) || runs[0].Ended.Before(runs[0].Started) {
		t.Errorf("runs %+v", runs)
	}
	if err := os.WriteFile(path, []byte("{\"event\":\"sta"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readEntries(path); err == nil {
		t.Error("half a line is taken for a whole one")
	}
}

func loadText(t *testing.T, text string) *config.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jobs.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(path, config.Options{Env: func(name string) (string, bool) { return "1", true }})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestReplicasGetNoOtherOrders(t *testing.T) {
	cfg := loadText(t, `
[redis]
url = "redis://:${CRONCLAVE_REDIS_PASSWORD}@127.0.0.1"
[jobs.a]
schedule = "@daily"
command = ["true"]
env = { X = "${CRONCLAVE_OF_THE_JOB}" }
`)
	environ := []string{"PATH=/bin", "CRONCLAVE_REDIS=redis://10.0.0.1", "CRONCLAVE_CLOCK_OFFSET=1h", "CRONCLAVE_CONFIG=x.toml",
		"CRONCLAVE_REDIS_PASSWORD=p", "CRONCLAVE_OF_THE_JOB=j", "DEMO_PROGRAM=/other"}
	got := replicaEnv(environ, cfg, map[string]string{"DEMO_PROGRAM": "/this"})
	want := []string{"PATH=/bin", "CRONCLAVE_REDIS_PASSWORD=p", "CRONCLAVE_OF_THE_JOB=j", "DEMO_PROGRAM=/this"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestLogLinesAreRead(t *testing.T) {
	l := parseLog([]byte(`{"level":"info","msg":"started","time":"2026-03-01T13:00:02.25+01:00","job":"beat","slot":2,` +
		`"run_id":"x","tick":"2026-03-01T12:00:02Z","token":9007199254740991}`))
	if l.Token != 1<<53-1 || l.Slot != 2 || !l.Tick.Equal(second(2)) || !l.At.Equal(second(2.25)) || l.Message != saidStarted {
		t.Errorf("%+v", l)
	}
	// Other lines have other types at these keys.
	if l := parseLog([]byte(`{"level":"warn","msg":"ticks missed","job":"beat","token":"none","reason":"redis"}`)); l.Level != "warn" || l.Reason != "redis" {
		t.Errorf("%+v", l)
	}
	if l := parseLog([]byte("panic: no")); l.Level != "" || l.Message != "panic: no" {
		t.Errorf("%+v", l)
	}
}
