package demo

import (
	"slices"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/config"
)

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
		if got := p.shouldHit(tc.run, job, second(tc.now)); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
	d.plan.recordKill(*report(10), job, second(11.6))
	if d.plan.shouldHit(report(20), job, second(21.6)) {
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
			hit = hit || lasts && d.plan.shouldHit(r, job, second(at))
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
	if d.plan.shouldHit(beat, d.known.jobs["beat"], second(6.02)) {
		t.Error("a short run is hit although there is time for a long one")
	}
	if !d.plan.shouldHit(beat, d.known.jobs["beat"], second(7.02)) {
		t.Error("a long run is not hit")
	}
	beat.Started = second(16)
	if !d.plan.shouldHit(beat, d.known.jobs["beat"], second(16.01)) {
		t.Error("a short run is not hit although time passes")
	}
}

func TestPlotKnowsTheTakeOver(t *testing.T) {
	d, _ := told(t)
	p := &d.plan
	elsewhere := &run{ID: "h", Job: "report", Replica: "r1", Tick: second(20), Started: second(20.01)}
	if p.isTakeOver(elsewhere) {
		t.Error("a take-over without a kill")
	}
	p.recordKill(*report(10), d.known.jobs["report"], second(11.5))
	for name, r := range map[string]run{
		"the same tick":    {ID: "a", Job: "report", Replica: "r1", Tick: second(10)},
		"another job":      {ID: "b", Job: "beat", Replica: "r1", Tick: second(20)},
		"the same replica": {ID: "c", Job: "report", Replica: "r3", Tick: second(20)},
	} {
		if p.isTakeOver(&r) {
			t.Errorf("%s is taken for a take-over", name)
		}
	}
	if p.shouldReturn(second(19)) {
		t.Error("the replica is back before the take-over")
	}
	if !p.isTakeOver(elsewhere) || p.isTakeOver(&run{ID: "i", Job: "report", Replica: "r2", Tick: second(30)}) {
		t.Error("the first run elsewhere is the take-over, and no other")
	}
	if p.shouldReturn(second(20.5)) || !p.shouldReturn(second(21.1)) || p.shouldReturn(second(21.2)) {
		t.Error("the replica is back a second later, once")
	}
}

func TestPlotBringsTheReplicaBackAnyway(t *testing.T) {
	d, _ := told(t)
	d.plan.recordKill(*report(10), d.known.jobs["report"], second(11.5))
	if d.plan.shouldReturn(second(31)) || !d.plan.shouldReturn(second(32)) {
		t.Error("15 s after the lease's end without a take-over")
	}
	d.plan.returned = false
	if d.plan.shouldReturn(second(59)) {
		t.Error("in the last moments")
	}
}

func TestQuiet(t *testing.T) {
	jobs := builtIn(t)
	for _, tc := range []struct{ from, want float64 }{
		{0, 0.5}, // ticks are at 0, 2, 4, 5, 6, 8
		{0.7, 0.7},
		{1.6, 2.5},
		{3.5, 3.5},
		{4, 4.5},
		{5.6, 6.5},
	} {
		if got := quietTime(jobs, second(tc.from)); got.Sub(second(tc.want)).Abs() > 100*time.Millisecond {
			t.Errorf("from %v: %v, want %v", tc.from, got.Sub(second(0)), tc.want)
		}
	}
	// Where there is no such room, the best there is.
	every := append(slices.Clone(jobs), perSecond(t))
	every[len(every)-1].Jitter = 300 * time.Millisecond
	if room := roomAt(every, quietTime(every, second(0.7))); room < 300*time.Millisecond {
		t.Errorf("%v from the next tick", room)
	}
}

func perSecond(t *testing.T) *config.Job {
	t.Helper()
	cfg := loadText(t, "[jobs.sec]\nschedule = \"* * * * * *\"\ncommand = [\"true\"]\n")
	return &cfg.Jobs[0]
}
