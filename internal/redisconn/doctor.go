package redisconn

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/config"
)

// A Diagnosis is the judgement of a Redis: the facts about its servers, and the promises of docs/guarantees.md that hold on it.
type Diagnosis struct {
	Redis     string  `json:"redis"` // URL without a password; with a quorum, the URL of the history
	Namespace string  `json:"namespace"`
	Kind      Kind    `json:"kind"`
	Verdict   Verdict `json:"verdict"`
	TookMS    int64   `json:"took_ms"`
	// Servers are the examined masters. ServerCount is the number of all masters; Servers has at most [MostServers] of them.
	Servers     []Examined     `json:"servers"`
	ServerCount int            `json:"server_count"`
	Promises    []PromiseState `json:"promises"`
	Findings    []Finding      `json:"findings"` // the most serious first
}

// A Verdict is the result of a Diagnosis.
type Verdict string

// The verdicts.
const (
	VerdictHolds       Verdict = "holds"       // all promises hold, within the limits that the findings name
	VerdictFault       Verdict = "fault"       // a promise does not hold, or a person must act
	VerdictUnreachable Verdict = "unreachable" // too few servers answer to grant anything
)

// An Examined is a server with the results of its checks.
type Examined struct {
	Server
	Checks []Check `json:"checks"`
}

// A Check is the result of one check of a server.
type Check struct {
	Name  string `json:"name"`
	Level Level  `json:"level"` // highest level of the findings of this check
	Fact  string `json:"fact"`
}

// A Finding is a danger, with its cost and what to change.
type Finding struct {
	Code     string   `json:"code"`
	Level    Level    `json:"level"`
	Message  string   `json:"message"`
	Servers  []string `json:"servers"`          // addresses of the servers that it is about; empty if it is about all
	Promises []string `json:"promises"`         // the promises that it restricts, such as "P1"
	Remedy   string   `json:"remedy,omitempty"` // a command that an administrator of Redis can run
}

// A Level is the weight of a finding. Only LevelUnknown and LevelFault make a [Diagnosis] fail.
type Level string

// The levels, in ascending order.
const (
	LevelSkipped Level = "skipped" // a check that was not needed, or could not be tried
	LevelOK      Level = "ok"
	LevelLimit   Level = "limit"   // each Redis of this kind has it
	LevelWarning Level = "warning" // a promise is weaker than it could be
	LevelUnknown Level = "unknown" // Redis hides a setting, so a person must check it
	LevelFault   Level = "fault"   // a promise does not hold, or a person must act

	levelSaid Level = "said" // a limit that a warning states more exactly
)

func (l Level) rank() int {
	return slices.Index([]Level{LevelSkipped, LevelOK, LevelLimit, LevelWarning, LevelUnknown, LevelFault}, l)
}

// A PromiseState reports whether a promise holds on a Redis.
type PromiseState struct {
	ID    string   `json:"id"` // "P1" to "P9"
	Name  string   `json:"name"`
	Holds Holds    `json:"holds"`
	Codes []string `json:"codes"` // codes of the findings that restrict the promise
}

// Holds is the answer to the question whether a promise holds.
type Holds string

// The answers.
const (
	HoldsYes     Holds = "yes"
	HoldsNo      Holds = "no"
	HoldsUnknown Holds = "unknown"
)

// promiseNames are the promises of docs/guarantees.md. P7 and P8 do not depend on Redis.
var promiseNames = []string{"Once", "Never early", "Exclusive", "Fenced", "Not lost", "Accounted", "No orphans", "Validated", "Bounded"}

// warningLevels has the level of each warning of [Conn.Examine], the check that it belongs to, and the promises that it restricts. An unknown warning
// is a fault.
var warningLevels = map[string]struct {
	check    string
	level    Level
	promises string
}{
	evictionCode:      {checkEviction, LevelFault, "P3 P6"},
	refusedCode:       {checkRights, LevelFault, "P5 P6"},
	"acked_replicas":  {checkReplication, LevelFault, "P5"},
	"no_persistence":  {checkPersistence, LevelFault, "P1 P6"},
	"snapshots_only":  {checkPersistence, LevelFault, "P1 P6"},
	"settings_hidden": {checkPersistence, LevelUnknown, "P1 P3 P6"},
	"embedded":        {checkVersion, LevelFault, "P1 P3 P6"},
}

const (
	// DiagnosisBound is the time limit of the checks of [Conn.Diagnose]. cleanTime is the time after it in which probes may still delete their keys. Both
	// together are less than the two seconds that docs/engines.md promises.
	DiagnosisBound, cleanTime = 1800 * time.Millisecond, 100 * time.Millisecond
	// settingsTime is the part of it for the connection and the first replies of all servers; probeTime bounds each probe after that.
	settingsTime, probeTime = 1400 * time.Millisecond, time.Second
	// mostAtOnce bounds the servers that are examined at the same time.
	mostAtOnce = 16
)

// Diagnose judges this Redis for a namespace within two seconds. It writes only short-lived keys of the namespace, and deletes them.
func (c *Conn) Diagnose(ctx context.Context, namespace string) Diagnosis {
	ctx, cancel := context.WithTimeout(ctx, DiagnosisBound)
	defer cancel()
	began := time.Now()
	d := Diagnosis{Redis: c.Where(), Namespace: namespace, Kind: c.configuredKind(), Servers: []Examined{}, Findings: []Finding{}}
	subjects, err := c.subjects(ctx, namespace)
	if err != nil {
		d.add(errorFinding(c.explainError(err), nil))
	}
	results := examineSubjects(ctx, subjects)
	for _, r := range results {
		d.Servers = append(d.Servers, Examined{r.server, r.checks})
		d.add(r.findings...)
		if r.kind != "" && !c.HasQuorum() {
			d.Kind = r.kind
		}
	}
	for _, danger := range c.Dangers(time.Now()) {
		d.add(Finding{Code: "redis_access", Level: LevelFault, Message: danger, Promises: []string{"P5"}})
	}
	d.ServerCount = len(d.Servers)
	d.Verdict = c.judgeReach(results)
	if d.Verdict != VerdictUnreachable {
		d.judgeDeployment(c, results)
		d.judgePromises()
	}
	d.complete()
	d.TookMS = time.Since(began).Milliseconds()
	return d
}

// add adds findings. A finding with the same text about another server becomes one finding about both.
func (d *Diagnosis) add(found ...Finding) {
	for _, f := range found {
		i := slices.IndexFunc(d.Findings, func(known Finding) bool { return known.Code == f.Code && known.Message == f.Message })
		if i < 0 {
			d.Findings = append(d.Findings, f)
			continue
		}
		d.Findings[i].Servers = append(d.Findings[i].Servers, f.Servers...)
	}
}

// judgeReach returns VerdictUnreachable if no server can grant a lock, and VerdictHolds otherwise.
func (c *Conn) judgeReach(results []examination) Verdict {
	needed, answering := 1, 0
	if c.HasQuorum() {
		needed = len(c.quorum)/2 + 1
	}
	for _, r := range results {
		if !r.server.isSilent() && r.server.Keeps != KeepsHistory {
			answering++
		}
	}
	if answering < needed {
		return VerdictUnreachable
	}
	return VerdictHolds
}

// judgeDeployment adds the findings that depend on all servers.
func (d *Diagnosis) judgeDeployment(c *Conn, results []examination) {
	servers := make([]Server, len(d.Servers))
	for i, s := range d.Servers {
		servers[i] = s.Server
	}
	for _, l := range limitsOf(facts{kind: d.Kind, acked: c.acked, servers: servers}) {
		if l.when.level != levelSaid {
			d.add(Finding{Code: cmp.Or(l.when.code, "limit"), Level: cmp.Or(l.when.level, LevelLimit), Message: l.text, Promises: strings.Fields(l.promises)})
		}
	}
	d.judgeClocks(results)
	at := map[string]string{}
	for _, s := range servers {
		if other, known := at[s.runID]; known && s.runID != "" && s.Keeps == KeepsLocks {
			d.add(Finding{Code: "same_server", Level: LevelFault, Servers: []string{other, s.Address}, Promises: []string{"P1", "P3"},
				Message: "two masters of the quorum are one server: list independent servers"})
		}
		if s.Keeps == KeepsLocks {
			at[s.runID] = s.Address
		}
	}
}

// judgeClocks compares the clock of Redis with the clock of this machine. On a quorum, the median of the clocks counts.
func (d *Diagnosis) judgeClocks(results []examination) {
	var known []examination
	for _, r := range results {
		if r.clock != nil && r.server.Keeps != KeepsHistory {
			known = append(known, r)
		}
	}
	if d.Kind == KindQuorum && len(known) > 0 {
		slices.SortFunc(known, func(a, b examination) int { return cmp.Compare(a.clock.MS, b.clock.MS) })
		known = known[len(known)/2:][:1]
	}
	const most = 60_000
	for _, r := range known {
		o := *r.clock
		level := LevelWarning
		if o.Least() > most {
			level = LevelFault
		}
		if o.Excessive() {
			word := "later"
			if o.MS < 0 {
				word = "earlier"
			}
			length := time.Duration(max(o.MS, -o.MS)) * time.Millisecond
			d.add(Finding{Code: "clock_off", Level: level, Servers: []string{r.server.Address},
				Message: fmt.Sprintf("the clock of Redis and the clock of this machine differ by %v: ticks run by the clock of Redis, so much %s by this one; synchronize both (NTP)", length, word)})
		}
	}
}

// judgePromises derives the state of each promise from the findings.
func (d *Diagnosis) judgePromises() {
	for i, name := range promiseNames {
		p := PromiseState{ID: fmt.Sprintf("P%d", i+1), Name: name, Holds: HoldsYes, Codes: []string{}}
		worst := LevelOK
		for _, f := range d.Findings {
			if !slices.Contains(f.Promises, p.ID) {
				continue
			}
			if !slices.Contains(p.Codes, f.Code) {
				p.Codes = append(p.Codes, f.Code)
			}
			if f.Level.rank() > worst.rank() {
				worst = f.Level
			}
		}
		switch worst {
		case LevelUnknown:
			p.Holds = HoldsUnknown
		case LevelFault:
			p.Holds = HoldsNo
		}
		d.Promises = append(d.Promises, p)
	}
	if slices.ContainsFunc(d.Findings, func(f Finding) bool { return f.Level.rank() >= LevelUnknown.rank() }) {
		d.Verdict = VerdictFault
	}
}

// complete sorts the findings, bounds the servers, and replaces nil lists, which JSON would show as null.
func (d *Diagnosis) complete() {
	slices.SortStableFunc(d.Findings, func(a, b Finding) int { return b.Level.rank() - a.Level.rank() })
	d.Servers = d.Servers[:min(len(d.Servers), MostServers)]
	for i := range d.Findings {
		f := &d.Findings[i]
		f.Servers, f.Promises = append([]string{}, f.Servers...), append([]string{}, f.Promises...)
	}
	if d.Promises == nil {
		d.Promises = []PromiseState{}
	}
}

// errorFinding returns the finding about a server, or all servers, that can't be used because of err.
func errorFinding(err error, servers []string) Finding {
	f := Finding{Code: "unreachable", Level: LevelFault, Servers: servers, Promises: []string{"P5"}}
	switch t := TroubleOf(err); {
	case errors.Is(err, ErrUnfit):
		f.Code, f.Message, f.Promises = "unfit", err.Error(), []string{"P1", "P3", "P5"}
		return f
	case errors.Is(err, context.DeadlineExceeded):
		f.Message = fmt.Sprintf("Redis %v", t.Because(fmt.Errorf("no answer within %v (%w)", settingsTime, err)))
	default:
		f.Message = fmt.Sprintf("Redis %v", t.Because(err))
	}
	return f
}

// subjects returns the servers to examine: the masters of the connection, and the masters of the quorum. Its error means that a Cluster is incomplete
// or can't be reached.
func (c *Conn) subjects(ctx context.Context, namespace string) (all []*subject, err error) {
	base := subject{conn: c, rights: c.Rights(namespace), prefix: "cronclave:" + namespace + ":", keeps: c.keptData(), connect: c.connect}
	base.mayFail = c.url.Topology != config.Single
	end, _ := ctx.Deadline() // a diagnosis has one
	base.cleanUntil = end.Add(cleanTime)
	switch rdb := c.UniversalClient.(type) {
	case *redis.ClusterClient:
		if all, err = base.clusterNodes(ctx, rdb); err == nil {
			err = clusterState(ctx, rdb)
		}
	case *redis.Client:
		all = append(all, base.with(c, rdb, c.Where()))
	}
	for _, m := range c.quorum {
		s := base.with(m.alone, m.Client, redactedURL(m.url))
		s.keeps, s.connect, s.rights.User = KeepsLocks, nil, cmp.Or(m.url.User, "default")
		all = append(all, s)
	}
	return all, err
}

func (s subject) with(conn *Conn, rdb *redis.Client, at string) *subject {
	s.conn, s.rdb, s.at, s.tag = conn, rdb, at, newTag()
	return &s
}

// newTag returns the hash tag of a probe's keys. It is random, so that several doctors do not meet.
func newTag() string { return "doctor-" + strings.ToLower(rand.Text()) }

// clusterNodes returns the masters of a Cluster. The keys of a probe must be in a hash slot of its master, so that tags are tried until each master has
// one.
func (s subject) clusterNodes(ctx context.Context, cluster *redis.ClusterClient) (all []*subject, err error) {
	ctx, cancel := context.WithTimeout(ctx, settingsTime)
	defer cancel()
	var mu sync.Mutex
	nodes := map[string]*redis.Client{}
	err = cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		nodes[node.Options().Addr] = node
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("ask the Cluster for its masters: %w", err)
	}
	const mostTries = 20_000 // a master with one slot of 16384 is found with a probability of 70 %
	for range mostTries {
		tag := newTag()
		node, err := cluster.MasterForKey(ctx, s.prefix+"{"+tag+"}")
		if err != nil || len(nodes) == 0 {
			break
		}
		if addr := node.Options().Addr; nodes[addr] != nil {
			one := s.with(s.conn, node, printableText(addr, mostText))
			one.tag = tag
			all = append(all, one)
			delete(nodes, addr)
		}
	}
	for addr, node := range nodes { // has no slots, so it keeps no lock
		one := s.with(s.conn, node, printableText(addr, mostText))
		one.tag = ""
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b *subject) int { return cmp.Compare(a.at, b.at) })
	return all, nil
}

func examineSubjects(ctx context.Context, subjects []*subject) []examination {
	results := make([]examination, len(subjects))
	free := make(chan struct{}, mostAtOnce)
	var all sync.WaitGroup
	for i, s := range subjects {
		free <- struct{}{}
		all.Go(func() {
			results[i] = s.examine(ctx)
			<-free
		})
	}
	all.Wait()
	return results
}

// isLocal reports whether connections to an address stay on this machine.
func isLocal(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return true // a socket
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
