package harness

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Trio is a master with two replicas, and three Sentinels that watch them: processes on this machine, since containers do not
// reach each other by the addresses under which this machine reaches them.
type Trio struct {
	Servers   []*RedisServer // the first one begins as the master
	Sentinels []*RedisServer
	URL       string
}

// MasterName is the master's name in the Sentinels.
const MasterName = "main"

// MustProgram returns the source of servers that are processes.
func MustProgram(t *testing.T) RedisProgram {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	source, err := programSource(ctx)
	if err != nil {
		t.Fatal("the tests of Sentinel and Cluster start redis-server themselves; install it (apt-get install redis-server), or run make test as root:", err)
	}
	return source.(RedisProgram)
}

// Persistent are the arguments of a server that keeps all that it has acknowledged.
var Persistent = []string{"--save", "", "--appendonly", "yes", "--appendfsync", "everysec", "--repl-diskless-sync-delay", "0"}

// StartTrio returns when each Sentinel knows the others and both replicas. at is the address of the master for Sentinels and
// replicas; nil leaves it as it is. The options are for servers and Sentinels.
func StartTrio(t *testing.T, at func(master string) string, options ...string) *Trio {
	t.Helper()
	program, args := MustProgram(t), slices.Concat(Persistent, options)
	s := &Trio{Servers: []*RedisServer{StartFrom(t, program, args)}}
	master := s.Servers[0].PeerAddr()
	if at != nil {
		master = at(master)
	}
	host, port, _ := strings.Cut(master, ":")
	for range 2 {
		s.Servers = append(s.Servers, StartFrom(t, program, append(slices.Clone(args), "--replicaof", host, port)))
	}
	var addrs []string
	for range 3 {
		sentinel := StartFrom(t, sentinelProgram{program, master}, append([]string{"--sentinel"}, options...))
		s.Sentinels = append(s.Sentinels, sentinel)
		addrs = append(addrs, sentinel.Instance.Addr())
	}
	s.URL = "redis-sentinel://" + strings.Join(addrs, ",") + "/" + MasterName
	Eventually(t, StartTimeout, "agreement of the Sentinels", func() bool { return s.complete(t) })
	return s
}

// sentinelProgram makes Sentinels.
type sentinelProgram struct {
	RedisProgram
	master string
}

func (s sentinelProgram) Create(args []string) (RedisInstance, error) {
	instance, err := s.RedisProgram.Create(args)
	if err != nil {
		return nil, err
	}
	host, port, _ := strings.Cut(s.master, ":")
	instance.(*RedisProcess).file = fmt.Sprintf(`sentinel monitor %[1]s %[2]s %[3]s 2
sentinel down-after-milliseconds %[1]s 1500
sentinel failover-timeout %[1]s 5000
`, MasterName, host, port)
	return instance, nil
}

// complete returns whether all Sentinels know all servers and each other, and the replicas follow.
func (s *Trio) complete(t *testing.T) bool {
	for _, sentinel := range s.Sentinels {
		m, err := ask(t, sentinel, "SENTINEL", "MASTER", MasterName)
		if err != nil || m["num-slaves"] != "2" || m["num-other-sentinels"] != "2" || m["flags"] != "master" {
			return false
		}
	}
	return TwoFollow(t, s.Servers[0])
}

// TwoFollow reports whether two replicas follow a master and are up to date.
func TwoFollow(t *testing.T, master *RedisServer) bool {
	info := replication(t, master)
	return info["connected_slaves"] == "2" && strings.Contains(info["slave0"], "state=online") && strings.Contains(info["slave1"], "state=online")
}

// ask returns a reply of names and values.
func ask(t *testing.T, s *RedisServer, args ...any) (map[string]string, error) {
	t.Helper()
	cmd := redis.NewMapStringStringCmd(t.Context(), args...)
	err := s.Client.Process(t.Context(), cmd)
	return cmd.Val(), err
}

func replication(t *testing.T, s *RedisServer) map[string]string {
	t.Helper()
	info, err := s.Client.InfoMap(t.Context(), "replication").Result()
	if err != nil {
		return nil
	}
	return info["Replication"]
}

// AwaitFailover waits until all Sentinels name another master than the given one, and returns its server.
func (s *Trio) AwaitFailover(t *testing.T, old string) *RedisServer {
	t.Helper()
	var now *RedisServer
	Eventually(t, StartTimeout, "agreement on a new master", func() bool {
		named := s.named(t)
		i := slices.IndexFunc(s.Servers, func(r *RedisServer) bool { return r.Instance.Addr() == named })
		if i < 0 || named == old {
			return false
		}
		now = s.Servers[i]
		return replication(t, now)["role"] == "master"
	})
	return now
}

// named is the address of the master by the word of all Sentinels; "" if they disagree.
func (s *Trio) named(t *testing.T) string {
	t.Helper()
	all := map[string]bool{}
	for _, sentinel := range s.Sentinels {
		m, err := ask(t, sentinel, "SENTINEL", "MASTER", MasterName)
		if err != nil || strings.Contains(m["flags"], "failover_in_progress") {
			return ""
		}
		all[m["ip"]+":"+m["port"]] = true
	}
	if len(all) != 1 {
		return ""
	}
	for addr := range all {
		return addr
	}
	return ""
}
