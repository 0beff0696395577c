package embedded

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// eachWay runs a test over TCP on real time and in memory on fake time.
func eachWay(t *testing.T, test func(t *testing.T, c *redis.Client)) {
	t.Run("tcp", func(t *testing.T) { test(t, overTCP(t, start(t, Config{}))) })
	t.Run("fake time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, err := Start(Config{DialOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			c := inMemory(t, s)
			defer c.Close()
			test(t, c)
		})
	})
}

// TestScripts holds one case for each thing that scripts of this project use.
func TestScripts(t *testing.T) {
	tests := []struct {
		name, script string
		args         []any
		want         string // as printed by fmt.Sprint
	}{
		{"format of big numbers", `return string.format('%.0f', tonumber(ARGV[1]) + 1)`, []any{"1764590402000311"}, "1764590402000312"},
		{"format with %d", `return string.format('%d', 1764590402000311)`, nil, "1764590402000311"},
		{"tonumber of nothing", `return tostring(tonumber(redis.call('GET', KEYS[1])))`, nil, "nil"},
		{"missing is false", `return redis.call('GET', KEYS[1]) == false`, nil, "1"},
		{"set px nx", `redis.call('SET', KEYS[1], 'v', 'NX', 'PX', 5000) return redis.call('PTTL', KEYS[1])`, nil, "5000"},
		{"pexpire", `redis.call('SET', KEYS[1], 'v') redis.call('PEXPIRE', KEYS[1], 700) return redis.call('PTTL', KEYS[1])`, nil, "700"},
		{"persist", `redis.call('SET', KEYS[1], 'v', 'PX', 50) redis.call('PERSIST', KEYS[1]) return redis.call('PTTL', KEYS[1])`, nil, "-1"},
		{"hmget with a gap", `redis.call('HSET', KEYS[1], 'a', '1', 'c', '3') local v = redis.call('HMGET', KEYS[1], 'a', 'b', 'c') return {v[1], tostring(v[2]), v[3]}`, nil, "[1 false 3]"},
		{"hgetall", `redis.call('HSET', KEYS[1], 'a', '1') return redis.call('HGETALL', KEYS[1])`, nil, "[a 1]"},
		{"scores", `redis.call('ZADD', KEYS[1], '1764590402000311', 'x', 5, 'y') return redis.call('ZRANGEBYSCORE', KEYS[1], '(5', '+inf', 'WITHSCORES', 'LIMIT', 0, 1)`, nil, "[x 1764590402000311]"},
		{"zscore", `redis.call('ZADD', KEYS[1], 1764590402000311, 'x') return redis.call('ZSCORE', KEYS[1], 'x')`, nil, "1764590402000311"},
		{"trim by rank", `for i = 1, 9 do redis.call('ZADD', KEYS[1], i, i) end redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -4) return redis.call('ZRANGE', KEYS[1], 0, -1)`, nil, "[7 8 9]"},
		{"error reply", `local r = redis.pcall('INCR', KEYS[1], 'x') return type(r.err)`, nil, "string"},
		{"status reply", `return redis.call('SET', KEYS[1], 'v').ok`, nil, "OK"},
		{"publish", `return redis.call('PUBLISH', 'nobody', 'm')`, nil, "0"},
		{"json", `return cjson.decode(ARGV[1]).a`, []any{`{"a":7}`}, "7"},
		{"nested replies", `return {1, {'two', {3}}, false, 'x'}`, nil, "[1 [two [3]] <nil> x]"},
		{"math", `return math.max(3, math.floor(7.9), 5)`, nil, "7"},
		{"strings", `local a, b = string.match(ARGV[1], '^([^:]*):(.*)$') return {a, b}`, []any{"s:1"}, "[s 1]"},
		{"unpack", `return {unpack({1, 2, 3})}`, nil, "[1 2 3]"},
	}
	eachWay(t, func(t *testing.T, c *redis.Client) {
		for i, tt := range tests {
			got, err := c.Eval(background, tt.script, []string{fmt.Sprintf("key-%d", i)}, tt.args...).Result()
			if s := fmt.Sprint(got); err != nil || s != tt.want {
				t.Errorf("%s: got %s, %v, want %s", tt.name, s, err, tt.want)
			}
		}
	})
}

func TestScriptErrorsAndGlobals(t *testing.T) {
	c := overTCP(t, start(t, Config{}))
	for script, want := range map[string]string{
		`return redis.error_reply('MINE said so')`: "MINE said so",
		`global = 1`:                  "global",
		`return redis.call('NOSUCH')`: "Unknown Redis command",
		`return redis.call('GET')`:    "wrong number of arguments",
		`this is not lua`:             "ERR",
	} {
		if err := c.Eval(background, script, nil).Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", script, err, want)
		}
	}
}

func TestNoScript(t *testing.T) {
	eachWay(t, func(t *testing.T, c *redis.Client) {
		script := redis.NewScript(`return ARGV[1]`)
		err := c.EvalSha(background, script.Hash(), nil, "x").Err()
		if !redis.HasErrorPrefix(err, "NOSCRIPT") {
			t.Fatalf("unknown script: %v", err)
		}
		cmds, _ := c.Pipelined(background, func(p redis.Pipeliner) error {
			p.EvalSha(background, script.Hash(), nil, "a")
			p.Set(background, "k", "v", 0)
			return nil
		})
		if !redis.HasErrorPrefix(cmds[0].Err(), "NOSCRIPT") || cmds[1].Err() != nil {
			t.Fatalf("in a pipeline: %v, %v", cmds[0].Err(), cmds[1].Err())
		}
		must[string](t)(script.Load(background, c).Result())
		if got := must[any](t)(c.EvalSha(background, script.Hash(), nil, "b").Result()); got != "b" {
			t.Fatalf("loaded script: %v", got)
		}
		must[string](t)(c.ScriptFlush(background).Result())
		if err := c.EvalSha(background, script.Hash(), nil, "x").Err(); !redis.HasErrorPrefix(err, "NOSCRIPT") {
			t.Fatalf("after SCRIPT FLUSH: %v", err)
		}
	})
}

func TestFlushAllForgets(t *testing.T) {
	c := overTCP(t, start(t, Config{}))
	must[string](t)(c.Set(background, "k", "v", 0).Result())
	must[string](t)(c.FlushAll(background).Result())
	if n := must[int64](t)(c.DBSize(background).Result()); n != 0 {
		t.Fatalf("%d keys left", n)
	}
}

// TestTransactions shows that a MULTI's commands run together, and that a write
// to a watched key in between makes it fail.
func TestTransactions(t *testing.T) {
	eachWay(t, func(t *testing.T, c *redis.Client) {
		cmds, err := c.TxPipelined(background, func(p redis.Pipeliner) error {
			p.ZAdd(background, "z", redis.Z{Score: 1, Member: "a"}, redis.Z{Score: 2, Member: "b"})
			p.ZRemRangeByRank(background, "z", 0, -2)
			p.PExpire(background, "z", time.Minute)
			p.ZRangeWithScores(background, "z", 0, -1)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := cmds[3].(*redis.ZSliceCmd).Val(); len(got) != 1 || got[0].Member != "b" {
			t.Fatalf("left: %v", got)
		}
		err = c.Watch(background, func(tx *redis.Tx) error {
			must[string](t)(c.Set(background, "w", "other", 0).Result())
			_, err := tx.TxPipelined(background, func(p redis.Pipeliner) error {
				return p.Set(background, "w", "mine", 0).Err()
			})
			return err
		}, "w")
		if !errors.Is(err, redis.TxFailedErr) {
			t.Fatalf("watched key was written: %v", err)
		}
	})
}

// TestLongPipeline sends much more than the server reads ahead, before any
// reply is read, and gets even more back: on a bare net.Pipe this stands still.
func TestLongPipeline(t *testing.T) {
	eachWay(t, func(t *testing.T, c *redis.Client) {
		value := strings.Repeat("x", 1000)
		cmds, err := c.Pipelined(background, func(p redis.Pipeliner) error {
			for i := range 2000 {
				p.Set(background, fmt.Sprint(i), value, time.Minute)
				p.Get(background, fmt.Sprint(i))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := cmds[3999].(*redis.StringCmd).Val(); got != value {
			t.Fatalf("last value has %d bytes", len(got))
		}
	})
}

func TestPublishedMessagesArrive(t *testing.T) {
	eachWay(t, func(t *testing.T, c *redis.Client) {
		sub := c.Subscribe(background, "news")
		defer sub.Close()
		must[any](t)(sub.Receive(background))
		for i := range 100 {
			n := must[any](t)(c.Eval(background, `return redis.call('PUBLISH', 'news', ARGV[1])`, nil, i).Result())
			if n != int64(1) {
				t.Fatalf("message %d reached %v subscribers", i, n)
			}
		}
		for i := range 100 {
			if m := must[*redis.Message](t)(sub.ReceiveMessage(background)); m.Payload != fmt.Sprint(i) {
				t.Fatalf("message %d is %q", i, m.Payload)
			}
		}
	})
}

// TestDifferencesFromRedis pins what the package comment says is lacking: when
// a newer miniredis makes one of these fail, the comment is to be corrected.
func TestDifferencesFromRedis(t *testing.T) {
	c := overTCP(t, start(t, Config{}))
	for _, command := range [][]any{
		{"INFO", "replication"}, {"INFO", "persistence"},
		{"CONFIG", "GET", "maxmemory-policy"}, {"ROLE"}, {"CLIENT", "ID"},
	} {
		if v, err := c.Do(background, command...).Result(); err == nil {
			t.Errorf("%v is known by now: %v", command, v)
		}
	}
	for _, tt := range []struct{ script, want string }{
		{`return tostring(1764590402000311)`, "1764590402000311"}, // Redis: 1.7645904020003e+15
		{`return 'x' .. 1764590402000311`, "x1764590402000311"},
		{`return type(rawget(_G, 'bit'))`, "nil"},
		{`return type(rawget(_G, 'struct'))`, "nil"},
		{`return type(rawget(_G, 'cmsgpack'))`, "nil"},
	} {
		if v := must[any](t)(c.Eval(background, tt.script, nil).Result()); fmt.Sprint(v) != tt.want {
			t.Errorf("%s: %v", tt.script, v)
		}
	}
	for section, want := range map[string]string{"server": "redis_mode:embedded", "SERVER": "redis_mode:embedded", "clients": "connected_clients:1"} {
		if v := must[string](t)(c.Info(background, section).Result()); !strings.Contains(v, "\n"+want+"\r\n") {
			t.Errorf("INFO %s: %q", section, v)
		}
	}
	if n := must[int64](t)(c.Wait(background, 1, 0).Result()); n != 0 {
		t.Errorf("WAIT: %d", n)
	}
}
