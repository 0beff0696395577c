package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

// Ticks that came due while all replicas were dead run as each job's catch_up says, once each and oldest first. The
// test kills all replicas while their jobs run, and starts them again when some ticks are past their deadlines. Of
// the job latest no tick is due any more then.
// Promise: P5
func TestCatchUpAfterAllWereKilled(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	jobs := `
[defaults]
schedule = "*/2 * * * * *"
command = '"$SCRIBE"'
lease = "2s"
start_deadline = "1s"

[jobs.all]
catch_up = "all"
start_deadline = "10s"

[jobs.none]
`
	const deadline = 10 * time.Second
	c := harness.NewCluster(t, jobs)
	first := c.StartAll(t, 3)
	for _, job := range []string{"all", "none"} {
		c.AwaitTick(t, harness.StartTimeout, job, 0)
	}
	begin := time.Now().UTC().Truncate(2 * time.Second)
	last := begin.Add(18 * time.Second)
	var ticks []string
	for _, at := range []time.Time{begin.Add(6 * time.Second), last.Add(-4 * time.Second), last.Add(-2 * time.Second), last} {
		ticks = append(ticks, strconv.Quote(at.Format("5 4 15 * * *")))
	}
	c.Edit(t, fmt.Sprintf("%s\n[jobs.latest]\nschedule = [%s]\ncatch_up = \"latest\"\n", jobs, strings.Join(ticks, ", ")), first...)
	c.AwaitTick(t, harness.StartTimeout, "latest", 0)
	for _, r := range first {
		r.Kill(t)
	}
	down := time.Now()
	if down.After(last.Add(-time.Second)) {
		t.Fatalf("the replicas were killed %v after the last tick", down.Sub(last))
	}
	odd := down.Truncate(2 * time.Second).Add(21 * time.Second) // no tick is in time then
	for odd.Before(last.Add(3 * time.Second)) {
		odd = odd.Add(2 * time.Second)
	}
	harness.Pass(t, odd)
	second := c.StartAll(t, 3)
	back := time.Now()
	for _, job := range []string{"all", "none"} {
		c.AwaitTick(t, harness.StartTimeout, job, back.Unix()+4)
	}
	c.AwaitTick(t, harness.StartTimeout, "latest", last.Unix())
	harness.Eventually(t, harness.StartTimeout, "outcomes of the ticks that were under way when all were killed", func() bool {
		o := harness.OutcomesOf(c.History(t, "all"))[down.Truncate(2*time.Second).Unix()]
		running := slices.ContainsFunc(c.History(t, "latest"), func(r harness.PastRun) bool { return r.Outcome == "running" })
		return len(o) == 1 && o[0].Outcome != "running" && !running
	})
	harness.StopAll(t, second)

	all := harness.Starts(c.Lines(t, "all"))
	harness.CheckOnce(t, all, 1)
	if !slices.IsSortedFunc(all, func(a, b harness.Line) int { return cmp.Compare(a.Tick, b.Tick) }) {
		t.Errorf("not oldest first: %v", all)
	}
	excused := map[int64]bool{}
	for _, r := range c.History(t, "all") {
		died := r.Outcome == "abandoned" && r.Tick.Before(down)                                   // with its holder, perhaps before it had begun
		behind := r.Outcome == "skipped" && r.Reason == "overlap" && r.Tick.Unix() >= back.Unix() // it came due while a tick of the backlog ran
		waited := r.Verdict() == "missed slots" && r.Tick.Add(deadline).After(odd)                // it was in time when the replicas were back
		excused[r.Tick.Unix()] = died || behind || waited
	}
	for i := 1; i < len(all); i++ {
		next := all[i-1].Tick + 2
		for ; next < all[i].Tick && excused[next]; next += 2 {
			continue
		}
		if all[i].Tick != next {
			t.Errorf("tick %d was followed by %d", all[i-1].Tick, all[i].Tick)
		}
	}
	if n := len(caughtUp(all)); n < 3 {
		t.Errorf("%d ticks of job all were caught up", n)
	}
	latest := harness.Starts(c.Lines(t, "latest"))
	harness.CheckOnce(t, latest, 1)
	if got := caughtUp(latest); len(got) != 1 || got[0].Tick != last.Unix() {
		t.Errorf("of job latest were caught up %v, want tick %d alone", got, last.Unix())
	}
	if got := caughtUp(harness.Starts(c.Lines(t, "none"))); len(got) > 0 {
		t.Errorf("of job none were caught up %v", got)
	}
	for _, r := range c.History(t, "latest") {
		ran := slices.ContainsFunc(latest, func(l harness.Line) bool { return l.RunID == r.RunID })
		if r.Outcome == "abandoned" && r.Tick.Before(down) { // its holder was killed
			continue
		}
		if r.Outcome != "ok" && (r.Verdict() != "missed down" || ran) {
			t.Errorf("%+v", r)
		}
	}
}

// caughtUp are the runs that were told so.
func caughtUp(runs []harness.Line) []harness.Line {
	return slices.DeleteFunc(slices.Clone(runs), func(l harness.Line) bool { return l.Trigger != "catch_up" })
}

// A tick with overlap = "queue" waits for the run before it, on whichever replica it starts then. The runs last
// longer than the time to the next tick.
// Promise: P5
func TestQueueAcrossReplicas(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c := harness.NewCluster(t, `
[jobs.long]
schedule = "*/2 * * * * *"
command = '"$SCRIBE" -for 2500ms -beat 50ms'
overlap = "queue"
`)
	replicas := c.StartAll(t, 2)
	from := c.AwaitTick(t, harness.StartTimeout, "long", 0).Tick
	c.AwaitTick(t, harness.StartTimeout, "long", from+12)
	harness.StopAll(t, replicas)
	lines := c.Lines(t, "long")
	runs := harness.Starts(lines)
	harness.CheckOnce(t, runs, 1)
	harness.CheckAtMost(t, lines, 1)
	together := 0
	for i := 1; i < len(runs); i++ {
		if runs[i].Tick == runs[i-1].Tick+2 { // no tick that comes due while another runs would be run else
			together++
		}
	}
	if together < 2 {
		t.Errorf("no tick has waited: %v", runs)
	}
}
