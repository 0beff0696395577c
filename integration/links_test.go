package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"
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
command = 'exec "$SCRIBE" -for 6s -beat 20ms -ignore-term'
parallel = 2
per_tick = 1
kill_grace = "1s"
`

// linkedEvery is how many seconds are between two ticks of a job of linked.
const linkedEvery = 2

// badLink is a fault of the links of some replicas.
type badLink struct {
	fault func() fault // for one link
	lease time.Duration
	lasts time.Duration
	asked bool // answers get through in the end: a client that asks again learns of its grant while its lease lasts
}

// Replicas behind broken links keep P1 to P4, and each tick has one outcome (P6). Three of five links break, each in
// its own way, while one of them runs a job; the healthy replicas run what they can (P5).
// Promise: P1, P2, P3, P4, P5, P6
func TestBadLinks(t *testing.T) {
	slow(t)
	t.Parallel()
	const short, long = 3 * time.Second, 10 * time.Second
	for name, l := range map[string]badLink{
		"cut":                      {func() fault { return fault{reset: true} }, short, 9 * time.Second, false},
		"replies are lost":         {func() fault { return fault{replies: nothing} }, short, 9 * time.Second, false},
		"requests are lost":        {func() fault { return fault{requests: nothing} }, short, 9 * time.Second, false},
		"one reply in six is lost": {func() fault { return fault{replies: butOneIn(6)} }, long, 15 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			startLinks(t, l).endure(t)
		})
	}
}

// links is a cluster of which each replica is behind a link, and some of the links break.
type links struct {
	*cluster
	badLink
	replicas       []*replica
	proxies        []*proxy        // of the replicas
	behind         map[string]bool // the replicas whose links break
	first          int64           // the first tick that is judged
	broken, mended time.Time       // by the clock of Redis
}

var quickJobs = []string{"a", "b", "c"}

func startLinks(t *testing.T, l badLink) *links {
	t.Helper()
	c := &links{cluster: newCluster(t, fmt.Sprintf(linked, l.lease)), badLink: l, behind: map[string]bool{}}
	for i := range 5 {
		p := startProxy(t, c.Client.Options().Addr, nil, nil)
		c.proxies = append(c.proxies, p)
		c.replicas = append(c.replicas, c.startAt(t, fmt.Sprintf("r%d", i+1), p.url))
	}
	for _, r := range c.replicas {
		r.WaitLog(t, soon, "announcement", announced)
	}
	for _, job := range quickJobs {
		c.first = max(c.first, c.awaitTick(t, soon, job, 0).Tick)
	}
	return c
}

// breakThree breaks three links just after a run has begun behind one of them.
func (c *links) breakThree(t *testing.T) (broken []*proxy) {
	t.Helper()
	seen, begun := len(c.lines(t, "pair")), -1
	eventually(t, startTimeout, "run behind a link", func() bool {
		for _, l := range starts(c.lines(t, "pair")[seen:]) {
			begun = slices.IndexFunc(c.replicas, func(r *replica) bool { return r.Name == l.Replica })
		}
		return begun >= 0
	})
	c.broken = redisTime(t, c.Client)
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
	awaitTime(t, c.Client, c.broken.Add(c.lasts))
	for _, p := range broken {
		p.Mend()
	}
	c.mended = redisTime(t, c.Client)
	last := c.mended.Unix() + 4
	for _, job := range quickJobs {
		c.awaitTick(t, startTimeout, job, last)
	}
	past := map[string]map[int64][]pastRun{}
	for _, job := range append([]string{"pair"}, quickJobs...) {
		eventually(t, startTimeout, "outcome of each tick of job "+job, func() bool {
			past[job] = outcomesOf(c.history(t, job))
			for tick := c.first; tick <= last; tick += linkedEvery {
				if o := past[job][tick]; len(o) == 0 || o[0].Outcome == "running" && job != "pair" {
					return false
				}
			}
			return true
		})
	}
	stopAll(t, c.replicas)

	runs := starts(c.lines(t, ""))
	checkOnce(t, runs, 1)
	checkNotEarly(t, runs)
	c.checkTokensGrow(t, runs)
	checkAtMost(t, c.lines(t, "pair"), 2)
	for _, job := range quickJobs {
		checkAtMost(t, c.lines(t, job), 1)
		c.checkTicks(t, job, last, past[job])
	}
	for job := range past {
		checkAttempts(t, c.lines(t, job), c.history(t, job))
	}
	for tick := c.first; tick <= last; tick += linkedEvery {
		if o := past["pair"][tick]; len(o) != 1 {
			t.Errorf("job pair, tick %d: outcomes %+v", tick, o)
		}
	}
}

// checkTicks demands that each tick of a quick job has one outcome, and ran unless a bad link is to blame.
func (c *links) checkTicks(t *testing.T, job string, last int64, past map[int64][]pastRun) {
	t.Helper()
	ran := map[int64]line{}
	for _, l := range starts(c.lines(t, job)) {
		ran[l.Tick] = l
	}
	meanwhile, count := 0, map[string]int{}
	for tick := c.first; tick <= last; tick += linkedEvery {
		l, did := ran[tick]
		o := past[tick]
		if len(o) != 1 {
			t.Errorf("job %s, tick %d (ran: %v): outcomes %+v", job, tick, did, o)
			continue
		}
		well := did && o[0].Outcome == "ok" && o[0].RunID == l.RunID
		if !well && !c.excuses(tick, did, o[0]) {
			t.Errorf("job %s, tick %d, the links were broken from %v to %v: ran %v, and the outcome is %+v", job, tick, c.broken, c.mended, did, o[0])
		}
		if did && tick > c.broken.Unix() && tick <= c.mended.Unix() {
			meanwhile++
		}
		count[fmt.Sprintf("%s, ran %v", o[0].verdict(), did)]++
	}
	if meanwhile == 0 {
		t.Errorf("job %s did not run at all while the links were broken", job)
	}
	t.Logf("job %s: %v, %d ran while links were broken", job, count, meanwhile)
}

// excuses returns whether a broken link may be the reason why a tick did not run well. A replica behind one could not
// record a run, or did not learn of its grant; until the lease of such a grant has ended the slot is taken.
func (c *links) excuses(tick int64, ran bool, r pastRun) bool {
	at := time.Unix(tick, 0)
	if at.Before(c.broken.Add(-2*time.Second)) || at.After(c.mended.Add(c.lease+2*time.Second)) {
		return false
	}
	switch r.verdict() {
	case "abandoned", "lost":
		return c.behind[r.Replica] && (ran || !c.asked)
	case "skipped overlap":
		return !ran
	}
	return false
}
