package redis

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
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

const trappedLease = 6 * time.Second

// If the reply that grants a tick is lost, the tick still runs exactly once and before its deadline. The test runs on one server, a Cluster and a quorum. It lets a
// claim through and drops the reply that grants it: the connection is closed, or stays silent, or the replica is cut off until the lease has ended. In the last
// case the replica withdraws the grant and claims the tick again.
// Promise: P1, P5, quorum
func TestReplyOfAGrantIsLost(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) *trapped{"single": trapSingle, "Cluster": trapCluster, "quorum": trapQuorum} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			for range 3 {
				s.startBehindLinks(t)
			}
			s.AwaitTick(t, harness.StartTimeout, "j", 0)
			s.checkLost(t, "the connection is closed", harness.Closes, false)
			s.checkLost(t, "the connection is silent", harness.IsLost, false)
			s.checkLost(t, "the links are cut", harness.IsLost, true)
			harness.StopAll(t, s.replicas)
			runs := harness.Starts(s.Lines(t, ""))
			harness.CheckOnce(t, runs, 1)
			harness.CheckNotEarly(t, runs)
			s.CheckTokensGrow(t, runs)
		})
	}
}

// trapped is a cluster in which each replica reaches each server through its own proxy. The trap can drop replies on these links.
type trapped struct {
	*harness.Cluster
	trap
	servers  []string // addresses
	address  func(links []*harness.Proxy) (url, config string)
	replicas []*harness.Replica
}

func trapSingle(t *testing.T) *trapped {
	t.Helper()
	s := harness.StartRedis(t, harness.RedisOpts{})
	return &trapped{
		Cluster: harness.NewClusterOn(t, s, ""), servers: []string{s.Instance.Addr()}, trap: trap{grants: grantOfServer, need: 1},
		address: func(links []*harness.Proxy) (url, config string) { return links[0].URL, "" },
	}
}

func trapCluster(t *testing.T) *trapped {
	t.Helper()
	k := harness.StartCluster(t)
	s := &trapped{Cluster: harness.NewClusterAt(t, k.URL, ""), trap: trap{grants: grantOfServer, need: 1}}
	for _, n := range k.Nodes {
		s.servers = append(s.servers, n.Instance.Addr())
	}
	s.address = func(links []*harness.Proxy) (url, config string) {
		return "redis-cluster://" + strings.Join(addrsOf(links), ","), ""
	}
	return s
}

func trapQuorum(t *testing.T) *trapped {
	t.Helper()
	history := harness.StartRedis(t, harness.RedisOpts{})
	s := &trapped{trap: trap{grants: grantOfNode, need: 2}}
	var urls []string
	for range 3 {
		master := harness.StartRedis(t, harness.RedisOpts{})
		s.servers, urls = append(s.servers, master.Instance.Addr()), append(urls, master.URL)
	}
	s.Cluster = harness.OnQuorum(t, history, urls, "")
	s.address = func(links []*harness.Proxy) (url, config string) {
		return "", fmt.Sprintf("url = %q\nquorum = [\"redis://%s\"]", history.URL, strings.Join(addrsOf(links), `", "redis://`))
	}
	return s
}

func addrsOf(links []*harness.Proxy) (addrs []string) {
	for _, l := range links {
		addrs = append(addrs, l.Addr())
	}
	return addrs
}

// startBehindLinks starts one more replica, with links of its own.
func (s *trapped) startBehindLinks(t *testing.T) {
	t.Helper()
	name := fmt.Sprintf("r%d", len(s.replicas)+1)
	view := &portView{}
	var links []*harness.Proxy
	for _, addr := range s.servers {
		link := harness.StartProxy(t, addr, nil, view.rewrite)
		link.Watch(func() harness.Watcher { return &trappedConn{trap: &s.trap, replica: name, link: link} })
		view.add(addr, link.Addr())
		links = append(links, link)
	}
	s.addLinks(name, links)
	url, config := s.address(links)
	as := *s.Cluster
	_, env, _ := strings.Cut(s.Config, "[defaults.env]")
	as.Config = fmt.Sprintf(trappedJob, config) + "[defaults.env]" + env
	s.replicas = append(s.replicas, as.StartAt(t, name, url))
	s.Started = s.replicas
	s.replicas[len(s.replicas)-1].WaitLog(t, harness.Soon, "announcement", harness.Announced)
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
	v.way[":"+harness.PortOf(addr)+"\r\n"] = ":" + harness.PortOf(way) + "\r\n"
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

// checkLost drops the reply of the next grant, and checks that its tick runs once and has one outcome. If the links of the replica are cut, they are mended
// when the lease has ended.
func (s *trapped) checkLost(t *testing.T, what string, how harness.Verdict, cut bool) {
	t.Helper()
	s.arm(how, cut)
	var c *catch
	harness.Eventually(t, harness.StartTimeout, "grant whose reply is lost: "+what, func() bool { c = s.caught(); return c != nil })
	if cut {
		harness.AwaitTime(t, s.Client, c.at.Add(trappedLease+time.Second))
		for _, link := range s.linksOf(c.replica) {
			link.Mend()
		}
	}
	tick, want := s.judge(t, what, c, cut)
	s.AwaitRun(t, harness.Soon, "j", "outcome of the tick", func(r harness.PastRun) bool { return r.Tick.Unix() == tick && r.Outcome == want })
	if outcomes := harness.OutcomesOf(s.History(t, "j"))[tick]; len(outcomes) != 1 {
		t.Errorf("%s: outcomes of tick %d: %+v", what, tick, outcomes)
	}
}

// judge waits until the tick of a lost grant runs or is abandoned, checks that the run is one that the promises allow, and returns the tick and its outcome.
//   - The replica that claimed runs the tick under the grant. It cannot if its links were cut until the lease had ended.
//   - It heard of the grant only after the lease, and said so. The tick was claimed again, and has a greater token.
//   - It stood still for so long that its registration ran out, and said so. Others have recorded the tick as abandoned, and it does not run.
//
// Without a cut only a machine that stands still for seconds causes the second or third.
func (s *trapped) judge(t *testing.T, what string, c *catch, cut bool) (tick int64, outcome string) {
	t.Helper()
	var withdrawn harness.LogEntry
	var run harness.Line
	var record harness.PastRun
	harness.Eventually(t, harness.StartTimeout, "run of the tick, or an end without one: "+what, func() bool {
		for _, l := range harness.Starts(s.Lines(t, "j")) {
			if l.RunID == c.id || withdrawn != nil && time.Unix(l.Tick, 0).UTC().Format(time.RFC3339) == withdrawn["tick"] {
				run = l
				return true
			}
		}
		if i := slices.IndexFunc(s.ClaimedAnew(), func(e harness.LogEntry) bool { return e["run_id"] == c.id }); i >= 0 {
			withdrawn = s.ClaimedAnew()[i]
			return false
		}
		history := s.History(t, "j")
		i := slices.IndexFunc(history, func(r harness.PastRun) bool { return r.RunID == c.id && r.Outcome == "abandoned" })
		if i >= 0 {
			record = history[i]
		}
		return i >= 0
	})
	switch {
	case run.RunID == c.id:
		again := s.need > 1 && run.Token > c.token // a quorum may grant it once more, by another ballot
		if cut || withdrawn != nil || run.Token != c.token && !again || run.Replica != c.replica {
			t.Errorf("%s: %+v, withdrawn %v; it ran as %v", what, c, withdrawn, run)
		}
	case run.RunID != "":
		if ended := time.UnixMicro(c.token).Add(trappedLease - time.Second); run.Token <= c.token || run.At().Before(ended) {
			t.Errorf("%s: %+v was withdrawn; it ran before the lease ended, or without a greater token: %v", what, c, run)
		}
	default:
		i := slices.IndexFunc(s.replicas, func(r *harness.Replica) bool { return r.Name == c.replica })
		s.replicas[i].WaitLog(t, harness.Soon, "end of the registration, since the tick was abandoned", func(e harness.LogEntry) bool { return strings.HasPrefix(e.Message(), "registration expired") })
		t.Logf("%s: the registration of %s ran out, and tick %d was abandoned", what, c.replica, record.Tick.Unix())
		return record.Tick.Unix(), "abandoned"
	}
	t.Logf("%s: the grant of %s was lost %d times, and tick %d ran on %s after %v", what, c.replica, len(c.links), run.Tick, run.Replica, run.At().Sub(time.Unix(run.Tick, 0)))
	return run.Tick, "ok"
}

// A claim is a request for a tick of the job: its lease id, which is the id of the run, and the arguments of the script.
type claim struct {
	id   string
	args []string
}

var tombstoneKey = regexp.MustCompile(`\{j\}:job:dead:([^\r]+)\r\n`)

// parseClaim returns the claim in a part of a connection. There is none if the part is about several lease ids, or about none.
func parseClaim(part []byte) (c claim, ok bool) {
	ids := tombstoneKey.FindAllSubmatch(part, -1)
	if len(ids) != 1 {
		return c, false
	}
	words := bulkStrings(part)
	at := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(strings.ToLower(w), "eval") })
	if at < 0 || len(words) < at+3 {
		return c, false
	}
	keys, err := strconv.Atoi(words[at+2])
	if err != nil || len(words) < at+3+keys {
		return c, false
	}
	return claim{string(ids[0][1]), words[at+3+keys:]}, true
}

// bulkStrings returns the strings of requests. A header before a string has no dollar sign.
func bulkStrings(part []byte) (words []string) {
	for {
		_, rest, _ := bytes.Cut(part, []byte("$"))
		length, rest, found := bytes.Cut(rest, []byte("\r\n"))
		n, err := strconv.Atoi(string(length))
		if !found || err != nil || n < 0 || n > len(rest) {
			return words
		}
		words, part = append(words, string(rest[:n])), rest[n:]
	}
}

var (
	// granted, now, floor, longest, low, pause, orphans, slot, token
	isGranted  = regexp.MustCompile(`\*[0-9]+\r\n\$7\r\ngranted\r\n(?::[0-9]+\r\n){4}\$[0-9]+\r\n[^\r]*\r\n:[0-9]+\r\n:[0-9]+\r\n:([0-9]+)\r\n`)
	isAccepted = regexp.MustCompile(`\*[0-9]+\r\n\$8\r\naccepted\r\n`)
)

// grantOfServer returns the token that a single server or a Cluster grants.
func grantOfServer(_ claim, reply []byte) (token int64, ok bool) {
	m := isGranted.FindSubmatch(reply)
	if m == nil {
		return 0, false
	}
	token, err := strconv.ParseInt(string(m[1]), 10, 64)
	return token, err == nil
}

// grantOfNode returns the token of the row that one node of a quorum accepts with the register. A register without a row, or that ends one, is no grant.
func grantOfNode(c claim, reply []byte) (token int64, ok bool) {
	const slot, rowToken, ends = 5, 7, 8 // see quorum_accept.lua
	if len(c.args) <= ends || c.args[slot] == "-1" || c.args[ends] == "1" || !isAccepted.Match(reply) {
		return 0, false
	}
	token, err := strconv.ParseInt(c.args[rowToken], 10, 64)
	return token, err == nil
}

// A trap drops replies that grant claims, on each link the first for a claim, until one claim has lost as many as make a grant. A claim of a quorum that loses
// may have been accepted by a minority.
type trap struct {
	grants func(c claim, reply []byte) (token int64, ok bool)
	need   int // the number of replies that make a grant

	mu    sync.Mutex
	armed bool
	how   harness.Verdict
	cuts  bool // the links of the replica, at the moment of the last reply
	links map[string][]*harness.Proxy
	tries map[string]*catch // by lease id
	won   *catch            // nil until a grant was lost
}

// A catch is a claim that lost replies.
type catch struct {
	id, replica string
	token       int64
	at          time.Time // of the last reply
	links       map[*harness.Proxy]bool
}

func (p *trap) addLinks(replica string, links []*harness.Proxy) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.links == nil {
		p.links = map[string][]*harness.Proxy{}
	}
	p.links[replica] = links
}

func (p *trap) linksOf(replica string) []*harness.Proxy {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.links[replica]
}

func (p *trap) arm(how harness.Verdict, cuts bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed, p.how, p.cuts, p.tries, p.won = true, how, cuts, map[string]*catch{}, nil
}

// caught returns the claim whose grant was lost, nil if there is none yet.
func (p *trap) caught() *catch {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.won
}

// spring decides whether a reply that grants a claim is dropped.
func (p *trap) spring(replica, id string, token int64, link *harness.Proxy) harness.Verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.armed {
		return harness.Passes
	}
	c := p.tries[id]
	if c == nil {
		c = &catch{id: id, replica: replica, links: map[*harness.Proxy]bool{}}
		p.tries[id] = c
	}
	if c.links[link] {
		return harness.Passes
	}
	c.links[link], c.token, c.at = true, token, time.Now()
	if len(c.links) == p.need {
		p.armed, p.won = false, c
		for _, l := range p.links[replica] {
			if p.cuts { // now, and not when the test next looks: the replica may have asked again by then
				l.Cut()
			}
		}
	}
	return p.how
}

// A trappedConn watches one connection of a link for replies to drop.
type trappedConn struct {
	*trap
	replica string
	link    *harness.Proxy

	mu      sync.Mutex
	claim   claim // the last request
	isClaim bool
	silent  bool
}

func (c *trappedConn) Request(part []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.claim, c.isClaim = parseClaim(part)
}

func (c *trappedConn) Reply(part []byte) harness.Verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.silent {
		return harness.IsLost
	}
	if !c.isClaim {
		return harness.Passes
	}
	token, ok := c.grants(c.claim, part)
	if !ok {
		return harness.Passes
	}
	v := c.spring(c.replica, c.claim.id, token, c.link)
	c.silent = v == harness.IsLost
	return v
}
