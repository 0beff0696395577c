package integration

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// oneJob is enough for tests of the time before anything runs.
const oneJob = `
[jobs.quick]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
`

// A replica that starts before its Redis keeps trying, says so, and works as soon as Redis is there. Commands that
// only look give up at once, with 69.
func TestStartWithoutRedis(t *testing.T) {
	t.Parallel()
	s := startRedis(t, redisOpts{Persist: true})
	c := newClusterOn(t, s, oneJob)
	s.Stop()
	r, gone := c.start(t, "r1"), c.start(t, "r2")
	again := message("Redis does not answer; trying again")
	e := r.WaitLog(t, soon, "complaint", again)
	if e["redis"] != s.URL || e["error"] == nil || e["retry_in"] == nil {
		t.Errorf("the complaint does not say what is wrong: %v", e)
	}
	eventually(t, soon, "second complaint", func() bool {
		return len(slices.DeleteFunc(r.LogEntries(), func(e logEntry) bool { return !again(e) })) > 1
	})
	for _, args := range [][]string{{"status"}, {"history"}, {"exec", "quick"}} {
		c.command(t, args...).want(t, 69, "can't be reached")
	}
	gone.WaitLog(t, soon, "complaint", again)
	gone.Term(t)
	gone.wantDrained(t)
	if len(c.lines(t, "")) > 0 {
		t.Error("a job ran without Redis")
	}

	s.Start(kept)
	c.awaitTick(t, soon, "quick", 0)
	stopAll(t, []*replica{r})
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
			c := newClusterOn(t, startRedis(t, redisOpts{Persist: true, Args: tc.args}), oneJob)
			url := c.url
			if tc.edit != nil {
				url = startProxy(t, c.Client.Options().Addr, nil, tc.edit).url
			}
			r := c.startAt(t, "r1", url)
			if code := r.Wait(t, soon); code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			said := strings.Join(r.Log(), "\n")
			for _, want := range append(tc.want, "this Redis can't coordinate") {
				if !strings.Contains(said, want) {
					t.Errorf("the replica says nothing of %q:\n%s", want, said)
				}
			}
			if len(c.lines(t, "")) > 0 {
				t.Error("a job ran")
			}
		})
	}
}

// A replica warns of a server that may lose data, and runs; status warns of it too.
func TestUnsafeRedis(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		opts redisOpts
		code string // of the warning; "" for none
	}{
		{"safe", redisOpts{Persist: true}, ""},
		{"a policy without a limit evicts nothing", redisOpts{Persist: true, Args: []string{"--maxmemory-policy", "allkeys-lru"}}, ""},
		{"keeps nothing", redisOpts{}, "no_persistence"},
		{"keeps snapshots", redisOpts{Args: []string{"--save", "60 1"}}, "snapshots_only"},
		{"evicts what expires", redisOpts{Persist: true, Args: []string{"--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"}}, "eviction"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newClusterOn(t, startRedis(t, tc.opts), oneJob)
			r := c.start(t, "r1")
			c.awaitTick(t, soon, "quick", 0)
			var logged, told []string
			for _, e := range r.LogEntries() {
				if code, ok := e["code"].(string); ok {
					logged = append(logged, code)
				}
			}
			eventually(t, soon, "replica in status", func() bool { return len(c.status(t).Replicas) == 1 })
			for _, w := range c.status(t).Warnings {
				told = append(told, w.Code)
			}
			if strings.Join(logged, " ") != tc.code || strings.Join(told, " ") != tc.code {
				t.Errorf("warnings in the log %q, in status %q; want %q", logged, told, tc.code)
			}
			stopAll(t, []*replica{r})
		})
	}
}

// Data of a newer version in Redis stays untouched: all commands refuse with 2.
func TestNewerFormat(t *testing.T) {
	t.Parallel()
	c := newCluster(t, oneJob)
	key := "cronclave:" + c.Namespace + ":format"
	if err := c.Client.Set(t.Context(), key, "3", 0).Err(); err != nil {
		t.Fatal(err)
	}
	r := c.start(t, "r1")
	if code := r.Wait(t, soon); code != 2 {
		t.Errorf("exit code of run: %d, want 2", code)
	}
	if said := strings.Join(r.Log(), "\n"); !strings.Contains(said, "newer format") {
		t.Errorf("run does not say why:\n%s", said)
	}
	for _, args := range [][]string{{"status"}, {"history"}, {"exec", "quick"}} {
		c.command(t, args...).want(t, 2, "newer format")
	}
	keys, err := c.Client.Keys(t.Context(), "cronclave:"+c.Namespace+":*").Result()
	if err != nil || len(keys) != 1 || c.Client.Get(t.Context(), key).Val() != "3" || len(c.lines(t, "")) > 0 {
		t.Errorf("something was done all the same: %v, %v", keys, err)
	}
}

// The password of Redis comes from a file or from the environment, and no log shows it.
func TestPassword(t *testing.T) {
	t.Parallel()
	const password = "s3cret/of redis"
	s := startRedis(t, redisOpts{Persist: true})
	c := newClusterOn(t, s, oneJob)
	// The test's own client keeps its connection; jobs ask for the time without a password.
	if err := s.Client.ConfigSet(t.Context(), "requirepass", password).Err(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Client.ConfigSet(t.Context(), "requirepass", "") })

	c.command(t, "status").want(t, 69, "NOAUTH")
	without := c.start(t, "r0")
	without.WaitLog(t, soon, "complaint", message("Redis refuses the credentials; trying again"))
	without.Kill(t)

	file := filepath.Join(t.TempDir(), "password")
	write(t, file, password+"\n")
	withFile := fmt.Sprintf("[redis]\npassword_file = %q\n%s", file, c.config)
	write(t, c.path, withFile)
	r := startReplica(t, replicaOpts{Name: "r1", Config: withFile, Namespace: c.Namespace, RedisURL: s.URL, Env: []string{quickExit}})
	c.awaitTick(t, soon, "quick", 0)
	c.awaitRun(t, soon, "quick", "good end", func(r pastRun) bool { return r.Outcome == "ok" })
	stopAll(t, []*replica{r})

	write(t, c.path, c.config)
	c.url = strings.Replace(s.URL, "redis://", "redis://:s3cret%2Fof%20redis@", 1)
	c.command(t, "status").want(t, 0, "namespace "+c.Namespace)
	c.command(t, "history", "--redis", c.url).want(t, 2, "--redis has a password")
	in := c.start(t, "r2")
	in.WaitLog(t, soon, "announcement", announced)
	before := len(c.lines(t, ""))
	eventually(t, soon, "run of the second replica", func() bool { return len(c.lines(t, "")) > before })
	stopAll(t, []*replica{in})
	for _, r := range []*replica{r, in} {
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
		s := startRedis(t, redisOpts{Args: []string{"--maxmemory", "100mb", "--maxmemory-policy", policy}})
		return []string{"CRONCLAVE_REDIS=" + s.URL}
	}
	all, expiring := on("allkeys-lru"), on("volatile-lru")
	runCommand(t, all, "lock", "a", "--", "true").want(t, 1, "allkeys-lru")
	runCommand(t, all, "fence", "reports", "5").want(t, 1, "allkeys-lru")
	runCommand(t, expiring, "fence", "reports", "5").want(t, 0, "")
	runCommand(t, expiring, "fence", "--idle", "30d", "reports", "5").want(t, 1, "--idle")
}
