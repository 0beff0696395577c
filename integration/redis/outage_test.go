package redis

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

// Ticks that come due while Redis is away for less than the start deadline run once and in order, and none skips
// another (P5).
// Promise: P1, P5
func TestRedisAwayForAWhile(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const outage = 4 * time.Second
	s := harness.StartRedis(t, harness.RedisOpts{Persist: true})
	c := harness.NewClusterOn(t, s, `
[history]
runs = 1000

[defaults]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
start_deadline = "30s"
lease = "3s"

[jobs.a]
[jobs.b]
`)
	replicas := c.StartAll(t, 3)
	first := max(c.AwaitTick(t, harness.Soon, "a", 0).Tick, c.AwaitTick(t, harness.Soon, "b", 0).Tick)
	c.AwaitTick(t, harness.Soon, "a", first+2)
	up := harness.RedisTime(t, c.Client)
	s.Stop()
	down := time.Now() // the server is away, and it is this machine whose clock it has
	for _, r := range replicas {
		r.WaitLog(t, outage+harness.Soon, "warning that Redis is away", harness.MessageHas("does not answer"))
	}
	harness.Eventually(t, outage+harness.Soon, "end of the outage", func() bool { return time.Since(down) > outage })
	s.Start(harness.MemoryKept)
	back := harness.RedisTime(t, c.Client)
	last := back.Unix() + 3
	for _, job := range []string{"a", "b"} {
		c.AwaitTick(t, 2*harness.Soon, job, last)
	}
	harness.StopAll(t, replicas)

	runs := harness.Starts(c.Lines(t, ""))
	harness.CheckOnce(t, runs, 1)
	harness.CheckNotEarly(t, runs)
	c.CheckTokensGrow(t, runs)
	for _, job := range []string{"a", "b"} {
		outcomes := harness.OutcomesOf(c.History(t, job))
		mine := harness.Starts(c.Lines(t, job))
		for tick := first; tick <= last; tick++ {
			ran := slices.ContainsFunc(mine, func(l harness.Line) bool { return l.Tick == tick })
			o := outcomes[tick]
			// A tick that came due while Redis was there did not wait for it: it may find another run in its slot,
			// such as one of the backlog.
			there := tick <= up.Unix() || tick > back.Unix()
			overlap := there && len(o) == 1 && o[0].Outcome == "skipped" && o[0].Reason == "overlap" && !ran
			if !overlap && (len(o) != 1 || o[0].Outcome != "ok" || !ran) {
				t.Errorf("job %s, tick %d (%ds after the return of Redis): ran %v, outcomes %+v", job, tick, tick-back.Unix(), ran, o)
			}
		}
		if !slices.IsSortedFunc(mine, func(a, b harness.Line) int { return int(a.Tick - b.Tick) }) {
			t.Errorf("ticks ran out of order:\n%s", harness.TextOf(mine))
		}
	}
	t.Logf("away for %v: %d ticks due", back.Sub(down).Round(time.Millisecond), 2*(last-first+1))
}

// A Redis that is silent for two seconds stops no run, and every tick runs once (P1, P3, P5). The test freezes it
// twice, so that a renewal of the lease of a long run gets no answer. The lease leaves time for that: a run is asked
// to stop at its end less the grace, which takes a third of it at most. Each outcome is recorded as it was.
// Promise: P1, P5
func TestSlowRedis(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const frozen, lease = 2 * time.Second, 9 * time.Second
	s := harness.StartRedis(t, harness.RedisOpts{Persist: true})
	c := harness.NewClusterOn(t, s, backlog+`
[jobs.long]
command = 'exec "$SCRIBE" -for 7s -beat 50ms'
kill_grace = "1s"
`)
	c.Config = strings.Replace(c.Config, `lease = "3s"`, `lease = "9s"`, 1)
	replicas := c.StartAll(t, 5)
	var long harness.Line
	var outages []*outage
	for range 2 {
		o := &outage{Cluster: c, replicas: replicas}
		long = c.Await(t, harness.Soon, "long", "next run", func(l harness.Line) bool { return l.Event == "start" && l.Token > long.Token })
		harness.AwaitTime(t, c.Client, long.At().Add(lease/4)) // it is renewed a third of the way through
		now := harness.RedisTime(t, c.Client).Unix()
		o.first = max(c.AwaitTick(t, harness.Soon, "a", now).Tick, c.AwaitTick(t, harness.Soon, "b", now).Tick)
		o.down = harness.RedisTime(t, c.Client).Unix()
		s.Pause()
		began := time.Now()
		harness.Eventually(t, harness.Soon, "end of the silence", func() bool { return time.Since(began) > frozen })
		s.Unpause()
		o.back = harness.RedisTime(t, c.Client).Unix()
		o.last = o.back + 3
		for _, job := range []string{"a", "b"} {
			c.AwaitTick(t, harness.Soon, job, o.last)
		}
		outages = append(outages, o)
	}
	harness.StopAll(t, replicas)
	for _, o := range outages {
		o.checkTicks(t, o.first)
	}
	lines := c.Lines(t, "long")
	harness.CheckAlone(t, lines)
	if len(harness.LinesOf("end", lines)) < len(harness.Starts(lines)) {
		t.Errorf("not every run came to its end:\n%s", harness.TextOf(harness.Starts(lines)))
	}
	for _, job := range []string{"a", "b", "long"} {
		for _, r := range c.History(t, job) {
			if v := r.Verdict(); v != "ok" && v != "skipped overlap" {
				t.Errorf("job %s: %+v", job, r)
			}
		}
	}
}

// A replica that is cut off from Redis kills the tree of its job before the lease's end by the clock of Redis (P3).
// The job does not want to end; the next run, elsewhere, is alone.
// Promise: P3
func TestLostLease(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c := harness.NewCluster(t, `
[jobs.stubborn]
schedule = "* * * * * *"
command = 'exec "$SCRIBE" -for 5m -beat 10ms -ignore-term -child'
lease = "4s"
kill_grace = "1m"
`)
	const lease, share = 4 * time.Second, 4 * time.Second / 3 // of the lease, for the grace
	p := harness.StartProxy(t, c.Client.Options().Addr, nil, nil)
	cut := c.StartAt(t, "cut-off", p.URL)
	first := c.AwaitTick(t, harness.Soon, "stubborn", 0)
	c.Await(t, harness.Soon, "stubborn", "child", func(l harness.Line) bool { return l.PID != first.PID })
	other := c.Start(t, "other")
	other.WaitLog(t, harness.Soon, "announcement", harness.Announced)
	c.AwaitTick(t, harness.Soon, "stubborn", 0)

	p.Cut()
	end := c.LeaseEnd(t, "stubborn")
	if left := end.Sub(harness.RedisTime(t, c.Client)); left > lease {
		t.Fatalf("%v are left of a lease of %v", left, lease)
	}
	next := c.Await(t, 2*lease+harness.Soon, "stubborn", "next run", func(l harness.Line) bool { return l.Event == "start" && l.RunID != first.RunID })
	lines := c.Lines(t, "stubborn")
	mine := harness.RunLines(first.RunID, lines)
	if dead := harness.LatestAt(mine); !dead.Before(end) {
		t.Errorf("the tree wrote %v after the lease's end", dead.Sub(end))
	} else {
		t.Logf("the tree was dead %v before the lease's end", end.Sub(dead).Round(time.Millisecond))
	}
	terms := harness.LinesOf("term", mine)
	if len(terms) != 2 {
		t.Errorf("SIGTERM reached %d processes of the tree, want 2:\n%s", len(terms), harness.TextOf(terms))
	} else if lead := end.Sub(terms[0].At()); lead < share/4 || lead > lease {
		t.Errorf("SIGTERM came %v before the lease's end, want about %v", lead, share)
	}
	harness.WantDead(t, mine)
	harness.CheckAlone(t, lines)
	if next.Replica != "other" || next.Token <= first.Token || next.At().Before(end) {
		t.Errorf("the next run is not elsewhere, later, with a greater token; the lease ended at %v:\n%s", end, harness.TextOf([]harness.Line{first, next}))
	}
	other.Kill(t) // its job goes on as long as it may write
	p.Mend()
	past := c.AwaitRun(t, harness.Soon, "stubborn", "lost run", func(r harness.PastRun) bool { return r.RunID == first.RunID && r.Outcome == "lost" })
	if past.Replica != "cut-off" {
		t.Errorf("%+v", past)
	}
	if cut.Ended() {
		t.Error("the replica did not survive the loss of a lease")
	}
}

// Replicas whose clocks are 3s fast and 3s slow run no tick early, none twice, and leave none out.
// Promise: P2
func TestWrongClocks(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c := harness.NewCluster(t, `
[defaults]
schedule = "*/2 * * * * *"
command = 'exec "$SCRIBE"'
start_deadline = "20s"

[jobs.a]
[jobs.b]
`)
	offsets := map[string]time.Duration{"fast": 90 * time.Second, "slow": -3 * time.Second, "right": 0}
	var replicas []*harness.Replica
	for name, offset := range offsets {
		replicas = append(replicas, c.Start(t, name, "CRONCLAVE_CLOCK_OFFSET="+offset.String()))
	}
	for _, r := range replicas {
		r.WaitLog(t, harness.Soon, "announcement", harness.Announced)
	}
	first := max(c.AwaitTick(t, harness.Soon, "a", 0).Tick, c.AwaitTick(t, harness.Soon, "b", 0).Tick)
	wantOffsets(t, c, offsets)
	last := max(first, harness.RedisTime(t, c.Client).Unix()) + 10 // time enough for a second registration, which must not warn again
	for _, job := range []string{"a", "b"} {
		c.AwaitTick(t, harness.Soon, job, last)
	}
	harness.StopAll(t, replicas)
	for _, r := range replicas {
		said := slices.DeleteFunc(r.LogEntries(), func(e harness.LogEntry) bool { return e["code"] != "clock_off" })
		if wrong := offsets[r.Name] != 0; wrong != (len(said) == 1) || len(said) > 1 {
			t.Errorf("replica %s warns of its clock %d times: %v", r.Name, len(said), said)
		}
	}

	runs := harness.Starts(c.Lines(t, ""))
	harness.CheckOnce(t, runs, 1)
	harness.CheckNotEarly(t, runs)
	c.CheckTokensGrow(t, runs)
	by := map[string]int{}
	for _, l := range runs {
		by[l.Replica]++
	}
	for _, job := range []string{"a", "b"} {
		c.CheckTicks(t, job, first+first%2, last, 2)
	}
	t.Logf("runs by replica: %v; lateness: %s", by, harness.Lateness(runs))
}

// wantOffsets waits until status shows the replicas' clocks, and demands that it warns of the wrong ones.
func wantOffsets(t *testing.T, c *harness.Cluster, offsets map[string]time.Duration) {
	t.Helper()
	const near = 500 * time.Millisecond
	var s harness.ClusterStatus
	harness.Eventually(t, harness.Soon, "true clock offsets in status", func() bool {
		s = c.Status(t)
		right := 0
		for _, r := range s.Replicas {
			if off := time.Duration(r.ClockOffsetMS)*time.Millisecond - offsets[r.Name]; off.Abs() < near {
				right++
			}
		}
		return right == len(offsets)
	})
	warned := 0
	for _, w := range s.Warnings {
		if w.Code == "clock_off" {
			warned++
		}
	}
	if warned != 2 {
		t.Errorf("status warns of %d clocks, want 2: %+v", warned, s.Warnings)
	}
	for _, p := range s.Problems {
		if p.Code == "clock_off" && (offsets[p.Replica] == 0 || p.Since == nil || s.Now.Sub(*p.Since).Abs() > time.Minute) {
			t.Errorf("%+v", p)
		}
	}
}

// After an outage and a loss of data status says so, until when locks stay closed, and that all replicas are up. audit and why name the loss.
func TestIncidentsOfRedisAreShown(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := harness.StartRedis(t, harness.RedisOpts{})
	c := harness.NewClusterOn(t, s, `
server = { listen = "127.0.0.1:0" }

[jobs.nightly]
schedule = "0 3 * * *"
command = "true"
lease = "1m"
`)
	replicas := c.StartAll(t, 2)
	c.AwaitReplicas(t, 2)
	c.Command(t, "trigger", "nightly", "--wait").Want(t, 0, "") // of a lock that was never held nothing is known, and nothing lost
	c.Command(t, "pause", "nightly", "--for", "1h").Want(t, 0, "")
	yesterday := time.Now().UTC().AddDate(0, 0, -1).Truncate(24 * time.Hour).Add(3 * time.Hour)
	c.Command(t, "audit").Want(t, 0, "pause")
	s.Stop()
	const outage = 9 * time.Second // a registration fails within the first five, and for two at least
	down := time.Now()
	harness.Eventually(t, outage+harness.Soon, "end of the outage", func() bool { return time.Since(down) > outage })
	s.Start(harness.MemoryLost)
	var kinds []string
	var st harness.ClusterStatus
	defer func() {
		t.Logf("incidents %v, closed until %v, replicas %+v, problems %+v", st.Incidents, st.ClosedUntil, st.Replicas, st.Problems)
	}()
	harness.Eventually(t, harness.Soon, "both incidents, and all replicas", func() bool {
		st, kinds = c.Status(t), nil
		for _, in := range st.Incidents {
			kinds = append(kinds, in.Kind)
		}
		for _, p := range st.Problems {
			if strings.HasPrefix(p.Code, "replica_") {
				t.Errorf("a replica that is up is a problem: %+v", p)
			}
		}
		slices.Sort(kinds)
		return slices.Equal(kinds, []string{"data_loss", "outage"}) && len(st.Replicas) == 2 && st.ClosedUntil != nil && st.Jobs[0].Paused
	})
	if closed := st.ClosedUntil.Sub(st.Now); closed <= 0 || closed > time.Minute || st.DataLost == nil {
		t.Errorf("locks stay closed for %v, data lost %v", closed, st.DataLost)
	}
	c.Command(t, "status").Want(t, 0, "locks stay closed until "+st.ClosedUntil.UTC().Format(time.RFC3339))
	c.Command(t, "status").Want(t, 0, "Redis did not answer r")
	c.Command(t, "audit").Want(t, 0, "earlier acts may be missing")
	why := c.Command(t, "why", "nightly", yesterday.Format(time.RFC3339))
	why.Want(t, 0, "Redis lost its data between ")
	if strings.Contains(why.Stdout, "[history]") {
		t.Errorf("why blames the settings:\n%s", why.Stdout)
	}
	for _, r := range replicas {
		_, page := harness.GetPage(t, r.MetricsURL(t), "")
		for _, want := range []string{"\ncronclave_redis_data_losses_total 1\n", "\ncronclave_redis_outages_total 1\n"} {
			if !strings.Contains(page, want) {
				t.Errorf("%s: no %q", r.Name, want)
			}
		}
	}
}
