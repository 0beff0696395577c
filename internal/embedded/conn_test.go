package embedded

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// faulty are requests that ended the process, or might, and some that are none.
var faulty = []string{
	"*0\r\n", "*-1\r\n", "*9223372036854775807\r\n", "*1048577\r\n", "*1\r\n$9223372036854775805\r\n", "*1\r\n$67108865\r\n", "*1\r\n$-1\r\n", "*1\r\n$-9\r\n", "*2\r\n$3\r\nGET\r\n$67108862\r\n",
	"*1\r\n*1\r\n", "$4\r\nPING\r\n", "*1\r\n+PING\r\n", "PING\r\n", "\r\n", "\n", "*\r\n", "*1\n", "*x\r\n", strings.Repeat("x", 100), "*1" + strings.Repeat("0", 100),
}

// TestRequestsWithoutACommand: such a request ends its connection, on a view too, and no more than that.
func TestRequestsWithoutACommand(t *testing.T) {
	s := start(t, Config{})
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	s.ServeView(View{Listener: listener, Reads: []string{"PING"}})
	client := overTCP(t, s)
	for network, address := range map[string]string{"tcp": s.Addr(), "unix": listener.Addr().String()} {
		for _, text := range []string{"*0\r\n", "*-1\r\n", "*1\r\n$9223372036854775805\r\n", "*1\r\n$4\r\nPING\r\n*0\r\n"} {
			conn, err := net.Dial(network, address)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, text); err != nil {
				t.Error(err)
			}
			_, _ = io.Copy(io.Discard, conn) // until the server closes it
			_ = conn.Close()
		}
	}
	must[string](t)(client.Ping(background).Result())
}

func TestRequests(t *testing.T) {
	feed := func(text string, seed uint64) error {
		var r requests
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
		for len(text) > 0 {
			n := min(len(text), 1+random.IntN(1<<random.IntN(20)))
			if err := r.parseBytes([]byte(text[:n])); err != nil {
				return err
			}
			text = text[n:]
		}
		return nil
	}
	for seed := range uint64(20) {
		for _, text := range []string{"*1\r\n$4\r\nPING\r\n", "*3\r\n$3\r\nSET\r\n$0\r\n\r\n$4\r\n*0\r\n\r\n*1\r\n$4\r\nPING\r\n", "*1\r\n$100000\r\n" + strings.Repeat("\n", 100_000) + "\r\n*1\r\n"} {
			if err := feed(text, seed); err != nil {
				t.Errorf("%.40q: %v", text, err)
			}
		}
		for _, text := range faulty {
			if err := feed(text, seed); !errors.Is(err, errNoRequest) {
				t.Errorf("%.40q: %v", text, err)
			}
		}
	}
}

// A key with a TTL is there a millisecond before its expiry and gone at the instant of it, for commands, scripts and transactions.
func TestExpiryByTheRunningClock(t *testing.T) {
	views := map[string]func(c *redis.Client) (string, error){
		"command": func(c *redis.Client) (string, error) {
			n, err := c.Exists(background, "k").Result()
			return fmt.Sprint(n), err
		},
		"script": func(c *redis.Client) (string, error) {
			v, err := c.Eval(background, `return redis.call('EXISTS', KEYS[1])`, []string{"k"}).Result()
			return fmt.Sprint(v), err
		},
		"transaction": func(c *redis.Client) (string, error) {
			cmds, err := c.TxPipelined(background, func(p redis.Pipeliner) error {
				return p.Exists(background, "k").Err()
			})
			return fmt.Sprint(cmds[0].(*redis.IntCmd).Val()), err
		},
	}
	writes := map[string]func(c *redis.Client) error{
		"SET PX": func(c *redis.Client) error { return c.Set(background, "k", "v", 30*time.Second).Err() },
		"PEXPIRE in a script": func(c *redis.Client) error {
			return c.Eval(background, `redis.call('HSET', KEYS[1], 'f', 'v') return redis.call('PEXPIRE', KEYS[1], 30000)`, []string{"k"}).Err()
		},
		"PEXPIREAT by TIME in a script": func(c *redis.Client) error {
			return c.Eval(background, `local t = redis.call('TIME')
				redis.call('SET', KEYS[1], 'v')
				return redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000) + 30000))`, []string{"k"}).Err()
		},
	}
	for written, write := range writes {
		for seen, see := range views {
			t.Run(written+" seen by "+seen, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, err := Start(Config{DialOnly: true})
					if err != nil {
						t.Fatal(err)
					}
					defer s.Close()
					c := inMemory(t, s)
					defer c.Close()
					if err := write(c); err != nil {
						t.Fatal(err)
					}
					pass(30*time.Second - time.Millisecond)
					if got := must[string](t)(see(c)); got != "1" {
						t.Error("gone before its time")
					}
					pass(time.Millisecond)
					if got := must[string](t)(see(c)); got != "0" {
						t.Error("there after its time")
					}
				})
			})
		}
	}
}

// TestScriptSeesOneInstant runs a script for longer than the TTL of a key that
// it reads. In Redis the time of a script is that of its begin.
func TestScriptSeesOneInstant(t *testing.T) {
	c := overTCP(t, start(t, Config{}))
	got := must[any](t)(c.Eval(background, `
		redis.call('SET', KEYS[1], 'v', 'PX', 1)
		local a = redis.call('TIME')
		local s = 0
		for i = 1, 1000000 do s = s + i end
		local b = redis.call('TIME')
		return {redis.call('EXISTS', KEYS[1]), a[1] == b[1] and a[2] == b[2]}`, []string{"k"}).Result())
	if fmt.Sprint(got) != "[1 1]" {
		t.Fatalf("[key there, time stood] = %v", got)
	}
}

// TestScriptsAndCommandsTogether lets many clients run scripts and commands at
// once: a script's calls and another client's command must not wait for each
// other's locks.
func TestScriptsAndCommandsTogether(t *testing.T) {
	s := start(t, Config{})
	var clients sync.WaitGroup
	for i := range 8 {
		c := overTCP(t, s)
		clients.Go(func() {
			for j := range 100 {
				key := fmt.Sprintf("%d-%d", i, j)
				err := c.Eval(background, `for i = 1, 5 do redis.call('SET', KEYS[1], i, 'PX', 1) end return 1`, []string{key}).Err()
				if err == nil {
					err = c.Set(background, key, 1, time.Millisecond).Err()
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	clients.Wait()
}

// TestTimeNeverGoesBack reads TIME from several connections in turn.
func TestTimeNeverGoesBack(t *testing.T) {
	s := start(t, Config{})
	clients := []*redis.Client{overTCP(t, s), inMemory(t, s), overTCP(t, s)}
	var last time.Time
	for i := range 300 {
		now := must[time.Time](t)(clients[i%len(clients)].Time(background).Result())
		if now.Before(last) {
			t.Fatalf("TIME %v after %v", now, last)
		}
		last = now
	}
}

// TestClientsThatLeaveAreForgotten keeps the memory of a long-lived server
// independent of how many connections there were.
func TestClientsThatLeaveAreForgotten(t *testing.T) {
	m := start(t, Config{DialOnly: true})
	clock := newClock(m.redis)
	m.peers.SetPreHook(clock.beforeCommand)
	for range 20 {
		c := inMemory(t, m)
		must[string](t)(c.Ping(background).Result())
		_ = c.Close()
	}
	m.Close()
	if n := len(clock.clients); n != 0 {
		t.Fatalf("%d clients known after all left", n)
	}
}

// A subscriber that leaves its messages unread, far beyond the kernel's buffers, holds up no other client.
func TestClientThatDoesNotRead(t *testing.T) {
	s := start(t, Config{})
	stuck, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Close()
	if _, err := stuck.Write([]byte("*2\r\n$9\r\nSUBSCRIBE\r\n$4\r\nnews\r\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := stuck.Read(make([]byte, 1)); err != nil { // it is subscribed
		t.Fatal(err)
	}
	c := overTCP(t, s)
	message := strings.Repeat("x", 1<<20)
	reached := 0
	for range 2 * maxQueued >> 20 {
		reached += int(must[int64](t)(c.Publish(background, "news", message).Result()))
	}
	if reached < maxQueued>>20 {
		t.Errorf("only %d messages were queued", reached)
	}
	if n := must[map[string]int64](t)(c.PubSubNumSub(background, "news").Result())["news"]; n != 0 {
		t.Error("a client that does not read is still subscribed")
	}
}

// BenchmarkScript measures a script of twenty calls beside a growing number of keys; its cost grows with them, unlike in Redis.
func BenchmarkScript(b *testing.B) {
	for _, keys := range []int{10, 1_000, 10_000} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) {
			c := inMemory(b, start(b, Config{DialOnly: true}))
			fill := `for i = 1, tonumber(ARGV[1]) do redis.call('SET', 'key-' .. i, 'v', 'PX', 3600000) end return 1`
			if err := c.Eval(background, fill, nil, keys).Err(); err != nil {
				b.Fatal(err)
			}
			script := redis.NewScript(`for i = 1, 20 do redis.call('GET', KEYS[1]) end return 1`)
			for b.Loop() {
				if err := script.Run(background, c, []string{"key-1"}).Err(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
