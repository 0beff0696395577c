package demo

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/config"
)

// told is a demo that hears the logs of its replicas and prints to a buffer.
func told(t *testing.T) (*demo, *bytes.Buffer) {
	t.Helper()
	t.Setenv("NO_COLOR", "")
	var out bytes.Buffer
	d := &demo{Config: Config{Out: &out, Length: time.Minute}, cfg: &config.Config{}, jobs: builtIn(t), builtIn: true, fleet: newFleet(nil, nil, "")}
	d.view, d.known = newView(&out, false, time.UTC, d.jobs), newKnown(d.jobs)
	d.view.zone = time.UTC
	d.planKill(second(0))
	return d, &out
}

// record lets a line of a replica's log come in.
func (d *demo) record(t *testing.T, replica string, at float64, fields map[string]any) {
	t.Helper()
	fields["time"], fields["replica"] = second(at), replica
	if _, set := fields["level"]; !set {
		fields["level"] = "info"
	}
	for name, value := range fields {
		if tick, isNumber := value.(float64); isNumber && name == "tick" {
			fields[name] = second(tick)
		}
	}
	line, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	e := parseLog(line)
	e.from = &process{name: replica}
	d.handleEvent(&e)
}

type fields = map[string]any

const someToken = int64(1772366402000311) // its last digits get lost in a float32, and in a careless %v

func TestViewShowsALineForEachEvent(t *testing.T) {
	d, out := told(t)
	d.printIntroduction()
	d.record(t, "r1", 0.1, fields{"msg": "starting with an embedded Redis: ...", "level": "warn"})
	d.record(t, "r2", 2, fields{"msg": "started", "job": "beat", "tick": 2.0, "run_id": "a", "slot": 0, "token": someToken})
	d.record(t, "r2", 2, fields{"msg": saidNotRun, "stream": "stdout", "job": "beat", "tick": 2.0, "run_id": "a", "token": someToken})
	d.record(t, "r2", 2.01, fields{"msg": "finished", "job": "beat", "tick": 2.0, "run_id": "a", "token": someToken,
		"outcome": "ok", "reason": "", "duration": "12ms"})
	d.record(t, "r1", 5, fields{"msg": "started", "job": "batch", "tick": 5.0, "run_id": "b", "slot": 1, "token": someToken + 1})
	d.record(t, "r1", 5.1, fields{"msg": "finished", "job": "batch", "tick": 5.0, "run_id": "b", "token": someToken + 1,
		"outcome": "failed", "reason": "exit code 7, and a long story about it that nobody reads to its end", "duration": "101ms"})
	d.record(t, "r3", 6, fields{"msg": "tick not run", "job": "beat", "tick": 6.0, "outcome": "skipped overlap"})
	d.record(t, "r3", 10, fields{"msg": "started", "job": "report", "tick": 10.0, "run_id": "c", "slot": 0, "token": someToken + 2})
	d.plan.victim, d.plan.killedAt = *d.known.open[0], second(11.5)
	abandoned := fields{"msg": saidAbandoned, "level": "warn", "job": "report", "run_id": "c", "replica_lost": "r3", "token": someToken + 2}
	d.record(t, "r1", 16, abandoned)
	d.record(t, "r2", 16, abandoned)
	d.record(t, "r1", 17, fields{"msg": "Redis does not answer", "level": "warn", "error": "timeout"})
	d.record(t, "r1", 20, fields{"msg": "started", "job": "report", "tick": 20.0, "run_id": "d", "slot": 0, "token": someToken + 3})
	d.record(t, "r1", 24, fields{"msg": "finished", "job": "report", "tick": 20.0, "run_id": "d", "token": someToken + 3,
		"outcome": "ok", "reason": "", "duration": "4s"})
	compareFile(t, "testdata/view.txt", out.String())
	for line := range strings.Lines(out.String()) {
		if n := len([]rune(strings.TrimSpace(line))); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func compareFile(t *testing.T, path, got string) {
	t.Helper()
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the output is not as in %s:\n%s", path, got)
	}
}

// A run that is not to be killed is shown as running once, when it has lasted for a while.
func TestViewShowsLongRuns(t *testing.T) {
	d, out := told(t)
	lines := func() int { return strings.Count(out.String(), "running") }
	d.record(t, "r2", 5, fields{"msg": "started", "job": "batch", "tick": 5.0, "run_id": "a", "slot": 0, "token": someToken})
	d.checkRuns(second(5.9))
	if lines() != 0 {
		t.Fatalf("shown too early:\n%s", out)
	}
	for _, at := range []float64{6.1, 6.2} {
		d.checkRuns(second(at))
	}
	if lines() != 1 {
		t.Fatalf("not shown once:\n%s", out)
	}
}

func TestViewColoursOnlyATerminal(t *testing.T) {
	var out bytes.Buffer
	v := newView(&out, false, time.UTC, nil)
	v.printRun(second(2), &run{Job: "beat", Tick: second(2), Token: 1}, "ok", "")
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("colours in what is no terminal: %q", out.String())
	}
	v.colour = true
	if got := v.paintText(red, "x"); got != "\x1b[1;31mx\x1b[0m" {
		t.Errorf("painted %q", got)
	}
}

func TestReplicaThatEndsByItselfIsShown(t *testing.T) {
	d, out := told(t)
	m := &process{name: "r2"}
	d.fleet.alive = 1
	for _, e := range []logLine{
		parseLog([]byte("cronclave: there is something wrong")),
		{ended: true, At: second(3), Error: "exit status 1"},
	} {
		e.from = m
		d.handleEvent(&e)
	}
	want := "12:00:03  --      r2 has ended by itself: exit status 1\n12:00:03  --      r2: cronclave: there is something wrong\n"
	if out.String() != want || d.surprises != 1 || d.fleet.alive != 0 {
		t.Errorf("surprises %d, alive %d, told %q", d.surprises, d.fleet.alive, out)
	}
	if err := d.listFaults(&counted{}); err == nil {
		t.Error("and still the demo succeeds")
	}
}

// A run that is open when the user ends the demo, or in a file with deadlines of its own, is reported and no failure; any fault is a failure.
func TestVerdict(t *testing.T) {
	for _, tc := range []struct {
		name    string
		c       counted
		cut     bool
		file    bool
		success bool
	}{
		{"all is well", counted{due: 8, settled: 8}, false, false, true},
		{"a tick is unsettled", counted{due: 8, settled: 7}, false, false, false},
		{"a tick is open after Ctrl-C", counted{due: 8, settled: 7}, true, false, true},
		{"a tick of a file is open", counted{due: 8, settled: 7}, false, true, true},
		{"doubled", counted{due: 8, settled: 8, doubled: 1}, true, true, false},
		{"early", counted{due: 8, settled: 8, early: 1}, true, true, false},
		{"stray", counted{due: 8, settled: 8, strays: 1}, true, true, false},
		{"a token shrank", counted{due: 8, settled: 8, shrank: 1}, true, true, false},
	} {
		d, out := told(t)
		d.cut, d.builtIn = tc.cut, !tc.file
		tc.c.faults = []string{"this is what is wrong"}
		if err := d.listFaults(&tc.c); (err == nil) != tc.success {
			t.Errorf("%s: %v", tc.name, err)
		}
		if !strings.Contains(out.String(), "this is what is wrong") {
			t.Errorf("%s: not told: %s", tc.name, out)
		}
	}
}

// the plan of a demo of the built-in configuration from 0 to 60.
func report(tick float64) *run {
	return &run{ID: "x", Job: "report", Replica: "r3", Tick: second(tick), Started: second(tick + 0.01)}
}

func TestPlotHitsARunInItsMiddle(t *testing.T) {
	d, _ := told(t)
	job := d.known.jobs["report"]
	for _, tc := range []struct {
		name string
		run  *run
		now  float64
		end  float64
		want bool
	}{
		{"in its middle", report(10), 11.6, 60, true},
		{"too early in the run", report(10), 11.4, 60, false},
		{"too early in the demo", report(0), 2, 60, false},
		{"another job", &run{ID: "y", Job: "batch", Replica: "r1", Started: second(5)}, 11.6, 60, false},
		{"the take-over just fits", report(10), 11.6, 21.1, true},
		{"the take-over does not fit", report(10), 11.6, 20.9, false},
	} {
		p := d.plan
		p.end = second(tc.end)
		if got := p.shouldKill(tc.run, job, second(tc.now)); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
	d.plan.victim, d.plan.killedAt = *report(10), second(11.6)
	if d.plan.shouldKill(report(20), job, second(21.6)) {
		t.Error("a second replica is killed")
	}
}

// However the demo's beginning lies to the ticks, the kill and the take-over fit into the time that it says it needs.
func TestPlotFitsIn(t *testing.T) {
	d, _ := told(t)
	job := d.known.jobs["report"]
	for begin := 0.0; begin < 10; begin += 0.1 {
		d.Length = Needs
		d.planKill(second(begin))
		hit := false
		for at := begin; at < begin+Needs.Seconds(); at += 0.1 {
			tick := lastDue(job, second(at))
			r := &run{ID: "x", Job: "report", Replica: "r3", Tick: tick, Started: tick.Add(20 * time.Millisecond)}
			lasts := second(at).Sub(tick) < 4*time.Second && tick.After(second(begin))
			hit = hit || lasts && d.plan.shouldKill(r, job, second(at))
		}
		if !hit {
			t.Errorf("no kill in a demo that begins at %.1f", begin)
		}
	}
}

// Of a file any job will do, and when time passes a short run, too.
func TestPlotTakesWhatAFileHas(t *testing.T) {
	d, _ := told(t)
	d.builtIn = false
	d.planKill(second(0))
	beat := &run{ID: "y", Job: "beat", Replica: "r1", Tick: second(6), Started: second(6.01)}
	if d.plan.shouldKill(beat, d.known.jobs["beat"], second(6.02)) {
		t.Error("a short run is hit although there is time for a long one")
	}
	if !d.plan.shouldKill(beat, d.known.jobs["beat"], second(7.02)) {
		t.Error("a long run is not hit")
	}
	beat.Started = second(16)
	if !d.plan.shouldKill(beat, d.known.jobs["beat"], second(16.01)) {
		t.Error("a short run is not hit although time passes")
	}
}

func TestPlotKnowsTheTakeOver(t *testing.T) {
	elsewhere := run{ID: "h", Job: "report", Replica: "r1", Tick: second(20), Started: second(20.01)}
	for _, tc := range []struct {
		name   string
		killed bool
		run    run
		want   bool
	}{
		{"before the kill", false, elsewhere, false},
		{"the same tick", true, run{ID: "a", Job: "report", Replica: "r1", Tick: second(10)}, false},
		{"another job", true, run{ID: "b", Job: "beat", Replica: "r1", Tick: second(20)}, false},
		{"the same replica", true, run{ID: "c", Job: "report", Replica: "r3", Tick: second(20)}, false},
		{"the next tick elsewhere", true, elsewhere, true},
	} {
		var p plan
		if tc.killed {
			p.victim, p.killedAt = *report(10), second(11.5)
		}
		p.noteTakeOver(&tc.run)
		if p.takeOver.ID == tc.run.ID != tc.want {
			t.Errorf("%s: %+v", tc.name, p.takeOver)
		}
		if p.noteTakeOver(&run{ID: "i", Job: "report", Replica: "r2", Tick: second(30)}); tc.want && p.takeOver.ID != "h" {
			t.Errorf("%s: a later run is the take-over", tc.name)
		}
	}
}
