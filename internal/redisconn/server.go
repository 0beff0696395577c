package redisconn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"
)

// A Server has the known facts about one Redis server. A fact that is hidden or unknown is nil or "".
type Server struct {
	// Address is from the configuration or the Cluster, without a password. For a master behind Sentinels that is up, it is the address of the
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

// mostText is the maximum length, in characters, of a text that includes a server's replies, because any server may have sent them.
const mostText = 200

// sortRank is the sort key of a server. Servers that are not up come first, because the list of a large Cluster is truncated.
func (s Server) sortRank() int {
	if s.State != ServerUp && s.Keeps == KeepsAll {
		return 0
	}
	return 1
}

// setFault records why a server is not up.
func (s *Server) setFault(err error) {
	s.State, s.Fault = ServerAway, printableText(err.Error(), mostText)
	if errors.Is(err, ErrUnfit) {
		s.State = ServerUnfit
	}
}

// setFacts records the fields of INFO.
func (s *Server) setFacts(info map[string]string) {
	const mostVersion = 32
	s.Version = printableText(info["redis_version"], mostVersion)
	if own := info["valkey_version"]; own != "" { // Valkey always reports redis_version 7.2.4, from which it was forked
		s.Version = printableText("valkey "+own, mostVersion)
	}
	s.UptimeS, s.Clients, s.Replicas = parseCount(info["uptime_in_seconds"]), parseCount(info["connected_clients"]), parseCount(info["connected_slaves"])
	s.MemoryUsed, s.MemoryLimit = parseCount(info["used_memory"]), parseCount(info["maxmemory"])
	if info["aof_enabled"] == "1" {
		s.Persistence = AppendOnly
	} else if info["aof_enabled"] == "0" {
		s.Persistence = NoAppendOnly
	}
}

// parseCount parses a count; nil if the text is not a count.
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

// oneServer is a client of one server: of a single Redis, or of a node of a Cluster.
type oneServer interface {
	Pipelined(ctx context.Context, fn func(redis.Pipeliner) error) ([]redis.Cmder, error)
}

// askedSections are the sections of INFO that a check requests. Each needs its own INFO, because several sections in one INFO need Redis 7.
var askedSections = []string{"server", "replication", "memory", "clients", "persistence"}

// The settings that INFO does not include. One CONFIG GET with the pattern askedSettings requests both, so that a user without CONFIG gets only one
// refusal.
const (
	saveSetting   = "save"
	stopSetting   = "stop-writes-on-bgsave-error"
	askedSettings = "s[at][vo]*"
)

// answers are the replies of a server to a check. A check takes one round trip.
type answers struct {
	sections map[string]*redis.StringCmd
	settings *redis.MapStringStringCmd
	took     float64 // milliseconds
}

// refusals has the servers that have refused CONFIG, by address. They are not asked again, because a check at each scrape would fill their ACL LOG.
// The zero value is empty.
type refusals struct{ known sync.Map }

// A refusal is the refusal of CONFIG by one server. The fields dialed and runID identify the server, because after a failover another server may
// answer at the same address.
type refusal struct {
	err    error
	dialed string // address of the newest connection; "" if unknown
	runID  string // run id of the server; "" if hidden
}

// refusalOf returns the refusal of the server at an address, or nil if there is none. dialed is the address of the newest connection.
func (r *refusals) refusalOf(at, dialed string) *refusal {
	found, _ := r.known.Load(at)
	if known, ok := found.(refusal); ok && known.dialed == dialed {
		return &known
	}
	return nil
}

// addRefusal stores the result of CONFIG GET if it is a refusal.
func (r *refusals) addRefusal(at string, answered refusal) {
	if isRefusal(answered.err) {
		r.known.Store(at, answered)
	}
}

// checkStart deletes a refusal if the run id has changed: another server answers, or the server has restarted.
func (r *refusals) checkStart(at string, known refusal, runID string) {
	if runID != "" && known.runID != "" && runID != known.runID {
		r.known.Delete(at)
	}
}

// isRefusal reports whether the user may not run the command, or the server does not have the command.
func isRefusal(err error) bool {
	return redis.IsPermissionError(err) || redis.HasErrorPrefix(err, "unknown command")
}

// askServer requests the sections of INFO, and the settings unless this server has refused CONFIG before.
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
		c.refused.addRefusal(at, refusal{a.settings.Err(), c.dialedTo(), about["run_id"]})
		return a
	}
	a.settings = redis.NewMapStringStringResult(nil, refused.err)
	c.refused.checkStart(at, *refused, about["run_id"])
	return a
}

// dialedTo returns the address of the newest connection, or "" if it is not recorded.
func (c *Conn) dialedTo() string {
	if to := c.dialed.Load(); to != nil {
		return *to
	}
	return ""
}

// infoSection returns a section of INFO.
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

// isReply reports whether an error is an error reply of Redis, so that the connection works.
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
