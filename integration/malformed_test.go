package integration

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

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
	slow(t)
	t.Parallel()
	c := newCluster(t, `
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
	p := startProxy(t, c.Client.Options().Addr, nil, g.edit)
	replicas := []*replica{c.start(t, "clean")}
	for i := range 3 {
		replicas = append(replicas, c.startAt(t, fmt.Sprintf("r%d", i+1), p.url))
	}
	for _, r := range replicas {
		r.WaitLog(t, soon, "announcement", announced)
	}
	c.awaitTick(t, soon, "quick", 0)
	g.on.Store(true)
	p.drop() // so that connections are made anew, too
	eventually(t, 2*startTimeout, "malformed replies", func() bool { return g.done.Load() >= 150 })
	awaitTime(t, c.Client, redisTime(t, c.Client).Add(5*time.Second))
	g.on.Store(false)
	for _, r := range replicas {
		if r.Ended() {
			t.Fatalf("%s has ended: %s", r.Name, strings.Join(r.Log(), "\n"))
		}
	}
	last := redisTime(t, c.Client).Unix() + 3
	for _, job := range []string{"quick", "other"} {
		c.awaitTick(t, startTimeout, job, last)
	}
	replicas[0].Term(t) // the others go on by themselves
	replicas[0].wantDrained(t)
	after := redisTime(t, c.Client).Unix() + 2
	for _, job := range []string{"quick", "other"} {
		c.awaitTick(t, startTimeout, job, after)
	}
	stopAll(t, replicas[1:])
	runs := starts(c.lines(t, ""))
	checkOnce(t, runs, 1)
	checkNotEarly(t, runs)
	c.checkTokensGrow(t, runs)
}
