package integration

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestLostReplicaNeedsAPerson: a replica that is stopped leaves no problem. One that is killed is the first problem of a status, and an alert, until it is
// forgotten, or one of its name is up. With as many replicas as expected it is advice.
func TestLostReplicaNeedsAPerson(t *testing.T) {
	slow(t)
	t.Parallel()
	const jobs = `
server = { listen = "127.0.0.1:0" }
[jobs.bad]
schedule = "* * * * * *"
command = "exit 3"
start_deadline = "1s"
`
	c := newCluster(t, jobs+"enabled = false\n") // nothing else is a problem
	replicas := c.startAll(t, 4)
	c.awaitReplicas(t, 4)
	check := func(what string, code int, pattern string) {
		t.Helper()
		eventually(t, 2*startTimeout, what, func() bool {
			shown := c.command(t, "status", "--check")
			return shown.code == code && regexp.MustCompile(pattern).MatchString(shown.stdout)
		})
	}
	expected := func(r *replica, n int) {
		t.Helper()
		eventually(t, 2*startTimeout, fmt.Sprint(n, " expected replicas in the metrics of the leader"), func() bool {
			for _, r := range replicas {
				if !r.Ended() {
					if _, page := get(t, r.metricsURL(t), ""); strings.Contains(page, fmt.Sprintf("\ncronclave_replicas_expected %d\n", n)) {
						return true
					}
				}
			}
			return false
		})
	}
	replicas[3].Term(t)
	replicas[3].wantDrained(t)
	check("a status without problems after a clean stop", 0, `3 replicas up`)
	replicas[2].Kill(t)
	check("word of the lost replica", 1, `\n\n! the registration of replica r3 expired`)
	expected(replicas[0], 3)

	c.command(t, "forget", "r1").want(t, 1, "replica r1 is registered")
	c.command(t, "forget", "r4").want(t, 1, `no lost replica "r4"; did you mean "r3"?`)
	c.command(t, "status", "--check").want(t, 1, "r3")
	c.command(t, "forget", "r3", "--reason", "the machine is gone").want(t, 0, "forgot replica r3")
	check("a status without problems after it is forgotten", 0, `2 replicas up`)
	c.command(t, "audit").want(t, 0, "forget")
	c.command(t, "audit").want(t, 0, "replica r3")
	expected(replicas[0], 2)

	replicas[1].Kill(t)
	c.edit(t, jobs, replicas[0]) // from now on a job fails: the lost replica stands before it
	check("the lost replica, and then the failure", 1, `\n\n! the registration of replica r2 expired(.|\n)*\n✗ job bad failed`)
	c.edit(t, jobs+"enabled = false\n", replicas[0])
	replicas = append(replicas, c.start(t, "r2"))
	check("a status without problems after its return", 0, `2 replicas up`)
	replicas[4].Kill(t)
	check("word of the second loss", 1, `registration of replica r2 expired`)
	c.edit(t, jobs+"enabled = false\n[cluster]\nreplicas = 1\n", replicas[0])
	check("advice while as many are up as are expected", 0, `· the registration of replica r2 expired(.|\n)*\[cluster\]\.replicas`)
	c.edit(t, jobs+"enabled = false\n[cluster]\nreplicas = 2\n", replicas[0])
	begin := time.Now()
	check("too few replicas after a minute", 1, `\n\n! 1 of 2 replicas are up(.|\n)*\n! the registration of replica r2 expired`)
	if after := time.Since(begin); after < 50*time.Second {
		t.Errorf("too few after %v", after)
	}
}

// TestReplicaThatIsBackEndsCleanly: a replica whose registration expired is back under its name before the leader has confirmed the loss. When it is stopped,
// it is not lost, then or when the leader would have confirmed it.
func TestReplicaThatIsBackEndsCleanly(t *testing.T) {
	slow(t)
	t.Parallel()
	c := newCluster(t, "[jobs.quiet]\nschedule = \"0 0 1 1 *\"\ncommand = \"true\"\n")
	replicas := c.startAll(t, 2)
	c.awaitReplicas(t, 2)
	replicas[1].Kill(t)
	eventually(t, 2*startTimeout, "word of the lost replica", func() bool {
		return strings.Contains(c.command(t, "status", "--check").stdout, "the registration of replica r2 expired")
	})
	back := c.start(t, "r2")
	eventually(t, 2*startTimeout, "the return of the replica", func() bool { return strings.Contains(c.command(t, "status").stdout, "2 replicas up") })
	back.Term(t)
	back.wantDrained(t)
	c.command(t, "status", "--check").want(t, 0, "1 replica up")
	ids, err := c.Client.ZRange(t.Context(), "cronclave:"+c.Namespace+":replicas", 0, -1).Result()
	if lost, more := c.Client.ZCard(t.Context(), "cronclave:"+c.Namespace+":lost").Result(); err != nil || more != nil || lost != 0 || len(ids) != 1 {
		t.Errorf("%d replicas are lost, and %q are to be confirmed, %v, %v", lost, ids, err, more)
	}
}
