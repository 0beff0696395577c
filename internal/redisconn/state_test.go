package redisconn

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/config"
)

// TestRefusedWritesAreShown: a server that answers and takes no writes is not shown as one that is well.
func TestRefusedWritesAreShown(t *testing.T) {
	t.Parallel()
	const full = "used_memory:%\r\nmaxmemory:1000\r\nmaxmemory_policy:noeviction\r\nmem_not_counted_for_evict:100\r\n"
	failed := "aof_enabled:1\r\nrdb_last_bgsave_status:err\r\n"
	for name, tc := range map[string]struct {
		sections, settings map[string]string
		state              ServerState
		warns              string
	}{
		"all is well":                 {healthy, safe, ServerUp, ""},
		"no append":                   {with(healthy, "persistence", "aof_enabled:1\r\naof_last_write_status:err\r\n"), nil, ServerReadOnly, "append-only file"},
		"no memory":                   {with(healthy, "memory", strings.Replace(full, "%", "1101", 1)), safe, ServerReadOnly, "memory is full"},
		"buffers do not count":        {with(healthy, "memory", strings.Replace(full, "%", "1100", 1)), safe, ServerUp, ""},
		"no snapshot":                 {with(healthy, "persistence", failed), with(safe, "save", "60 1"), ServerReadOnly, "snapshot failed; look"},
		"no snapshot is wanted":       {with(healthy, "persistence", failed), safe, ServerUp, ""},
		"no snapshot, which is right": {with(healthy, "persistence", failed), map[string]string{"save": "60 1", "stop-writes-on-bgsave-error": "no"}, ServerUp, ""},
		"no snapshot, and no CONFIG":  {with(healthy, "persistence", failed), nil, ServerUp, "unless stop-writes-on-bgsave-error is no"},
	} {
		h := healthOf(Server{State: ServerUp})
		err := (&Conn{}).judgeAnswers(answersOf(tc.sections, tc.settings), &h)
		if err != nil || h.onlyServer().State != tc.state || (h.onlyServer().Fault != "") != (tc.state == ServerReadOnly) {
			t.Errorf("%s: %v, %+v", name, err, *h.onlyServer())
		}
		if said := len(h.Warnings) == 1 && h.Warnings[0].Code == "writes_refused" && strings.Contains(h.Warnings[0].Message, tc.warns); said != (tc.warns != "") {
			t.Errorf("%s: %+v", name, h.Warnings)
		}
	}
}

// TestUnusableServers: the refusal of one that may drop locks needs no CONFIG, and neither one that loads its data nor a connection that broke passes for
// a server that hides its settings.
func TestUnusableServers(t *testing.T) {
	t.Parallel()
	broken := answersOf(healthy, nil)
	broken.settings = redis.NewMapStringStringResult(nil, io.ErrUnexpectedEOF)
	half := answersOf(healthy, safe)
	half.sections["persistence"] = redis.NewStringResult("", io.ErrUnexpectedEOF)
	for name, tc := range map[string]struct {
		answers
		says  string
		unfit bool
	}{
		"evicts":            {answersOf(with(healthy, "memory", "used_memory:1\r\nmaxmemory:9\r\nmaxmemory_policy:allkeys-lru\r\n"), nil), "set maxmemory-policy noeviction", true},
		"loads its data":    {answersOf(with(healthy, "persistence", "loading:1\r\naof_enabled:1\r\n"), nil), "it loads its data", false},
		"broke in CONFIG":   {broken, "ask Redis for its settings", false},
		"broke in the INFO": {half, "ask Redis for its persistence", false},
	} {
		h := healthOf(Server{State: ServerUp})
		err := (&Conn{}).judgeAnswers(tc.answers, &h)
		if err == nil || !strings.Contains(err.Error(), tc.says) || errors.Is(err, ErrUnfit) != tc.unfit || len(h.Warnings) != 0 {
			t.Errorf("%s: %v, %+v", name, err, h.Warnings)
		}
	}
}

// TestFaultOfAServerIsExplained: the state of a server has the explanation that the error of the client lacks.
func TestFaultOfAServerIsExplained(t *testing.T) {
	t.Parallel()
	c := &Conn{url: config.RedisURL{Topology: config.Sentinel, Master: "prime"}}
	one := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = one.Close() })
	one.AddHook(refusing{})
	h, err := c.examineServer(t.Context(), one, "x")
	if err == nil || !strings.Contains(h.onlyServer().Fault, "no master named prime") {
		t.Errorf("%v, %+v", err, h.onlyServer())
	}
}

// refusing answers each pipeline as the client does whose Sentinels do not know the master.
type refusing struct{}

func (refusing) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (refusing) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (refusing) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			cmd.SetErr(redis.Nil)
		}
		return cmds[0].Err()
	}
}

// TestQuorumIsLookedAtWithoutItsHistory: the masters are shown although the Redis of the history is away.
func TestQuorumIsLookedAtWithoutItsHistory(t *testing.T) {
	t.Parallel()
	c := openQuorum(t, "redis://127.0.0.1:1/0", embeddedServer(t), "redis://127.0.0.1:1/1", embeddedServer(t))
	h, err := c.Examine(t.Context())
	if err == nil || len(h.Redis.Servers) != 4 || len(h.Warnings) == 0 {
		t.Fatalf("%v, %+v", err, h)
	}
	for i, want := range []ServerState{ServerAway, ServerUp, ServerAway, ServerUp} {
		if s := h.Redis.Servers[i]; s.State != want {
			t.Errorf("server %d: %+v, want %s", i, s, want)
		}
	}
}
