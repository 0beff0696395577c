package redisconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/config"
)

// A Server has the known facts about one Redis server. A fact that is hidden or unknown is nil or "".
type Server struct {
	// Address is from the configuration or the Cluster, without a password. For a master behind Sentinels that is up, it is the address of the newest
	// connection.
	Address string      `json:"address"`
	Keeps   Keeps       `json:"keeps"`
	State   ServerState `json:"state"`
	Fault   string      `json:"fault,omitempty"` // the reason why the server is not up

	Version     string      `json:"version,omitempty"` // such as "7.2.4", or "valkey 9.1.2"
	Persistence Persistence `json:"persistence,omitempty"`
	UptimeS     *int64      `json:"uptime_s,omitempty"`
	// RoundTripMS is the duration of the check, in milliseconds. It includes the time to connect if there was no idle connection.
	RoundTripMS *float64 `json:"round_trip_ms,omitempty"`
	MemoryUsed  *int64   `json:"memory_used,omitempty"`  // bytes
	MemoryLimit *int64   `json:"memory_limit,omitempty"` // bytes; 0 if unlimited
	Clients     *int64   `json:"clients,omitempty"`      // connected clients
	Replicas    *int64   `json:"replicas,omitempty"`     // Redis replicas connected to this master

	fsync  string   // setting appendfsync; "" if hidden
	policy string   // setting maxmemory-policy; "" if hidden
	runID  string   // changes at each start; "" if hidden
	role   string   // "master" or "slave"; "" if hidden
	copies []string // addresses of the Redis replicas, as the master announces them
}

// Keeps is the kind of cronclave's data that a server stores.
type Keeps string

// The kinds of data.
const (
	KeepsAll     Keeps = "all"
	KeepsLocks   Keeps = "locks"   // a master of a quorum
	KeepsHistory Keeps = "history" // the server of the history, if a quorum keeps the locks
)

// A ServerState is the state of a server for cronclave.
type ServerState string

// The states of a server.
const (
	ServerUp       ServerState = "up"
	ServerAway     ServerState = "away"      // the server does not answer as a master
	ServerReadOnly ServerState = "read-only" // the server answers but refuses writes
	ServerUnfit    ServerState = "unfit"     // the server answers but can't coordinate: see ErrUnfit
	// serverNotExamined means that a [Diagnosis] ended before the server was examined.
	serverNotExamined ServerState = "not examined"
)

// ErrUnfit means that cronclave can't use this Redis for locks: its version, its role or its settings do not allow it.
var ErrUnfit = errors.New("this Redis can't coordinate")

// Persistence is the way in which a server keeps its data on disk.
type Persistence string

// The kinds of persistence.
const (
	AppendOnly    Persistence = "appendonly" // an append-only file
	Snapshots     Persistence = "snapshots"
	NoPersistence Persistence = "none"
	NoAppendOnly  Persistence = "no appendonly" // no append-only file; unknown whether the server keeps snapshots
)

// mostText bounds the characters of a text that includes a server's reply, because any kind of server may have sent the reply.
const mostText = 200

// sortRank is the sort key of a server. Servers that are not up come first, because the list of a large Cluster is truncated.
func (s Server) sortRank() int {
	if s.State != ServerUp && s.Keeps == KeepsAll {
		return 0
	}
	return 1
}

func (s *Server) setFault(err error) {
	s.State, s.Fault = ServerAway, printableText(err.Error(), mostText)
	if errors.Is(err, ErrUnfit) {
		s.State = ServerUnfit
	}
}

func (s *Server) setFacts(info map[string]string) {
	const mostVersion = 32
	s.Version = printableText(info["redis_version"], mostVersion)
	for _, engine := range []string{"valkey", "dragonfly", "kvrocks", "garnet"} { // also report the redis_version that they are compatible with
		if own := info[engine+"_version"]; own != "" {
			s.Version = printableText(engine+" "+own, mostVersion)
		}
	}
	s.UptimeS, s.Clients, s.Replicas = parseCount(info["uptime_in_seconds"]), parseCount(info["connected_clients"]), parseCount(info["connected_slaves"])
	s.MemoryUsed, s.MemoryLimit = parseCount(info["used_memory"]), parseCount(info["maxmemory"])
	s.policy, s.runID, s.role, s.copies = printableText(info["maxmemory_policy"], mostText), info["run_id"], info["role"], parseCopies(info)
	if info["aof_enabled"] == "1" {
		s.Persistence = AppendOnly
	} else if info["aof_enabled"] == "0" {
		s.Persistence = NoAppendOnly
	}
}

// parseCopies returns the addresses of the Redis replicas in the reply to INFO replication, from lines such as
// slave0:ip=10.0.0.6,port=6379,state=online,offset=1,lag=0.
func parseCopies(info map[string]string) (addrs []string) {
	for n := range mostCopies {
		fields := map[string]string{}
		for word := range strings.SplitSeq(info["slave"+strconv.Itoa(n)], ",") {
			name, value, _ := strings.Cut(word, "=")
			fields[name] = value
		}
		if fields["ip"] != "" && fields["port"] != "" {
			addrs = append(addrs, printableText(net.JoinHostPort(fields["ip"], fields["port"]), mostText))
		}
	}
	return addrs
}

// mostCopies bounds the Redis replicas of one master that are considered.
const mostCopies = 16

func parseCount(text string) *int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return nil
	}
	return &n
}

// printableText returns a server's text as one line of at most most characters.
func printableText(text string, most int) string {
	clean := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(text, "?"))
	if letters := []rune(clean); len(letters) > most {
		return string(letters[:most-1]) + "…"
	}
	return clean
}

// oneServer is a client of a single Redis, or of one node of a Cluster.
type oneServer interface {
	Pipelined(ctx context.Context, fn func(redis.Pipeliner) error) ([]redis.Cmder, error)
}

// askedSections are the sections of INFO that a check requests. Each needs its own INFO, because several sections in one INFO need Redis 7.
var askedSections = []string{"server", "replication", "memory", "clients", "persistence"}

// The settings that INFO does not include. One CONFIG GET with the pattern askedSettings requests them, so that a user without CONFIG gets only one
// refusal. Other settings that match the pattern begin with "append", and none is secret.
const (
	saveSetting   = "save"
	stopSetting   = "stop-writes-on-bgsave-error"
	fsyncSetting  = "appendfsync"
	askedSettings = "[as][atp][pvo]*"
)

// answers are the replies of a server to a check. A check takes one round trip.
type answers struct {
	sections map[string]*redis.StringCmd
	settings *redis.MapStringStringCmd
	took     float64 // milliseconds
}

// refusals has the servers that have refused CONFIG, by address. CONFIG is not sent to them again, because a check at each scrape of the metrics
// would fill their ACL LOG. The zero value is empty.
type refusals struct{ known sync.Map }

// A refusal is the refusal of CONFIG by one server. The fields dialed and runID identify the server, because after a failover another server may
// answer at the same address.
type refusal struct {
	err    error
	dialed string // address of the newest connection; "" if unknown
	runID  string // run id of the server; "" if hidden
}

// refusalOf returns the refusal of the server at an address. dialed is the address of the newest connection. If the refusal came over a connection to
// another address, or if there is no refusal, refusalOf returns nil.
func (r *refusals) refusalOf(at, dialed string) *refusal {
	found, _ := r.known.Load(at)
	if known, ok := found.(refusal); ok && known.dialed == dialed {
		return &known
	}
	return nil
}

// isRefusal reports whether the user may not run the command, or the server does not have the command.
func isRefusal(err error) bool {
	return redis.IsPermissionError(err) || redis.HasErrorPrefix(err, "unknown command")
}

func (c *Conn) askServer(ctx context.Context, rdb oneServer, at string) answers {
	refused := c.refused.refusalOf(at, c.dialedTo())
	a := answers{sections: map[string]*redis.StringCmd{}}
	began := time.Now()
	_, _ = rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for _, name := range askedSections {
			a.sections[name] = p.Info(ctx, name)
		}
		if refused == nil {
			a.settings = p.ConfigGet(ctx, askedSettings)
		}
		return nil
	})
	a.took = float64(time.Since(began).Microseconds()) / 1000
	about, _ := a.infoSection("server") // after an error, the run id is unknown
	if refused == nil {
		if err := a.settings.Err(); isRefusal(err) {
			c.refused.known.Store(at, refusal{err, c.dialedTo(), about["run_id"]})
		}
		return a
	}
	a.settings = redis.NewMapStringStringResult(nil, refused.err)
	if id := about["run_id"]; id != "" && refused.runID != "" && id != refused.runID { // another server answers, or the server has restarted
		c.refused.known.Delete(at)
	}
	return a
}

func (c *Conn) dialedTo() string {
	if to := c.dialed.Load(); to != nil {
		return *to
	}
	return ""
}

func (a answers) infoSection(name string) (map[string]string, error) {
	text, err := a.sections[name].Result()
	if err != nil {
		return nil, fmt.Errorf("ask Redis for its %s: %w", name, err)
	}
	return parseInfo(text), nil
}

// infoFields returns the fields of all sections of INFO, without sections that the server refuses. Its error is always a network error.
func (a answers) infoFields() (map[string]string, error) {
	all := map[string]string{}
	for _, name := range askedSections {
		fields, err := a.infoSection(name)
		if err != nil && !isReply(err) {
			return nil, err
		}
		maps.Copy(all, fields)
	}
	return all, nil
}

// readSettings returns the reply to CONFIG GET; nothing if the server refuses CONFIG.
func (a answers) readSettings() (map[string]string, error) {
	found, err := a.settings.Result()
	if err != nil && !isReply(err) {
		return nil, fmt.Errorf("ask Redis for its settings: %w", err)
	}
	return found, nil
}

// isReply reports whether an error is an error reply of Redis. Such an error shows that the connection works.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

func parseInfo(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// A Deployment describes the Redis of a cluster: its kind, its servers, and its limits.
type Deployment struct {
	Kind Kind `json:"kind"`
	// Servers are the masters, sorted by address. With a quorum, the server of the history comes first, and then the masters of the locks in the order of the
	// configuration.
	Servers []Server `json:"servers"`
	// ServerCount is the number of masters. Servers has at most [MostServers] of them.
	ServerCount int `json:"server_count"`
	// Limits has a sentence for each guarantee that a Redis of this kind with these settings can't give.
	Limits []string `json:"limits"`
}

// MostServers is the maximum number of masters of a Cluster in [Deployment].Servers.
const MostServers = 100

// A Kind is a way to deploy Redis. The limits depend on it.
type Kind string

// The kinds.
const (
	KindSingle   Kind = "single"   // one server
	KindSentinel Kind = "sentinel" // a master behind Sentinels
	KindCluster  Kind = "cluster"
	KindQuorum   Kind = "quorum"   // independent masters for the locks, and a Redis for the history
	KindEmbedded Kind = "embedded" // a server inside a process of cronclave
)

// configuredKind returns the kind that the configuration implies. It can't detect the embedded Redis of another process, because only the reply to
// INFO shows that.
func (c *Conn) configuredKind() Kind {
	_, ours := c.InProcess()
	switch {
	case c.HasQuorum():
		return KindQuorum
	case ours:
		return KindEmbedded
	case c.url.Topology == config.Cluster:
		return KindCluster
	case c.url.Topology == config.Sentinel:
		return KindSentinel
	}
	return KindSingle
}

// keptData returns the data that cronclave keeps on the servers of the connection itself.
func (c *Conn) keptData() Keeps {
	if c.HasQuorum() {
		return KeepsHistory
	}
	return KeepsAll
}

// completeDeployment sets the fields that depend on all servers, before it truncates the list of servers.
func (c *Conn) completeDeployment(d Deployment) Deployment {
	if d.Kind == "" || c.HasQuorum() {
		d.Kind = c.configuredKind()
	}
	if d.Servers == nil {
		d.Servers = []Server{}
	}
	d.ServerCount = len(d.Servers)
	d.Limits = []string{}
	for _, l := range limitsOf(facts{kind: d.Kind, acked: c.acked, servers: d.Servers}) {
		d.Limits = append(d.Limits, l.text)
	}
	slices.SortStableFunc(d.Servers, func(a, b Server) int { return cmp.Compare(a.sortRank(), b.sortRank()) })
	d.Servers = d.Servers[:min(len(d.Servers), MostServers)]
	return d
}

// facts are the properties of a deployment that the limits depend on.
type facts struct {
	kind    Kind
	acked   int // [redis].acked_replicas
	servers []Server
}

// A condition restricts a limit to some deployments, in code (holds) and in the words of docs/redis.md. If holds is nil, the limit applies to all.
type condition struct {
	holds func(facts) bool
	words string
	code  string // code of the finding in a [Diagnosis]
	level Level  // and its level
}

// A limit is a guarantee that some kinds of Redis cannot give.
type limit struct {
	kinds    []Kind
	when     condition
	promises string // the promises of docs/guarantees.md that it restricts, such as "P1 P3"; "" if none
	text     string
}

var (
	onMasters = []Kind{KindSingle, KindSentinel, KindCluster}

	// Even a Redis with a single address may have a failover, because the address may belong to a proxy or to a provider's primary. If acked_replicas
	// is set, Redis has replicas.
	copies  = condition{facts.hasCopies, "with replicas of Redis", "", ""}
	unacked = condition{func(f facts) bool { return f.hasCopies() && f.acked == 0 }, "with replicas of Redis, without `acked_replicas`", "unacknowledged", LevelFault}
	acked   = condition{func(f facts) bool { return f.acked > 0 }, "with `acked_replicas`", "", ""}
	noAOF   = condition{func(f facts) bool { return f.hasPersistence(NoPersistence, NoAppendOnly, Snapshots) }, "without `appendonly`", "", levelSaid}
	aof     = condition{func(f facts) bool { return f.syncs("", "everysec") }, "with `appendonly` and `appendfsync everysec`", "appendfsync", LevelWarning}
	unsync  = condition{func(f facts) bool { return f.syncs("no") }, "with `appendonly` and `appendfsync no`", "appendfsync", LevelWarning}
	hidden  = condition{func(f facts) bool {
		return f.hasPersistence("") && !f.hasPersistence(NoPersistence, NoAppendOnly, Snapshots)
	}, "if Redis hides its INFO", "", levelSaid}
	before7 = condition{func(f facts) bool { return f.isOlderThan(7) }, "before Redis 7", "", ""}
)

// limits lists the limits of all kinds of Redis, the most serious first. docs/redis.md has the same table; docs/guarantees.md has the reasons.
var limits = []limit{
	{onMasters, unacked, "P1 P3", "A failover may lose the last grants, and a master that is cut off grants beside the new one: a tick may run twice. Set [redis].acked_replicas."},
	{onMasters, acked, "P1 P3", "If no replica of Redis that acknowledged a grant takes part in a failover, the grant is lost, and a tick may run twice."},
	{onMasters, copies, "P5", "A failover may lose the end of a run (with recover it runs again) or a release (its slot stays held until the lease ends); also with [redis].acked_replicas."},
	{onMasters, noAOF, "P1 P6", "A restart of Redis may forget the last writes, or all of them: only replicas that are up remember what ran. Set appendonly yes."},
	{onMasters, aof, "P1 P6", "If the machine of Redis crashes, the grants of the last second may be lost, and only replicas that are up remember them. Set appendfsync to always."},
	{onMasters, unsync, "P1 P6", "If the machine of Redis crashes, the grants of the last half minute may be lost, and only replicas that are up remember them. Set appendfsync to always."},
	{onMasters, hidden, "P1 P6", "If Redis has no append-only file, its restart may forget writes: only replicas that are up remember what ran. Check appendonly."},
	{[]Kind{KindSingle}, condition{}, "P5", "cronclave knows of no failover: without the server, ticks wait up to their start_deadline and are then missed. redis-sentinel:// and redis-cluster:// have a failover."},
	{onMasters, condition{}, "P3", "If a master is silent for a quarter of a lease, about 8 s by default, runs may be stopped."},
	{onMasters, acked, "P5", "While fewer replicas of Redis than [redis].acked_replicas acknowledge, nothing is granted and no lease is renewed."},
	{onMasters, copies, "P6", "A failover may lose the newest records of the history, also with [redis].acked_replicas."},
	{[]Kind{KindCluster}, condition{}, "P5", "While a hash slot moves, its jobs get no grants and no renewals; if the move takes longer than a quarter of a lease, runs may be stopped."},
	{[]Kind{KindCluster}, before7, "", "There are no sharded channels: each message to a waiter goes to all nodes."},
	{onMasters, condition{}, "P3", "If the clock jumps forward by 1 % of a lease (0.3 s by default), also by a failover to a clock that is ahead, two runs may overlap."},
	{onMasters, condition{}, "P1", "If the clock of Redis is set back by more than a minute, ticks of the repeated time run once more."},

	{[]Kind{KindQuorum}, condition{}, "P5", "Without a majority of its masters that answers, nothing is granted or renewed; runs may be stopped after a quarter of their lease."},
	{[]Kind{KindQuorum}, condition{}, "P1", "If a majority loses its data within the longest lease, that is as FLUSHALL on one server: only replicas that are up remember the locks."},
	{[]Kind{KindQuorum}, condition{}, "P5", "A restarted master is shown as up, and votes after the longest lease, 15 s at least. Before you restart another, wait until it votes (docs/redis.md#maintenance)."},
	{[]Kind{KindQuorum}, condition{}, "P6", "The history, the audit log and trigger requests are on the Redis of [redis].url alone, and are lost with its data."},
	{[]Kind{KindQuorum}, condition{}, "P5", "While the Redis of [redis].url is away, runs go on, but no replica starts, and status, pause and trigger fail."},
	{[]Kind{KindQuorum}, condition{}, "P3", "If the clocks of a majority jump forward by 1 % of a lease (0.3 s by default), two runs may overlap."},
	{[]Kind{KindQuorum}, condition{}, "P1", "If the clocks of a majority are set back by more than a minute, ticks of the repeated time run once more."},
	{[]Kind{KindQuorum}, condition{}, "", "Waiting for a lock or a pool is not fair: the next free slot may go to any waiter."},
	{[]Kind{KindQuorum}, condition{}, "", "cancel and overlap = \"replace\" reach a run at its next renewal, a third of its lease later at most."},
	{[]Kind{KindQuorum}, condition{}, "P4", "cronclave fence needs one server (--redis). In Go, sets of locks, Update and Fence return ErrQuorum."},
	{[]Kind{KindQuorum}, condition{}, "P1 P3", "Different lists of masters, or one master under two names, are not noticed: check that all replicas have the same list."},

	{[]Kind{KindEmbedded}, condition{}, "P1 P3", "It is a trial: replicas on other machines do not reach it, and would run each job as well."},
	{[]Kind{KindEmbedded}, condition{}, "P1 P6", "Its data is in the memory of one process: locks, history and pauses end with it."},
}

func limitsOf(f facts) (found []limit) {
	for _, l := range limits {
		if slices.Contains(l.kinds, f.kind) && (l.when.holds == nil || l.when.holds(f)) {
			found = append(found, l)
		}
	}
	return found
}

// hasCopies reports whether a replica of Redis may become the master.
func (f facts) hasCopies() bool {
	return f.kind != KindSingle || f.acked > 0 || slices.ContainsFunc(f.servers, func(s Server) bool { return s.Replicas != nil && *s.Replicas > 0 })
}

// hasPersistence reports whether any server that answers has one of these kinds of persistence.
func (f facts) hasPersistence(of ...Persistence) bool {
	return slices.ContainsFunc(f.servers, func(s Server) bool { return s.isAnswering() && slices.Contains(of, s.Persistence) })
}

// syncs reports whether a server has an append-only file with one of these settings of appendfsync.
func (f facts) syncs(settings ...string) bool {
	return slices.ContainsFunc(f.servers, func(s Server) bool {
		return s.isAnswering() && s.Persistence == AppendOnly && slices.Contains(settings, s.fsync)
	})
}

func (f facts) isOlderThan(major int) bool {
	return slices.ContainsFunc(f.servers, func(s Server) bool {
		n, known := majorOf(s.Version)
		return known && n < major
	})
}

func majorOf(version string) (major int, known bool) {
	_, err := fmt.Sscanf(version, "%d.", &major)
	return major, err == nil
}
