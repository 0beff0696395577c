package cluster

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

// TestLostReplicaNeedsAPerson: a replica that is stopped leaves no problem. One that is killed is the first problem of a status, and an alert, until it is
// forgotten, or one of its name is up. With as many replicas as expected it is advice.
func TestLostReplicaNeedsAPerson(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const jobs = `
server = { listen = "127.0.0.1:0" }
[jobs.bad]
schedule = "* * * * * *"
command = "exit 3"
start_deadline = "1s"
`
	c := harness.NewCluster(t, jobs+"enabled = false\n") // nothing else is a problem
	replicas := c.StartAll(t, 4)
	c.AwaitReplicas(t, 4)
	check := func(what string, code int, pattern string) {
		t.Helper()
		harness.Eventually(t, 2*harness.StartTimeout, what, func() bool {
			shown := c.Command(t, "status", "--check")
			return shown.Code == code && regexp.MustCompile(pattern).MatchString(shown.Stdout)
		})
	}
	expected := func(r *harness.Replica, n int) {
		t.Helper()
		harness.Eventually(t, 2*harness.StartTimeout, fmt.Sprint(n, " expected replicas in the metrics of the leader"), func() bool {
			for _, r := range replicas {
				if !r.Ended() {
					if _, page := harness.GetPage(t, r.MetricsURL(t), ""); strings.Contains(page, fmt.Sprintf("\ncronclave_replicas_expected %d\n", n)) {
						return true
					}
				}
			}
			return false
		})
	}
	replicas[3].Term(t)
	replicas[3].WantDrained(t)
	check("a status without problems after a clean stop", 0, `3 replicas up`)
	replicas[2].Kill(t)
	check("word of the lost replica", 1, `\n\n! the registration of replica r3 expired`)
	expected(replicas[0], 3)

	c.Command(t, "forget", "r1").Want(t, 1, "replica r1 is registered")
	c.Command(t, "forget", "r4").Want(t, 1, `no lost replica "r4"; did you mean "r3"?`)
	c.Command(t, "status", "--check").Want(t, 1, "r3")
	c.Command(t, "forget", "r3", "--reason", "the machine is gone").Want(t, 0, "forgot replica r3")
	check("a status without problems after it is forgotten", 0, `2 replicas up`)
	c.Command(t, "audit").Want(t, 0, "forget")
	c.Command(t, "audit").Want(t, 0, "replica r3")
	expected(replicas[0], 2)

	replicas[1].Kill(t)
	c.Edit(t, jobs, replicas[0]) // from now on a job fails: the lost replica stands before it
	check("the lost replica, and then the failure", 1, `\n\n! the registration of replica r2 expired(.|\n)*\n✗ job bad failed`)
	c.Edit(t, jobs+"enabled = false\n", replicas[0])
	replicas = append(replicas, c.Start(t, "r2"))
	check("a status without problems after its return", 0, `2 replicas up`)
	replicas[4].Kill(t)
	check("word of the second loss", 1, `registration of replica r2 expired`)
	c.Edit(t, jobs+"enabled = false\n[cluster]\nreplicas = 1\n", replicas[0])
	check("advice while as many are up as are expected", 0, `· the registration of replica r2 expired(.|\n)*\[cluster\]\.replicas`)
	c.Edit(t, jobs+"enabled = false\n[cluster]\nreplicas = 2\n", replicas[0])
	begin := time.Now()
	check("too few replicas after a minute", 1, `\n\n! 1 of 2 replicas are up(.|\n)*\n! the registration of replica r2 expired`)
	if after := time.Since(begin); after < 50*time.Second {
		t.Errorf("too few after %v", after)
	}
}

// TestReplicaThatIsBackEndsCleanly: a replica whose registration expired is back under its name before the leader has confirmed the loss. When it is stopped,
// it is not lost, then or when the leader would have confirmed it.
func TestReplicaThatIsBackEndsCleanly(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c := harness.NewCluster(t, "[jobs.quiet]\nschedule = \"0 0 1 1 *\"\ncommand = \"true\"\n")
	replicas := c.StartAll(t, 2)
	c.AwaitReplicas(t, 2)
	replicas[1].Kill(t)
	harness.Eventually(t, 2*harness.StartTimeout, "word of the lost replica", func() bool {
		return strings.Contains(c.Command(t, "status", "--check").Stdout, "the registration of replica r2 expired")
	})
	back := c.Start(t, "r2")
	harness.Eventually(t, 2*harness.StartTimeout, "the return of the replica", func() bool { return strings.Contains(c.Command(t, "status").Stdout, "2 replicas up") })
	back.Term(t)
	back.WantDrained(t)
	c.Command(t, "status", "--check").Want(t, 0, "1 replica up")
	ids, err := c.Client.ZRange(t.Context(), "cronclave:"+c.Namespace+":replicas", 0, -1).Result()
	if lost, more := c.Client.ZCard(t.Context(), "cronclave:"+c.Namespace+":lost").Result(); err != nil || more != nil || lost != 0 || len(ids) != 1 {
		t.Errorf("%d replicas are lost, and %q are to be confirmed, %v, %v", lost, ids, err, more)
	}
}

// A tick that comes due while the only replica's process is stopped is missed because of overload, and not because of
// Redis, which answers.
// Promise: P6
func TestStoppedReplicaSaysOverload(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const jobs, stopped = 20, 6 // so that claims are under way at most times
	var config strings.Builder
	fmt.Fprintf(&config, "[defaults]\nschedule = \"* * * * * *\"\ncommand = 'exec \"$SCRIBE\"'\nstart_deadline = \"1s\"\n")
	for i := range jobs {
		fmt.Fprintf(&config, "[jobs.j%d]\n", i)
	}
	c := harness.NewCluster(t, config.String())
	r := c.Start(t, "r")
	c.AwaitTick(t, 2*harness.Soon, "j0", 0)
	from := harness.RedisTime(t, c.Client).Unix()
	r.Stop(t)
	harness.Eventually(t, 2*harness.Soon, "time to pass", func() bool { return harness.RedisTime(t, c.Client).Unix() >= from+stopped })
	r.Cont(t)
	harness.Eventually(t, 2*harness.Soon, "a tick after the stop", func() bool {
		for _, p := range c.History(t, "j0") {
			if p.Tick.Unix() > from+stopped && p.Outcome == "ok" {
				return true
			}
		}
		return false
	})
	verdicts := map[string]int{}
	for i := range jobs {
		for _, p := range c.History(t, fmt.Sprintf("j%d", i)) {
			if s := p.Tick.Unix(); s > from+1 && s < from+stopped-1 { // well within the stop
				verdicts[p.Verdict()]++
			}
		}
	}
	if verdicts["missed overload"] == 0 || verdicts["missed redis"] > 0 {
		t.Errorf("ticks that came due while the replica was stopped: %v", verdicts)
	}
	harness.StopAll(t, []*harness.Replica{r})
}
