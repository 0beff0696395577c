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

// Server has the known facts about one server of Redis. Facts that it hides, or does not know, are nil or "".
type Server struct {
	Address string      `json:"address"` // as the configuration or the Cluster has it, without a password; of a master behind Sentinels its own while it is up
	Keeps   Keeps       `json:"keeps"`
	State   ServerState `json:"state"`
	Fault   string      `json:"fault,omitempty"` // why it is not up

	Version     string      `json:"version,omitempty"` // such as "7.2.4", or "valkey 9.1.2"
	Persistence Persistence `json:"persistence,omitempty"`
	UptimeS     *int64      `json:"uptime_s,omitempty"`
	// RoundTripMS is how long it took to answer the look, with a new connection where there was none.
	RoundTripMS *float64 `json:"round_trip_ms,omitempty"`
	MemoryUsed  *int64   `json:"memory_used,omitempty"`  // bytes
	MemoryLimit *int64   `json:"memory_limit,omitempty"` // bytes; 0 for none
	Clients     *int64   `json:"clients,omitempty"`      // that are connected
	Replicas    *int64   `json:"replicas,omitempty"`     // of Redis, that are connected to this master
}

// Keeps is the data of cronclave that a server has.
type Keeps string

// The kinds of data.
const (
	KeepsAll     Keeps = "all"
	KeepsLocks   Keeps = "locks"   // a master of a quorum
	KeepsHistory Keeps = "history" // the server beside a quorum
)

// ServerState is whether a server can do its part.
type ServerState string

// The states of a server.
const (
	ServerUp       ServerState = "up"
	ServerAway     ServerState = "away"      // it does not answer as a master
	ServerReadOnly ServerState = "read-only" // it answers, and refuses writes
	ServerUnfit    ServerState = "unfit"     // it answers, and cannot coordinate: see ErrUnfit
)

// ErrUnfit means that this Redis can't coordinate anything.
var ErrUnfit = errors.New("this Redis can't coordinate")

// Persistence is how a server keeps its data on its disk.
type Persistence string

// The kinds of persistence.
const (
	AppendOnly    Persistence = "appendonly" // an append-only file
	Snapshots     Persistence = "snapshots"
	NoPersistence Persistence = "none"
	NoAppendOnly  Persistence = "no appendonly" // it hides whether it keeps snapshots
)

// mostText bounds the texts about a server, which contain what it has answered.
const mostText = 200

// rank orders the servers of a look that shows not all of them: those that are not up come first.
func (s Server) rank() int {
	if s.State != ServerUp && s.Keeps == KeepsAll {
		return 0
	}
	return 1
}

// fail notes why a server is not up.
func (s *Server) fail(err error) {
	s.State, s.Fault = ServerAway, printable(err.Error(), mostText)
	if errors.Is(err, ErrUnfit) {
		s.State = ServerUnfit
	}
}

// describe takes the facts that INFO has about a server.
func (s *Server) describe(info map[string]string) {
	const mostVersion = 32
	s.Version = printable(info["redis_version"], mostVersion)
	if own := info["valkey_version"]; own != "" { // Valkey always reports redis_version 7.2.4, the version it was forked from
		s.Version = printable("valkey "+own, mostVersion)
	}
	s.UptimeS, s.Clients, s.Replicas = number(info["uptime_in_seconds"]), number(info["connected_clients"]), number(info["connected_slaves"])
	s.MemoryUsed, s.MemoryLimit = number(info["used_memory"]), number(info["maxmemory"])
	if info["aof_enabled"] == "1" {
		s.Persistence = AppendOnly
	} else if info["aof_enabled"] == "0" {
		s.Persistence = NoAppendOnly
	}
}

// number reads a count; nil if it is none.
func number(text string) *int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return nil
	}
	return &n
}

// printable is a text of a server as one line of so many characters at most.
func printable(text string, most int) string {
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

// oneServer is a client of one server; a client of a single Redis is one, and so is a node of a Cluster.
type oneServer interface {
	Pipelined(ctx context.Context, fn func(redis.Pipeliner) error) ([]redis.Cmder, error)
}

// askedSections are those of INFO that a look asks for. Several sections in one INFO need Redis 7.
var askedSections = []string{"server", "replication", "memory", "clients", "persistence"}

// The settings that INFO does not have, and one pattern for both: a user without CONFIG gets one refusal.
const (
	saveSetting   = "save"
	stopSetting   = "stop-writes-on-bgsave-error"
	askedSettings = "s[at][vo]*"
)

// answers are those of a server to a look, which takes one round trip.
type answers struct {
	sections map[string]*redis.StringCmd
	settings *redis.MapStringStringCmd
	took     float64 // milliseconds
}

// refusals remembers which servers have refused CONFIG, by their addresses: a look at each scrape would fill their ACL LOG. The zero value remembers none.
type refusals struct{ known sync.Map }

// refusal is that of one server: another one may answer at its address after a failover, and permit CONFIG.
type refusal struct {
	err    error
	dialed string // the address of the newest connection; "" if it is not known
	runID  string // that of its start; "" if it hides that
}

// of returns the refusal of the server at an address, now connected to so; nil if it has not refused CONFIG.
func (r *refusals) of(at, dialed string) *refusal {
	found, _ := r.known.Load(at)
	if known, ok := found.(refusal); ok && known.dialed == dialed {
		return &known
	}
	return nil
}

// note remembers an answer that is a refusal, and no other error.
func (r *refusals) note(at string, answered refusal) {
	if isRefusal(answered.err) {
		r.known.Store(at, answered)
	}
}

// checkStart forgets the refusal of a server that was not asked again, if another one has answered in its place.
func (r *refusals) checkStart(at string, known refusal, runID string) {
	if runID != "" && known.runID != "" && runID != known.runID {
		r.known.Delete(at)
	}
}

// isRefusal returns whether a user may not run a command, or a server does not have it.
func isRefusal(err error) bool {
	return redis.IsPermissionError(err) || redis.HasErrorPrefix(err, "unknown command")
}

// askServer asks a server for all that a look needs. It does not ask again for settings that this server has refused.
func (c *Conn) askServer(ctx context.Context, rdb oneServer, at string) answers {
	refused := c.refused.of(at, c.dialedTo())
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
	about, _ := a.section("server") // without it the run id is not known
	if refused == nil {
		c.refused.note(at, refusal{a.settings.Err(), c.dialedTo(), about["run_id"]})
		return a
	}
	a.settings = redis.NewMapStringStringResult(nil, refused.err)
	c.refused.checkStart(at, *refused, about["run_id"])
	return a
}

// dialedTo is the address of the newest connection, "" if that is not noted.
func (c *Conn) dialedTo() string {
	if to := c.dialed.Load(); to != nil {
		return *to
	}
	return ""
}

// section is a section of INFO.
func (a answers) section(name string) (map[string]string, error) {
	text, err := a.sections[name].Result()
	if err != nil {
		return nil, fmt.Errorf("ask Redis for its %s: %w", name, err)
	}
	return parseInfo(text), nil
}

// info has the fields of all sections that the server does not hide. Its error is that of a connection, and no refusal.
func (a answers) info() (map[string]string, error) {
	all := map[string]string{}
	for _, name := range askedSections {
		fields, err := a.section(name)
		if err != nil && !isReply(err) {
			return nil, err
		}
		maps.Copy(all, fields)
	}
	return all, nil
}

// config has the settings that INFO does not have; none if the server hides them.
func (a answers) config() (map[string]string, error) {
	found, err := a.settings.Result()
	if err != nil && !isReply(err) {
		return nil, fmt.Errorf("ask Redis for its settings: %w", err)
	}
	return found, nil
}

// isReply returns whether a server has answered with an error: the connection is good then.
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
