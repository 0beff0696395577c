package harness

import (
	"fmt"
	"strings"
	"testing"
)

var PromptNames = []string{"a", "b"}

// CheckRan demands that the ticks of all jobs, from one to another, have one outcome each; and that is ok, or skipped where the run before was still on.
func (c *Cluster) CheckRan(t *testing.T, from, to int64) {
	t.Helper()
	for _, name := range PromptNames {
		outcomes := OutcomesOf(c.History(t, name))
		for tick := from; tick <= to; tick++ {
			if o := outcomes[tick]; len(o) != 1 || o[0].Verdict() != "ok" && o[0].Verdict() != "skipped overlap" {
				t.Errorf("job %s, tick %d: outcomes %+v", name, tick, o)
			}
		}
	}
}

// Masters are five independent servers of one test.
func Masters(t *testing.T) []*RedisServer {
	t.Helper()
	all := make([]*RedisServer, 5)
	for i := range all {
		all[i] = StartRedis(t, RedisOpts{})
	}
	return all
}

// NewQuorumCluster puts jobs on five masters, with a Redis for the history beside them.
func NewQuorumCluster(t *testing.T, config string) (*Cluster, []*RedisServer) {
	t.Helper()
	servers := Masters(t)
	return OnQuorum(t, StartRedis(t, RedisOpts{}), UrlsOf(servers), config), servers
}

func UrlsOf(servers []*RedisServer) (urls []string) {
	for _, s := range servers {
		urls = append(urls, s.URL)
	}
	return urls
}

// OnQuorum puts jobs on masters, with a Redis for the history.
func OnQuorum(t *testing.T, history *RedisServer, urls []string, config string) *Cluster {
	t.Helper()
	return ClusterOn(t, "", history.Client, "it", fmt.Sprintf("[redis]\nurl = %q\nquorum = [\"%s\"]\n%s", history.URL, strings.Join(urls, `", "`), config))
}

// AwaitVotes waits until all masters vote: on a busy machine one may join later than the others.
func AwaitVotes(t *testing.T, servers []*RedisServer) {
	t.Helper()
	for _, s := range servers {
		AwaitVote(t, s)
	}
}

// AwaitVote waits until a master that has forgotten votes again: after the longest lease, that of the leadership.
func AwaitVote(t *testing.T, s *RedisServer) {
	t.Helper()
	Eventually(t, 2*Soon, "the master votes again", func() bool { return s.Votes(t) })
}

func (s *RedisServer) Votes(t *testing.T) bool {
	t.Helper()
	return s.Client.HGet(t.Context(), "cronclave:it:quorum", "state").Val() == "voting"
}
