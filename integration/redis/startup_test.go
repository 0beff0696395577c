package redis

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/locking"
)

// A request that the server refuses to write has done nothing, and the same id gets the row later. The servers refuse
// for a while, each for another reason.
// Promise: P5
func TestRefusalsOfTheServer(t *testing.T) {
	t.Parallel()
	plain := harness.StartRedis(t, harness.RedisOpts{})
	node := harness.StartCluster(t)
	type words []any
	for _, tc := range []struct {
		name        string
		on          *harness.RedisServer // nil for the node of the Cluster that has the lock
		spoil, mend []words
	}{
		{"READONLY", plain, []words{{"REPLICAOF", "127.0.0.1", "1"}}, []words{{"REPLICAOF", "NO", "ONE"}}},
		{"MASTERDOWN", plain, []words{{"CONFIG", "SET", "replica-serve-stale-data", "no"}, {"REPLICAOF", "127.0.0.1", "1"}}, []words{{"REPLICAOF", "NO", "ONE"}}},
		{"NOREPLICAS", plain, []words{{"CONFIG", "SET", "min-replicas-to-write", "1"}}, []words{{"CONFIG", "SET", "min-replicas-to-write", "0"}}},
		{"OOM", plain, []words{{"CONFIG", "SET", "maxmemory", "1"}}, []words{{"CONFIG", "SET", "maxmemory", "0"}}},
		{"CLUSTERDOWN", nil, []words{{"CLUSTER", "DELSLOTS", lockSlot}}, []words{{"CLUSTER", "ADDSLOTS", lockSlot}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			on, client := tc.on, redis.UniversalClient(nil)
			if on == nil {
				on, client = node.Owner(t, lockSlot), node.Client(t)
			} else {
				client = redis.NewClient(harness.ClientOptions(on.Instance.Addr()))
			}
			defer client.Close()
			locks, err := locking.New(locking.Config{Redis: client, Prefix: "refusal:" + tc.name + ":", Timeout: harness.Patience})
			harness.Must(t, err)
			defer locks.Close()
			do := func(list []words) {
				t.Helper()
				for _, w := range list {
					harness.Must(t, on.Client.Do(t.Context(), w...).Err())
				}
			}
			r := lease.Request{Lock: "lock", ID: "one", Lease: time.Minute}
			other := lease.Request{Lock: "lock", ID: "other", Lease: time.Minute}

			do(tc.spoil)
			a := locks.Engine().Acquire(t.Context(), r)
			if a.Verdict != lease.Unknown || !errors.Is(a.Err, locking.ErrUnknown) || !redis.HasErrorPrefix(a.Err, tc.name) {
				t.Errorf("while the server refuses: %q, %v", a.Verdict, a.Err)
			}
			do(tc.mend)
			harness.Eventually(t, harness.Soon, "grant once the server takes writes again", func() bool {
				a = locks.Engine().Acquire(t.Context(), r)
				return a.Verdict == lease.Granted
			})
			if b := locks.Engine().Acquire(t.Context(), other); b.Verdict != lease.Held {
				t.Errorf("another one: %q, %v", b.Verdict, b.Err)
			}
			harness.Must(t, a.Run.Release(t.Context()))
		})
	}
}

// lockSlot is the slot of a Cluster that has the hash tag {lock}.
const lockSlot = 8718

// A replica that starts before its Redis keeps trying, says so, and works as soon as Redis is there. Commands that
// only look give up at once, with 69.
func TestStartWithoutRedis(t *testing.T) {
	t.Parallel()
	s := harness.StartRedis(t, harness.RedisOpts{Persist: true})
	c := harness.NewClusterOn(t, s, harness.OneJob)
	s.Stop()
	r, gone := c.Start(t, "r1"), c.Start(t, "r2")
	again := harness.MessageHas("Redis does not answer; trying again")
	e := r.WaitLog(t, harness.Soon, "complaint", again)
	if e["redis"] != s.URL || e["error"] == nil || e["retry_in"] == nil {
		t.Errorf("the complaint does not say what is wrong: %v", e)
	}
	harness.Eventually(t, harness.Soon, "second complaint", func() bool {
		return len(slices.DeleteFunc(r.LogEntries(), func(e harness.LogEntry) bool { return !again(e) })) > 1
	})
	for _, args := range [][]string{{"status"}, {"history"}, {"exec", "quick"}} {
		c.Command(t, args...).Want(t, 69, "can't be reached")
	}
	gone.WaitLog(t, harness.Soon, "complaint", again)
	gone.Term(t)
	gone.WantDrained(t)
	if len(c.Lines(t, "")) > 0 {
		t.Error("a job ran without Redis")
	}

	s.Start(harness.MemoryKept)
	c.AwaitTick(t, harness.Soon, "quick", 0)
	harness.StopAll(t, []*harness.Replica{r})
}

// A replica refuses with 1 a server that cannot coordinate, and says what to do.
func TestUnfitRedis(t *testing.T) {
	t.Parallel()
	old := regexp.MustCompile(`redis_version:[0-9]+`)
	ages := func(reply []byte) []byte { // as many bytes as before
		return old.ReplaceAllFunc(reply, func(v []byte) []byte {
			number := bytes.Repeat([]byte("0"), len(v)-len("redis_version:"))
			number[len(number)-1] = '4'
			return append([]byte("redis_version:"), number...)
		})
	}
	for _, tc := range []struct {
		name string
		args []string
		edit func([]byte) []byte
		want []string
	}{
		{"read-only replica", []string{"--replicaof", "127.0.0.1", "1"}, nil, []string{"replica of 127.0.0.1:1", "name the master"}},
		{"too old", nil, ages, []string{"too old", "Redis 5 or later"}},
		{"evicts locks", []string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}, nil, []string{"allkeys-lru", "noeviction"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := harness.NewClusterOn(t, harness.StartRedis(t, harness.RedisOpts{Persist: true, Args: tc.args}), harness.OneJob)
			url := c.URL
			if tc.edit != nil {
				url = harness.StartProxy(t, c.Client.Options().Addr, nil, tc.edit).URL
			}
			r := c.StartAt(t, "r1", url)
			if code := r.Wait(t, harness.Soon); code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			said := strings.Join(r.Log(), "\n")
			for _, want := range append(tc.want, "this Redis can't coordinate") {
				if !strings.Contains(said, want) {
					t.Errorf("the replica says nothing of %q:\n%s", want, said)
				}
			}
			if len(c.Lines(t, "")) > 0 {
				t.Error("a job ran")
			}
		})
	}
}

// A replica warns of a server that may lose data, and runs; status warns of it too.
func TestUnsafeRedis(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for _, tc := range []struct {
		name string
		opts harness.RedisOpts
		code string // of the warning; "" for none
	}{
		{"safe", harness.RedisOpts{Persist: true}, ""},
		{"a policy without a limit evicts nothing", harness.RedisOpts{Persist: true, Args: []string{"--maxmemory-policy", "allkeys-lru"}}, ""},
		{"keeps nothing", harness.RedisOpts{}, "no_persistence"},
		{"keeps snapshots", harness.RedisOpts{Args: []string{"--save", "60 1"}}, "snapshots_only"},
		{"evicts what expires", harness.RedisOpts{Persist: true, Args: []string{"--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"}}, "eviction"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := harness.NewClusterOn(t, harness.StartRedis(t, tc.opts), harness.OneJob)
			r := c.Start(t, "r1")
			c.AwaitTick(t, harness.Soon, "quick", 0)
			var logged, told []string
			for _, e := range r.LogEntries() {
				if code, ok := e["code"].(string); ok {
					logged = append(logged, code)
				}
			}
			harness.Eventually(t, harness.Soon, "replica in status", func() bool { return len(c.Status(t).Replicas) == 1 })
			for _, w := range c.Status(t).Warnings {
				told = append(told, w.Code)
			}
			if strings.Join(logged, " ") != tc.code || strings.Join(told, " ") != tc.code {
				t.Errorf("warnings in the log %q, in status %q; want %q", logged, told, tc.code)
			}
			harness.StopAll(t, []*harness.Replica{r})
		})
	}
}

// Data of a newer version in Redis stays untouched: all commands refuse with 2.
func TestNewerFormat(t *testing.T) {
	t.Parallel()
	c := harness.NewCluster(t, harness.OneJob)
	key := "cronclave:" + c.Namespace + ":format"
	if err := c.Client.Set(t.Context(), key, "3", 0).Err(); err != nil {
		t.Fatal(err)
	}
	r := c.Start(t, "r1")
	if code := r.Wait(t, harness.Soon); code != 2 {
		t.Errorf("exit code of run: %d, want 2", code)
	}
	if said := strings.Join(r.Log(), "\n"); !strings.Contains(said, "newer format") {
		t.Errorf("run does not say why:\n%s", said)
	}
	for _, args := range [][]string{{"status"}, {"history"}, {"exec", "quick"}} {
		c.Command(t, args...).Want(t, 2, "newer format")
	}
	keys, err := c.Client.Keys(t.Context(), "cronclave:"+c.Namespace+":*").Result()
	if err != nil || len(keys) != 1 || c.Client.Get(t.Context(), key).Val() != "3" || len(c.Lines(t, "")) > 0 {
		t.Errorf("something was done all the same: %v, %v", keys, err)
	}
}

// The password of Redis comes from a file or from the environment, and no log shows it.
func TestPassword(t *testing.T) {
	t.Parallel()
	const password = "s3cret/of redis"
	s := harness.StartRedis(t, harness.RedisOpts{Persist: true})
	c := harness.NewClusterOn(t, s, harness.OneJob)
	// The test's own client keeps its connection; jobs ask for the time without a password.
	if err := s.Client.ConfigSet(t.Context(), "requirepass", password).Err(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Client.ConfigSet(t.Context(), "requirepass", "") })

	c.Command(t, "status").Want(t, 69, "NOAUTH")
	without := c.Start(t, "r0")
	without.WaitLog(t, harness.Soon, "complaint", harness.MessageHas("Redis refuses the credentials; trying again"))
	without.Kill(t)

	file := filepath.Join(t.TempDir(), "password")
	harness.WriteFile(t, file, password+"\n")
	withFile := fmt.Sprintf("[redis]\npassword_file = %q\n%s", file, c.Config)
	harness.WriteFile(t, c.Path, withFile)
	r := harness.StartReplica(t, harness.ReplicaOpts{Name: "r1", Config: withFile, Namespace: c.Namespace, RedisURL: s.URL, Env: []string{harness.QuickExit}})
	c.AwaitTick(t, harness.Soon, "quick", 0)
	c.AwaitRun(t, harness.Soon, "quick", "good end", func(r harness.PastRun) bool { return r.Outcome == "ok" })
	harness.StopAll(t, []*harness.Replica{r})

	harness.WriteFile(t, c.Path, c.Config)
	c.URL = strings.Replace(s.URL, "redis://", "redis://:s3cret%2Fof%20redis@", 1)
	c.Command(t, "status").Want(t, 0, "namespace "+c.Namespace)
	c.Command(t, "history", "--redis", c.URL).Want(t, 2, "--redis has a password")
	in := c.Start(t, "r2")
	in.WaitLog(t, harness.Soon, "announcement", harness.Announced)
	before := len(c.Lines(t, ""))
	harness.Eventually(t, harness.Soon, "run of the second replica", func() bool { return len(c.Lines(t, "")) > before })
	harness.StopAll(t, []*harness.Replica{in})
	for _, r := range []*harness.Replica{r, in} {
		if said := strings.Join(r.Log(), "\n"); strings.Contains(said, "s3cret") {
			t.Errorf("the log shows the password:\n%s", said)
		}
	}
}

// A Redis that evicts keys is refused for locks and fences, since it may drop them when memory is short. A dropped lock
// excludes no client, and a dropped fence lets any token pass.
func TestEvictingRedisKeepsNoFence(t *testing.T) {
	t.Parallel()
	on := func(policy string) []string {
		s := harness.StartRedis(t, harness.RedisOpts{Args: []string{"--maxmemory", "100mb", "--maxmemory-policy", policy}})
		return []string{"CRONCLAVE_REDIS=" + s.URL}
	}
	all, expiring := on("allkeys-lru"), on("volatile-lru")
	harness.RunCommand(t, all, "lock", "a", "--", "true").Want(t, 1, "allkeys-lru")
	harness.RunCommand(t, all, "fence", "reports", "5").Want(t, 1, "allkeys-lru")
	harness.RunCommand(t, expiring, "fence", "reports", "5").Want(t, 0, "")
	harness.RunCommand(t, expiring, "fence", "--idle", "30d", "reports", "5").Want(t, 1, "--idle")
}
