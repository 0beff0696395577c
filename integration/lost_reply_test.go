package integration

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// trappedJob has a lease longer than a replica needs to repeat an unanswered claim, and shorter than the expiry of its registration.
const trappedJob = `
[redis]
%s
[jobs.j]
schedule = "*/3 * * * * *"
command = 'exec "$SCRIBE"'
start_deadline = "40s"
lease = "6s"
`

const trappedPeriod, trappedLease = 3, 6 * time.Second

// If the reply that grants a tick is lost, the tick still runs exactly once and before its deadline. The test runs on one server, a Cluster and a quorum. It lets a
// claim through and drops the reply that grants it: the connection is closed, or stays silent, or the replica is cut off until the lease has ended. In the last
// case the replica withdraws the grant and claims the tick again.
// Promise: P1, P5, quorum
func TestReplyOfAGrantIsLost(t *testing.T) {
	slow(t)
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) *trapped{"single": trapSingle, "Cluster": trapCluster, "quorum": trapQuorum} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			for range 3 {
				s.startBehindLinks(t)
			}
			s.awaitTick(t, startTimeout, "j", 0)
			s.checkLost(t, "the connection is closed", closes, 0)
			s.checkLost(t, "the connection is silent", isLost, 0)
			s.checkLost(t, "the link is cut", isLost, trappedLease+time.Second) // in the time that the replica waits for an answer
			stopAll(t, s.replicas)
			runs := starts(s.lines(t, ""))
			checkOnce(t, runs, 1)
			checkNotEarly(t, runs)
			s.checkTokensGrow(t, runs)
		})
	}
}

// trapped is a cluster in which each replica reaches each server through its own proxy. The trap can drop replies on these links.
type trapped struct {
	*cluster
	trap
	servers  []string // addresses
	address  func(links []*proxy) (url, config string)
	replicas []*replica
	links    map[string][]*proxy // of each replica
}

func trapSingle(t *testing.T) *trapped {
	t.Helper()
	s := startRedis(t, redisOpts{})
	return &trapped{
		cluster: newClusterOn(t, s, ""), servers: []string{s.instance.addr()}, trap: trap{grants: isGranted, need: 1},
		address: func(links []*proxy) (url, config string) { return links[0].url, "" },
	}
}

func trapCluster(t *testing.T) *trapped {
	t.Helper()
	k := startCluster(t)
	s := &trapped{cluster: newClusterAt(t, k.URL, ""), trap: trap{grants: isGranted, need: 1}}
	for _, n := range k.nodes {
		s.servers = append(s.servers, n.instance.addr())
	}
	s.address = func(links []*proxy) (url, config string) {
		return "redis-cluster://" + strings.Join(addrsOf(links), ","), ""
	}
	return s
}

func trapQuorum(t *testing.T) *trapped {
	t.Helper()
	history := startRedis(t, redisOpts{})
	s := &trapped{trap: trap{grants: isAccepted, need: 2}}
	var urls []string
	for range 3 {
		master := startRedis(t, redisOpts{})
		s.servers, urls = append(s.servers, master.instance.addr()), append(urls, master.URL)
	}
	s.cluster = onQuorum(t, history, urls, "")
	s.address = func(links []*proxy) (url, config string) {
		return "", fmt.Sprintf("url = %q\nquorum = [\"redis://%s\"]", history.URL, strings.Join(addrsOf(links), `", "redis://`))
	}
	return s
}

func addrsOf(links []*proxy) (addrs []string) {
	for _, l := range links {
		addrs = append(addrs, l.addr())
	}
	return addrs
}

// startBehindLinks starts one more replica, with links of its own.
func (s *trapped) startBehindLinks(t *testing.T) {
	t.Helper()
	name := fmt.Sprintf("r%d", len(s.replicas)+1)
	view := &portView{}
	var links []*proxy
	for _, addr := range s.servers {
		link := startProxy(t, addr, nil, view.rewrite)
		link.Watch(func() watcher { return &trappedConn{trap: &s.trap, replica: name, link: link} })
		view.add(addr, link.addr())
		links = append(links, link)
	}
	if s.links == nil {
		s.links = map[string][]*proxy{}
	}
	s.links[name] = links
	url, config := s.address(links)
	as := *s.cluster
	_, env, _ := strings.Cut(s.config, "[defaults.env]")
	as.config = fmt.Sprintf(trappedJob, config) + "[defaults.env]" + env
	s.replicas = append(s.replicas, as.startAt(t, name, url))
	s.started = s.replicas
	s.replicas[len(s.replicas)-1].WaitLog(t, soon, "announcement", announced)
}

// portView replaces the ports of Cluster nodes in replies by the ports of the proxies in front of them.
type portView struct {
	mu  sync.Mutex
	way map[string]string
}

func (v *portView) add(addr, way string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.way == nil {
		v.way = map[string]string{}
	}
	v.way[":"+portOf(addr)+"\r\n"] = ":" + portOf(way) + "\r\n"
}

// rewrite replaces the ports in a reply. Ports that the kernel chooses have five digits, so the length of the reply stays the same.
func (v *portView) rewrite(reply []byte) []byte {
	v.mu.Lock()
	defer v.mu.Unlock()
	for port, way := range v.way {
		reply = bytes.ReplaceAll(reply, []byte(port), []byte(way))
	}
	return reply
}

// checkLost drops the reply of the next grant, and checks that its tick runs once and has one outcome. Unless the link is cut, the tick runs on the same replica,
// under the lease that was granted.
func (s *trapped) checkLost(t *testing.T, what string, how verdict, cut time.Duration) {
	t.Helper()
	s.arm(how)
	var c catch
	eventually(t, startTimeout, "grant whose reply is lost: "+what, func() (sprung bool) { c, sprung = s.caught(); return sprung })
	if cut > 0 {
		for _, link := range s.links[c.replica] {
			link.Cut()
		}
		awaitTime(t, s.Client, c.at.Add(cut))
		for _, link := range s.links[c.replica] {
			link.Mend()
		}
	}
	tick := c.at.Unix() / trappedPeriod * trappedPeriod
	run := s.await(t, startTimeout, "j", "run ("+what+")", func(l line) bool { return l.Event == "start" && l.Tick == tick })
	late := run.At().Sub(time.Unix(tick, 0))
	anew := slices.ContainsFunc(s.claimedAnew(), func(e logEntry) bool {
		return e["job"] == "j" && e["tick"] == time.Unix(tick, 0).UTC().Format(time.RFC3339)
	})
	if cut == 0 && (late > trappedLease || anew || run.Replica != c.replica) || cut > 0 && (late > 40*time.Second || !anew) {
		t.Errorf("%s: the grant of replica %s was lost, and tick %d ran on %s %v later; claimed anew: %t", what, c.replica, tick, run.Replica, late, anew)
	}
	s.awaitRun(t, soon, "j", "end of the tick", func(r pastRun) bool { return r.Tick.Unix() == tick && r.Outcome == "ok" })
	if outcomes := outcomesOf(s.history(t, "j"))[tick]; len(outcomes) != 1 {
		t.Errorf("%s: outcomes of tick %d: %+v", what, tick, outcomes)
	}
	t.Logf("%s: the grant of %s was lost %d times, and tick %d ran on %s after %v", what, c.replica, c.replies, tick, run.Replica, late)
}

// The replies that grant a claim: "granted" from a single server or Cluster, and "accepted" from one node of a quorum.
var (
	isGranted  = regexp.MustCompile(`\*[0-9]+\r\n\$7\r\ngranted\r\n`)
	isAccepted = regexp.MustCompile(`\*[0-9]+\r\n\$8\r\naccepted\r\n`)
)

// A trap drops the replies that grant one claim: the first such reply on each link of the replica that claimed.
type trap struct {
	grants *regexp.Regexp
	need   int // the number of replies that make a grant

	mu    sync.Mutex
	armed bool
	how   verdict
	now   catch
}

// A catch is a claim whose grant was lost.
type catch struct {
	replica string
	at      time.Time // of the first reply
	replies int
	links   map[*proxy]bool
}

func (p *trap) arm(how verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed, p.how, p.now = true, how, catch{links: map[*proxy]bool{}}
}

// caught returns the claim, and reports whether enough replies were dropped to make it a lost grant.
func (p *trap) caught() (catch, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now, p.now.replies >= p.need
}

// spring decides whether a reply that grants a claim is dropped.
func (p *trap) spring(replica string, link *proxy) verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.armed || p.now.links[link] || p.now.replica != "" && p.now.replica != replica {
		return passes
	}
	if p.now.replies == 0 {
		p.now.replica, p.now.at = replica, time.Now()
	}
	p.now.links[link] = true
	p.now.replies++
	return p.how
}

// A trappedConn watches one connection of a link for replies to drop.
type trappedConn struct {
	*trap
	replica string
	link    *proxy

	mu       sync.Mutex
	ofTheJob bool // whether the last request was about the job
	silent   bool
}

func (c *trappedConn) request(part []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ofTheJob = bytes.Contains(part, []byte("{j}:job"))
}

func (c *trappedConn) reply(part []byte) verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.silent {
		return isLost
	}
	if !c.ofTheJob || !c.grants.Match(part) {
		return passes
	}
	v := c.spring(c.replica, c.link)
	c.silent = v == isLost
	return v
}
