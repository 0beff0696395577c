package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const chainOfTwo = `
[replica]
labels = { zone = "${ZONE:-a}" }

[defaults]
lease = "2s"
start_deadline = "1m"

[jobs.extract]
schedule = "*/2 * * * * *"
where = { zone = "a" }
command = '"$SCRIBE" -for 50ms; test $((CRONCLAVE_TICK_UNIX % 6)) != 0'

[jobs.load]
after = ["extract"]
where = { zone = "b" }
command = '"$SCRIBE" -for 100ms'
`

// A chain goes on after the death of all its replicas: the child runs once for each tick that its parent had ended
// ok. The test kills every replica of the child, and later the one that has run the parent. The new replicas have no
// history to read.
// Promise: P5
func TestChainSurvivesTheDeathOfAll(t *testing.T) {
	slow(t)
	t.Parallel()
	c := newCluster(t, chainOfTwo)
	before := c.start(t, "before", "ZONE=a")
	first := []*replica{c.start(t, "b1", "ZONE=b"), c.start(t, "b2", "ZONE=b")}
	c.awaitTick(t, startTimeout, "load", 0)
	for _, r := range first {
		r.Kill(t)
	}
	seen := c.history(t, "load")
	gone := redisTime(t, c.Client).Unix()
	last := c.awaitTick(t, startTimeout, "extract", gone+9).Tick
	before.Kill(t)
	c.forgetHistory(t)
	second := c.start(t, "b3", "ZONE=b")
	sure := int64(0) // the last tick that has ended well for certain
	for _, l := range event("end", c.lines(t, "extract")) {
		if l.Tick < last && l.Tick%6 != 0 {
			sure = max(sure, l.Tick)
		}
	}
	c.awaitRun(t, startTimeout, "load", "outcome of it", func(r pastRun) bool { return r.Tick.Unix() >= sure })
	pass(t, time.Now().Add(time.Second))
	stopAll(t, []*replica{second})

	told := map[int64]bool{}
	for _, r := range append(seen, c.history(t, "load")...) {
		told[r.Tick.Unix()] = true
	}
	checkChain(t, c.lines(t, "extract"), c.lines(t, "load"), func(end line) bool { return end.Tick < last }, told)
}

// forgetHistory deletes the history, which only people read.
func (c *cluster) forgetHistory(t *testing.T) {
	t.Helper()
	keys := c.Client.Scan(t.Context(), 0, "cronclave:"+c.Namespace+":*", 1000).Iterator()
	n := 0
	for keys.Next(t.Context()) {
		if key := keys.Val(); strings.HasSuffix(key, ":records") || strings.HasSuffix(key, ":history") {
			n++
			if err := c.Client.Del(t.Context(), key).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n == 0 {
		t.Error("there was no history")
	}
}

// checkChain demands that a job has run once for each tick that the job before it has ended well, after that, and for
// no other tick. Where sure is false for an end, the job may have run for it. told has the ticks in the history: a
// run that was killed may not have begun. The first tick may be no tick of the job: its schedule is announced after that
// of the job before it, and a replica may start just before a tick.
func checkChain(t *testing.T, before, after []line, sure func(end line) bool, told map[int64]bool) {
	t.Helper()
	ended, ran := map[int64]line{}, map[int64]bool{}
	for _, l := range event("end", before) {
		ended[l.Tick] = l
	}
	runs := starts(after)
	checkOnce(t, runs, 1)
	for _, l := range runs {
		end, ok := ended[l.Tick]
		if !ok || l.Micros < end.Micros || l.Tick%6 == 0 {
			t.Errorf("%v ran, though the tick had not ended well before: %v", l, end)
		}
		ran[l.Tick] = true
	}
	n := 0
	for tick, end := range ended {
		if tick%6 == 0 || !sure(end) {
			continue
		}
		n++
		if !ran[tick] && !told[tick] && tick != before[0].Tick {
			t.Errorf("nothing ran after %v", end)
		}
	}
	if n < 3 {
		t.Errorf("only %d ticks of %d have been compared", n, len(ended))
	}
}

// A chain runs each tick once although a replica is killed again and again just when a run has ended, which is when
// it claims the job after it.
// Promise: P1, P6
func TestChainUnderKills(t *testing.T) {
	slow(t)
	t.Parallel()
	c := newCluster(t, strings.NewReplacer(`zone = "a" }`, "}", `zone = "b" }`, "}").Replace(chainOfTwo)+`
[jobs.report]
after = ["load"]
command = '"$SCRIBE" -for 100ms'
`)
	replicas := map[string]*replica{}
	for _, r := range c.startAll(t, 3) {
		replicas[r.Name] = r
	}
	killed := 0
	from := c.awaitTick(t, startTimeout, "extract", 0).Tick
	for n := range 6 {
		tick := from + 2 + int64(4*n)
		end := c.await(t, startTimeout, "extract", "end", func(l line) bool { return l.Event == "end" && l.Tick >= tick })
		if victim := replicas[end.Replica]; victim != nil {
			victim.Kill(t)
			killed++
			delete(replicas, end.Replica)
			r := c.start(t, fmt.Sprintf("n%d", n))
			replicas[r.Name] = r
		}
	}
	until := redisTime(t, c.Client).Unix() + 16 // most ticks before that ran on a replica that was killed then, and are not compared
	c.awaitTick(t, startTimeout, "report", until+4)
	for _, r := range replicas {
		r.Term(t)
	}
	for _, r := range replicas {
		r.wantDrained(t)
	}
	ok := map[string]map[int64]bool{}
	told := map[string]map[int64]bool{}
	for _, job := range []string{"extract", "load", "report"} {
		ok[job], told[job] = map[int64]bool{}, map[int64]bool{}
		for _, r := range c.history(t, job) {
			ok[job][r.Tick.Unix()] = r.Outcome == "ok"
			told[job][r.Tick.Unix()] = true
		}
	}
	for _, link := range [][2]string{{"extract", "load"}, {"load", "report"}} {
		sure := func(end line) bool { // a run that was killed before it wrote its end has not ended well, and is recorded as abandoned
			return ok[link[0]][end.Tick] && end.Tick < until
		}
		checkChain(t, c.lines(t, link[0]), c.lines(t, link[1]), sure, told[link[1]])
	}
	if killed < 3 {
		t.Errorf("only %d replicas were killed", killed)
	}
}
