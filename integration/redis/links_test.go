package redis

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

// linked are quick jobs, and one whose runs last longer than its lease and do not end when they are asked to.
const linked = `
[history]
runs = 1000

[defaults]
schedule = "*/2 * * * * *"
command = 'exec "$SCRIBE"'
start_deadline = "20s"
lease = "%s"

[jobs.a]
[jobs.b]
[jobs.c]

[jobs.pair]
command = 'exec "$SCRIBE" -for 8s -beat 20ms -ignore-term'
parallel = 2
per_tick = 1
kill_grace = "1s"
`

// linkedEvery is how many seconds are between two ticks of a job of linked.
const linkedEvery = 2

// badLink is a fault of the links of some replicas.
type badLink struct {
	fault func() harness.Fault // for one link
	lease time.Duration
	lasts time.Duration
	asked bool // answers get through in the end: a client that asks again learns of its grant while its lease lasts
}

// Replicas behind broken links keep P1 to P4, and each tick has one outcome (P6). Three of five links break, each in
// its own way, while one of them runs a job; the healthy replicas run what they can (P5).
// Promise: P1, P2, P3, P4, P5, P6
func TestBadLinks(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const short, long = 5 * time.Second, 10 * time.Second // long enough for a healthy replica of a slow machine
	for name, l := range map[string]badLink{
		"cut":                      {func() harness.Fault { return harness.Fault{Reset: true} }, short, 12 * time.Second, false},
		"replies are lost":         {func() harness.Fault { return harness.Fault{Replies: harness.LetsNothingThrough} }, short, 12 * time.Second, false},
		"requests are lost":        {func() harness.Fault { return harness.Fault{Requests: harness.LetsNothingThrough} }, short, 12 * time.Second, false},
		"one reply in six is lost": {func() harness.Fault { return harness.Fault{Replies: harness.LetsAllButOneIn(6)} }, long, 15 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			startLinks(t, l).endure(t)
		})
	}
}

// links is a cluster of which each replica is behind a link, and some of the links break.
type links struct {
	*harness.Cluster
	badLink
	replicas       []*harness.Replica
	proxies        []*harness.Proxy // of the replicas
	behind         map[string]bool  // the replicas whose links break
	first          int64            // the first tick that is judged
	broken, mended time.Time        // by the clock of Redis
}

var quickJobs = []string{"a", "b", "c"}

func startLinks(t *testing.T, l badLink) *links {
	t.Helper()
	c := &links{Cluster: harness.NewCluster(t, fmt.Sprintf(linked, l.lease)), badLink: l, behind: map[string]bool{}}
	for i := range 5 {
		p := harness.StartProxy(t, c.Client.Options().Addr, nil, nil)
		c.proxies = append(c.proxies, p)
		c.replicas = append(c.replicas, c.StartAt(t, fmt.Sprintf("r%d", i+1), p.URL))
	}
	for _, r := range c.replicas {
		r.WaitLog(t, harness.Soon, "announcement", harness.Announced)
	}
	for _, job := range quickJobs {
		c.first = max(c.first, c.AwaitTick(t, harness.Soon, job, 0).Tick)
	}
	return c
}

// breakThree breaks three links just after a run has begun behind one of them.
func (c *links) breakThree(t *testing.T) (broken []*harness.Proxy) {
	t.Helper()
	seen, begun := len(c.Lines(t, "pair")), -1
	harness.Eventually(t, harness.StartTimeout, "run behind a link", func() bool {
		for _, l := range harness.Starts(c.Lines(t, "pair")[seen:]) {
			begun = slices.IndexFunc(c.replicas, func(r *harness.Replica) bool { return r.Name == l.Replica })
		}
		return begun >= 0
	})
	c.broken = harness.RedisTime(t, c.Client)
	for i := range 3 {
		at := (begun + i) % len(c.replicas)
		c.behind[c.replicas[at].Name] = true
		c.proxies[at].Break(c.fault())
		broken = append(broken, c.proxies[at])
	}
	return broken
}

// endure breaks links, mends them after a while, and judges.
func (c *links) endure(t *testing.T) {
	t.Helper()
	broken := c.breakThree(t)
	harness.AwaitTime(t, c.Client, c.broken.Add(c.lasts))
	for _, p := range broken {
		p.Mend()
	}
	c.mended = harness.RedisTime(t, c.Client)
	last := c.mended.Unix() + 4
	for _, job := range quickJobs {
		c.AwaitTick(t, harness.StartTimeout, job, last)
	}
	past := map[string]map[int64][]harness.PastRun{}
	for _, job := range append([]string{"pair"}, quickJobs...) {
		harness.Eventually(t, harness.StartTimeout, "outcome of each tick of job "+job, func() bool {
			past[job] = harness.OutcomesOf(c.History(t, job))
			for tick := c.first; tick <= last; tick += linkedEvery {
				if o := past[job][tick]; len(o) == 0 || o[0].Outcome == "running" && job != "pair" {
					return false
				}
			}
			return true
		})
	}
	harness.StopAll(t, c.replicas)

	runs := harness.Starts(c.Lines(t, ""))
	harness.CheckOnce(t, runs, 1)
	harness.CheckNotEarly(t, runs)
	c.CheckTokensGrow(t, runs)
	harness.CheckAtMost(t, c.Lines(t, "pair"), 2)
	for _, job := range quickJobs {
		harness.CheckAtMost(t, c.Lines(t, job), 1)
		c.checkTicks(t, job, last, past[job])
	}
	for job := range past {
		harness.CheckAttempts(t, c.Lines(t, job), c.History(t, job))
	}
	for tick := c.first; tick <= last; tick += linkedEvery {
		if o := past["pair"][tick]; len(o) != 1 {
			t.Errorf("job pair, tick %d: outcomes %+v", tick, o)
		}
	}
}

// checkTicks demands that each tick of a quick job has one outcome, and ran unless a bad link or a slow run before it is to blame.
func (c *links) checkTicks(t *testing.T, job string, last int64, past map[int64][]harness.PastRun) {
	t.Helper()
	ran := map[int64]harness.Line{}
	for _, l := range harness.Starts(c.Lines(t, job)) {
		ran[l.Tick] = l
	}
	history, meanwhile, count := c.History(t, job), 0, map[string]int{}
	for tick := c.first; tick <= last; tick += linkedEvery {
		l, did := ran[tick]
		o := past[tick]
		if len(o) != 1 {
			t.Errorf("job %s, tick %d (ran: %v): outcomes %+v", job, tick, did, o)
			continue
		}
		well := did && o[0].Outcome == "ok" && o[0].RunID == l.RunID
		overtaken := !did && o[0].Verdict() == "skipped overlap" && heldBy(history, tick)
		if !well && !overtaken && !c.excuses(tick, did, o[0]) {
			t.Errorf("job %s, tick %d, the links were broken from %v to %v: ran %v, and the outcome is %+v", job, tick, c.broken, c.mended, did, o[0])
		}
		if did && tick > c.broken.Unix() && tick <= c.mended.Unix() {
			meanwhile++
		}
		count[fmt.Sprintf("%s, ran %v", o[0].Verdict(), did)]++
	}
	if meanwhile == 0 {
		t.Errorf("job %s did not run at all while the links were broken", job)
	}
	t.Logf("job %s: %v, %d ran while links were broken", job, count, meanwhile)
}

// excuses returns whether a broken link may be the reason why a tick did not run well. A replica behind one could not
// record a run, or did not learn of its grant; until the lease of such a grant has ended the slot is taken.
func (c *links) excuses(tick int64, ran bool, r harness.PastRun) bool {
	at := time.Unix(tick, 0)
	if at.Before(c.broken.Add(-2*time.Second)) || at.After(c.mended.Add(c.lease+2*time.Second)) {
		return false
	}
	switch r.Verdict() {
	case "abandoned", "lost":
		return c.behind[r.Replica] && (ran || !c.asked)
	case "skipped overlap":
		return !ran
	}
	return false
}

// A command that fails twice is tried again under the same lease, and the history has all three tries.
func TestRetriedCommand(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c := harness.NewCluster(t, `
[jobs.moody]
schedule = "*/30 * * * * *"
command = '"$SCRIBE"; test "$CRONCLAVE_ATTEMPT" = 3'
retry = { max = 3, delay = "100ms" }
`)
	replicas := c.StartAll(t, 2)
	last := c.AwaitRun(t, harness.StartTimeout, "moody", "the try that is ok", func(r harness.PastRun) bool { return r.Verdict() == "ok" })
	harness.StopAll(t, replicas)
	var told []string
	for _, r := range c.History(t, "moody") {
		if r.Tick.Equal(last.Tick) {
			told = append(told, fmt.Sprint(strings.TrimPrefix(r.RunID, last.RunID), " ", r.Attempt, " ", r.Token == last.Token, " ", r.Verdict()))
		}
	}
	slices.Sort(told)
	want := []string{" 3 true ok", ".1 1 true failed exit code 1", ".2 2 true failed exit code 1"}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	var attempts []int
	for _, l := range harness.LinesOf("start", c.Lines(t, "moody")) {
		if l.RunID == last.RunID {
			attempts = append(attempts, l.Attempt)
		}
	}
	if !slices.Equal(attempts, []int{1, 2, 3}) {
		t.Errorf("attempts %v", attempts)
	}
	harness.CheckAttempts(t, c.Lines(t, "moody"), c.History(t, "moody"))
}

// No two attempts of a tick have the same number although their holder was cut off. The test cuts the link of a
// replica during the first try of a run. Its next try waits for the cluster, the lease ends first, and the tick is
// run again elsewhere.
// Promise: P6
func TestTriesOfAHolderThatIsCutOff(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for name, broken := range map[string]func() harness.Fault{
		"silence": func() harness.Fault {
			return harness.Fault{Requests: harness.LetsNothingThrough, Replies: harness.LetsNothingThrough}
		},
		"replies are lost": func() harness.Fault { return harness.Fault{Replies: harness.LetsNothingThrough} },
		"connections cut":  func() harness.Fault { return harness.Fault{Reset: true} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := harness.NewCluster(t, `
[jobs.moody]
schedule = "*/30 * * * * *"
command = '"$SCRIBE" -for 2s; false'
lease = "5s"
retry = { max = 4, delay = "100ms", max_delay = "200ms" }
recover = { max = 4 }
`)
			var replicas []*harness.Replica
			proxies := map[string]*harness.Proxy{}
			for i := range 3 {
				p := harness.StartProxy(t, c.Client.Options().Addr, nil, nil)
				r := c.StartAt(t, fmt.Sprintf("r%d", i+1), p.URL)
				proxies[r.Name], replicas = p, append(replicas, r)
			}
			for _, r := range replicas {
				r.WaitLog(t, harness.Soon, "announcement", harness.Announced)
			}
			first := c.AwaitTick(t, 2*harness.Soon, "moody", 0)
			proxies[first.Replica].Break(broken())
			last := c.AwaitRun(t, 2*harness.Soon, "moody", "last attempt", func(r harness.PastRun) bool { return r.Attempt == 5 && r.Verdict() == "failed exit code 1" })
			proxies[first.Replica].Mend()
			c.AwaitRun(t, harness.Soon, "moody", "end of the first attempt", func(r harness.PastRun) bool { return r.RunID == first.RunID && r.Outcome == "lost" })
			harness.StopAll(t, replicas)
			if !last.Tick.Equal(time.Unix(first.Tick, 0)) || last.Replica == first.Replica || last.Token <= first.Token {
				t.Errorf("not the same tick elsewhere with a greater token:\n%v\n%+v", first, last)
			}
			lines := c.Lines(t, "moody")
			for _, l := range harness.LinesOf("start", lines) {
				if l.RunID == first.RunID && l.Attempt > 1 {
					t.Errorf("another try of the holder that is cut off: %v", l)
				}
			}
			harness.CheckAttempts(t, lines, c.History(t, "moody"))
			harness.CheckAlone(t, lines)
		})
	}
}
