package harness

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// The tests in this file are about the harness itself: a harness that does not do to Redis and to the replicas what
// it says makes every other test prove nothing.

func TestRedisAnswersAndDiesAndReturns(t *testing.T) {
	for _, tc := range []struct {
		name   string
		opts   RedisOpts
		memory Memory
		want   string // the value that GET finds after the restart; "" for none
	}{
		{"persistent server with its memory kept", RedisOpts{Persist: true}, MemoryKept, "v"},
		{"persistent server with its memory lost", RedisOpts{Persist: true}, MemoryLost, ""},
		{"server that keeps nothing", RedisOpts{}, MemoryKept, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := StartRedis(t, tc.opts)
			if err := s.Client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
				t.Fatal(err)
			}

			s.Kill()
			if err := s.Client.Ping(t.Context()).Err(); err == nil {
				t.Fatal("a killed Redis answers")
			}
			s.Start(tc.memory)

			got, err := s.Client.Get(t.Context(), "k").Result()
			if err != nil && !errors.Is(err, redis.Nil) {
				t.Fatal(err)
			}
			if got != tc.want {
				t.Errorf("after the restart the key is %q, want %q", got, tc.want)
			}
		})
	}
}

func TestRedisRestartIsANewServer(t *testing.T) {
	s := StartRedis(t, RedisOpts{})
	before := runID(t, s.Client)
	s.Restart(MemoryKept)
	if runID(t, s.Client) == before {
		t.Error("the same server runs after the restart")
	}
	s.Stop()
	if err := s.Client.Ping(t.Context()).Err(); err == nil {
		t.Error("a stopped Redis answers")
	}
}

func runID(t *testing.T, c *redis.Client) string {
	t.Helper()
	info, err := c.InfoMap(t.Context(), "server").Result()
	if err != nil {
		t.Fatal(err)
	}
	return info["Server"]["run_id"]
}

func TestPausedRedisIsSilent(t *testing.T) {
	s := StartRedis(t, RedisOpts{})
	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var silent net.Error
	if err := s.Client.Ping(ctx).Err(); !errors.As(err, &silent) || !silent.Timeout() {
		t.Errorf("PING of a paused Redis: %v, want a time-out", err)
	}
	s.Unpause()
	if err := s.Client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("PING of a Redis that goes on: %v", err)
	}
}

func TestRedisTakesArguments(t *testing.T) {
	s := StartRedis(t, RedisOpts{Args: []string{"--maxmemory-policy", "allkeys-lru"}})
	got, err := s.Client.ConfigGet(t.Context(), "maxmemory-policy").Result()
	if err != nil || got["maxmemory-policy"] != "allkeys-lru" {
		t.Errorf("maxmemory-policy is %v, %v", got, err)
	}
}

func TestSharedRedisIsCleanedUp(t *testing.T) {
	var first RedisSpace
	key := func() string { return "cronclave:" + first.Namespace + ":k" }
	t.Run("a test writes", func(t *testing.T) {
		first = SharedRedis(t)
		if err := first.Client.Set(t.Context(), key(), "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
	})
	second := SharedRedis(t)
	if first.Namespace == second.Namespace {
		t.Error("two tests share a namespace")
	}
	if n, err := second.Client.Exists(t.Context(), key()).Result(); err != nil || n != 0 {
		t.Errorf("keys left by the test before: %d, %v", n, err)
	}
}

func TestOnlyContainersOfTheDeadAreLeftovers(t *testing.T) {
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	host, _, _ := strings.Cut(owner(), "/")
	for label, want := range map[string]bool{
		owner(): false,
		host + "/" + strconv.Itoa(dead.Process.Pid):   true,
		"elsewhere/" + strconv.Itoa(dead.Process.Pid): false,
		"something else": false,
		"":               false,
	} {
		if got := orphaned(label); got != want {
			t.Errorf("container of %q: left over %v, want %v", label, got, want)
		}
	}
}

func TestFindRedisNamesEveryReason(t *testing.T) {
	fails := func(why string) func(context.Context) (redisSource, error) {
		return func(context.Context) (redisSource, error) { return nil, errors.New(why) }
	}
	_, err := findRedis(t.Context(), []candidate{{"one", fails("no engine")}, {"two", fails("no program")}})
	if err == nil || !strings.Contains(err.Error(), "- one: no engine") || !strings.Contains(err.Error(), "- two: no program") {
		t.Errorf("error is %v", err)
	}
}

func TestReplicaIsObservedAndEnded(t *testing.T) {
	r := StartReplica(t, ReplicaOpts{Name: "r1", Namespace: "ns", RedisURL: "redis://127.0.0.1:1/0", Program: standinProgram})
	up := r.WaitLog(t, Soon, "start", func(e LogEntry) bool { return e.Message() == "up" })
	if args := up["args"].(string); !strings.HasPrefix(args, "run --config ") || !strings.Contains(args, "--replica r1") {
		t.Errorf("arguments: %s", args)
	}
	if up["redis"] != "redis://127.0.0.1:1/0" {
		t.Errorf("CRONCLAVE_REDIS: %v", up["redis"])
	}
	if up["token"] != json.Number("1764590402000311") {
		t.Errorf("the token lost digits: %v", up["token"])
	}

	r.Stop(t)
	Eventually(t, Soon, "frozen replica", func() bool { return strings.Contains(ProcessState(r.PID), "T") })
	r.Signal(t, syscall.SIGHUP)
	r.Cont(t)
	r.WaitLog(t, Soon, "sign of life", func(e LogEntry) bool { return e.Message() == "still here" })

	r.Term(t)
	if code := r.Wait(t, Soon); code != 0 {
		t.Errorf("exit code after SIGTERM: %d", code)
	}
	if last := r.Log()[len(r.Log())-1]; !strings.Contains(last, "down") {
		t.Errorf("the log ends with %s", last)
	}
}

func TestKilledReplicaIsGone(t *testing.T) {
	r := StartReplica(t, ReplicaOpts{Name: "r1", Program: standinProgram})
	r.WaitLog(t, Soon, "start", func(e LogEntry) bool { return e.Message() == "up" })
	r.Kill(t)
	if !r.Ended() || ProcessState(r.PID) != "" {
		t.Error("the process is still there")
	}
	if code := r.Wait(t, Soon); code != -1 {
		t.Errorf("exit code after SIGKILL: %d", code)
	}
}

func TestWaitLinesLeavesOutAnUnfinishedLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if got := ReadLines(t, path); got != nil {
		t.Errorf("lines of a file that is not there: %q", got)
	}
	if err := os.WriteFile(path, []byte("one\ntwo\nthr"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := WaitLines(t, path, 2, Soon); len(got) != 2 || got[1] != "two" {
		t.Errorf("lines: %q", got)
	}
}

// TestProgramsAreOfThisTree refuses a program outside of the repository, which is built from another tree.
func TestProgramsAreOfThisTree(t *testing.T) {
	inside, outside := Absolute(t, "testdata/standin"), t.TempDir()
	if err := errors.Join(os.WriteFile(outside+"/standin", nil, 0o700), os.Symlink(inside, outside+"/link")); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{"": "", inside: inside + "/main.go", outside + "/link": inside + "/main.go", outside: "", inside + "/nothing": ""} {
		t.Setenv(builtSetting, dir)
		if got, err := builtProgram("main.go"); got != want || err != nil {
			t.Errorf("%q: %q, %v", dir, got, err)
		}
	}
	t.Setenv(builtSetting, outside)
	if got, err := build(standinProgram); err == nil || !strings.Contains(err.Error(), outside+"/standin is outside of the tree under test") {
		t.Errorf("%q, %v", got, err)
	}
}
