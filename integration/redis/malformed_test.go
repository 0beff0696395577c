package redis

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/locking"
)

// Of requests that travel as one command to a Redis whose memory is full, each gets its own answer. Such a Redis
// refuses writes, and clients that read errors among the replies of an array lose count of the replies after them.
func TestFullRedisMixesUpNoReplies(t *testing.T) {
	t.Parallel()
	server := harness.StartRedis(t, harness.RedisOpts{})
	one, two := locksOn(t, harness.ClientOptions(server.Instance.Addr())), locksOn(t, harness.ClientOptions(server.Instance.Addr()))
	held := []lease.Request{{Lock: "victim"}, {Lock: "again", ID: "same"}}
	for _, a := range one.Engine().AcquireAll(t.Context(), held) {
		if a.Verdict != lease.Granted {
			t.Fatal(a.Verdict, a.Err)
		}
	}
	harness.Must(t, server.Client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	for _, first := range []lease.Request{{Lock: "new"}, {Lock: "again", ID: "same"}} {
		requests := []lease.Request{first} // a command of fifty, and one of its own for the last
		for i := range 49 {
			requests = append(requests, lease.Request{Lock: fmt.Sprint("other", i)})
		}
		answers := two.Engine().AcquireAll(t.Context(), append(requests, lease.Request{Lock: "victim"}))
		if a := answers[50]; a.Verdict != lease.Held {
			t.Errorf("%s first: the lock of another client: %q (%v)", first.Lock, a.Verdict, a.Err)
		}
		if a := answers[0]; first.ID != "" && a.Verdict != lease.Granted {
			t.Errorf("asked for again: %q (%v)", a.Verdict, a.Err)
		}
		for i, a := range answers[1:50] {
			if a.Verdict != lease.Unknown || !errors.Is(a.Err, locking.ErrUnknown) || !redis.HasErrorPrefix(a.Err, "OOM") {
				t.Errorf("%s first: request %d: %q (%v)", first.Lock, i+1, a.Verdict, a.Err)
			}
		}
	}
}

// A user without rights to the keys of one lock is refused only that lock.
func TestForbiddenLockIsRefusedAlone(t *testing.T) {
	t.Parallel()
	server := harness.StartRedis(t, harness.RedisOpts{})
	harness.Must(t, server.Client.Do(t.Context(), "ACL", "SETUSER", "clerk", "on", ">secret", "+@all", "&*", "~locking:{a}*", "~locking:{b}*").Err())
	o := harness.ClientOptions(server.Instance.Addr())
	o.Username, o.Password = "clerk", "secret"
	answers := locksOn(t, o).Engine().AcquireAll(t.Context(), []lease.Request{{Lock: "a"}, {Lock: "forbidden"}, {Lock: "b"}})
	for i, want := range []lease.Verdict{lease.Granted, lease.Unknown, lease.Granted} {
		if answers[i].Verdict != want {
			t.Errorf("request %d: %q (%v), want %q", i, answers[i].Verdict, answers[i].Err, want)
		}
	}
	if !redis.HasErrorPrefix(answers[1].Err, "NOPERM") {
		t.Error(answers[1].Err)
	}
}

func locksOn(t *testing.T, o *redis.Options) *locking.Client {
	t.Helper()
	rdb := redis.NewClient(o)
	c, err := locking.New(locking.Config{Redis: rdb, Timeout: 10 * time.Second})
	harness.Must(t, err)
	t.Cleanup(func() {
		_ = c.Close()
		_ = rdb.Close()
	})
	return c
}

// garbled are replies that no Redis sends: each of them ends a client that takes them as they are, or may.
var garbled = []string{
	"$9223372036854775807\r\n", "$1000000000000\r\n", "*9223372036854775807\r\n", "*2000000000\r\n", "%4611686018427387904\r\n", "*-7\r\n", "$-9\r\n",
	">0\r\n", "*0\r\n", ">1\r\n:1\r\n", "*1\r\n:1\r\n", "*3\r\n$7\r\nmessage\r\n:1\r\n:2\r\n", "*2\r\n$9\r\nsubscribe\r\n:1\r\n", "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n$1\r\nb\r\n",
	"*1\r\n$4\r\npong\r\n", "|1\r\n+a\r\n+b\r\n", "|9999999\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n", "\r\n", "\x00\xff\xfe\r\n", "(99\r\n", ":x\r\n", "%1\r\n*0\r\n+a\r\n",
	"*7\r\n$7\r\ngranted\r\n:-1\r\n:9223372036854775807\r\n:8000000000000000\r\n:-9\r\n$0\r\n\r\n:0\r\n", "*7\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n", "*2\r\n$1\r\na\r\n",
	strings.Repeat("*1\r\n", 100_000), strings.Repeat("|1\r\n", 100_000), "+" + strings.Repeat("x", 200_000),
}

// garbler puts them in the place of replies while it is on: ten in a burst, then as many good ones as a replica needs to begin anew. A replica that hears
// nothing else asks every ten seconds only.
type garbler struct {
	on     atomic.Bool
	done   atomic.Int64
	mu     sync.Mutex
	random *rand.Rand
	good   int // so many more stay as they are
}

func (g *garbler) edit(reply []byte) []byte {
	if !g.on.Load() || len(reply) == 0 {
		return reply
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.good > 0 {
		g.good--
		return reply
	}
	if g.random.IntN(3) > 0 {
		return reply
	}
	if g.done.Add(1)%10 == 0 {
		g.good = 40
	}
	return append([]byte(garbled[g.random.IntN(len(garbled))]), reply...)
}

// A replica survives malformed replies on every connection, and works again with the first well-formed ones. Three
// replicas get them, and a fourth with a clean link misses no tick meanwhile.
// Promise: damage
func TestMalformedReplies(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c := harness.NewCluster(t, `
[defaults]
lease = "5s"
[jobs.quick]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
[jobs.other]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
overlap = "queue"
`)
	g := &garbler{random: rand.New(rand.NewPCG(20, 1))}
	p := harness.StartProxy(t, c.Client.Options().Addr, nil, g.edit)
	replicas := []*harness.Replica{c.Start(t, "clean")}
	for i := range 3 {
		replicas = append(replicas, c.StartAt(t, fmt.Sprintf("r%d", i+1), p.URL))
	}
	for _, r := range replicas {
		r.WaitLog(t, harness.Soon, "announcement", harness.Announced)
	}
	c.AwaitTick(t, harness.Soon, "quick", 0)
	g.on.Store(true)
	p.Drop() // so that connections are made anew, too
	harness.Eventually(t, 2*harness.StartTimeout, "malformed replies", func() bool { return g.done.Load() >= 150 })
	harness.AwaitTime(t, c.Client, harness.RedisTime(t, c.Client).Add(5*time.Second))
	g.on.Store(false)
	for _, r := range replicas {
		if r.Ended() {
			t.Fatalf("%s has ended: %s", r.Name, strings.Join(r.Log(), "\n"))
		}
	}
	last := harness.RedisTime(t, c.Client).Unix() + 3
	for _, job := range []string{"quick", "other"} {
		c.AwaitTick(t, harness.StartTimeout, job, last)
	}
	replicas[0].Term(t) // the others go on by themselves
	replicas[0].WantDrained(t)
	after := harness.RedisTime(t, c.Client).Unix() + 2
	for _, job := range []string{"quick", "other"} {
		c.AwaitTick(t, harness.StartTimeout, job, after)
	}
	harness.StopAll(t, replicas[1:])
	runs := harness.Starts(c.Lines(t, ""))
	harness.CheckOnce(t, runs, 1)
	harness.CheckNotEarly(t, runs)
	c.CheckTokensGrow(t, runs)
}
