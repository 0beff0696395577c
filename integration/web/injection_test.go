package web

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

// injections are writes of a foreign client with write access to Redis: into every kind of key and every channel of docs/redis-keys.md.
type injector struct {
	*harness.Cluster
	t         *testing.T
	random    *rand.Rand
	published []string // the keys of the configuration, which replicas renew
}

// pick is one of some.
func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// junk is a number out of range, another type, text, or bytes.
func (i *injector) junk() string {
	switch i.random.IntN(8) {
	case 0:
		return fmt.Sprint(pick(i.random, int64(-1), 0, 300_000_000, 1<<53-1, 1<<53, 1<<62, -1<<63))
	case 1:
		return pick(i.random, "nan", "inf", "-inf", "1e308", "1.5", "0x10", "", " ", "null", "{}", "[]", `{"id":1}`, "\n\n\n\n\n\n\n\n", "!x", "!9007199254740991,1,0,skipped,x")
	case 2:
		b := make([]byte, i.random.IntN(200))
		for n := range b {
			b[n] = byte(i.random.Uint32())
		}
		return string(b)
	case 3:
		return strings.Repeat(pick(i.random, "1 done granted;", "0 9999999999999999;", "x", "9 9 9;", "\t", "\n"), 1+i.random.IntN(5000))
	case 4:
		return fmt.Sprintf("id\nowner\n%d\n%d\n%d\n%d\ntrigger\nmemo", i.number(), i.number(), i.number(), i.number())
	case 5:
		return fmt.Sprintf("%d id\nowner\n%d\n%d\n\n1\n\n", i.number(), i.number(), i.number())
	case 6:
		return fmt.Sprintf("%d %s %d", i.number(), pick(i.random, "done", "part", "open", "odd"), i.number())
	}
	return fmt.Sprint(time.Now().UnixMicro() + i.random.Int64N(2e15) - 1e15)
}

func (i *injector) number() int64 {
	return pick(i.random, 0, 1, -1, 1000, 1001, 1<<31, 1<<53, time.Now().UnixMicro(), time.Now().Unix(), i.random.Int64())
}

// field is one that some key has, or one that none has.
func (i *injector) field() string {
	n := pick(i.random, "0", "0", "1", "999", "1000", "99999999999", "x", "ID")
	return pick(i.random, "floor", "longest", "closed", "low", "last", "by", "digest", "since", "digest2", "since2", "limit", "permanent", "used", "delay", "delayed", "paused",
		"outcomes", "followers", "settled", "came", "sync", "r"+n, "t"+n, "e"+n, "s"+n, "o"+n, "i"+n, "a"+n, "w"+n, fmt.Sprint(time.Now().Unix()), i.junk(), "victim", "e|x", "r|x")
}

// key is one of each kind, none of which the other jobs use.
func (i *injector) key() string {
	if i.random.IntN(20) == 0 {
		return pick(i.random, i.published...)
	}
	job := pick(i.random, "{victim}", "{child}", "{slots}")
	return "cronclave:" + i.Namespace + ":" + pick(i.random, job+":job", job+":job", job+":job", job+":job", job+":job:ledger", job+":job:orphans", job+":job:dead:x",
		job+":runs", job+":records", job+":output", job+":followed", job+":live:x", "{leader}:leader", "{leader}:leader:orphans", "{leader}:leader:queue", "{res}:fence",
		"jobs", "gone", "history", "digests:x", "replicas", "replica:x", "requests", "request:x", "request:x:answer", "format", "epoch", "quorum")
}

// inject does one thing.
func (i *injector) inject(ctx context.Context) {
	key, c := i.key(), i.Client
	if i.random.IntN(4) == 0 && !strings.HasSuffix(key, ":jobs") {
		c.Del(ctx, key)
	}
	switch i.random.IntN(10) {
	case 0:
		c.Set(ctx, key, i.junk(), time.Duration(i.random.IntN(2))*time.Minute)
	case 1:
		c.ZAdd(ctx, key, redis.Z{Score: float64(i.number()), Member: i.junk()})
	case 2:
		for range 50 {
			c.HSet(ctx, key, i.field(), i.junk())
		}
	case 3:
		c.Publish(ctx, "cronclave:"+i.Namespace+":"+pick(i.random, "granted", "asked"), i.message())
	case 4:
		c.LPush(ctx, key, i.junk())
	default:
		c.HSet(ctx, key, i.field(), i.junk())
	}
}

// message returns a message that another client may publish.
func (i *injector) message() string {
	lock := pick(i.random, "{victim}:job", "{child}:job", fmt.Sprint("invented-", i.random.Int()))
	lines := ""
	for range 1 + i.random.IntN(2000) {
		lines += pick(i.random, i.junk()[:0]+"released\t"+lock+"\n", "stop\tx\ty\n",
			fmt.Sprintf("%s\t%d\t%d\t%d\t%d\t%d\t%d\ttrue\towner\t%s\n", lock, time.Now().Unix(), i.number(), i.number(), i.number(), i.number(), i.number(), pick(i.random, "", "!x", "1 1 done x")))
	}
	return lines
}

// rss is the memory of a process in MiB.
func rss(t *testing.T, pid int) (mib int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0 // not on this system
	}
	var size, pages int
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize() >> 20
}

// An injection into keys and channels stops only the job whose data it damages. The test makes 1,000 random ones
// while three replicas run jobs: the log names each damage, and the other jobs have all their ticks.
// Promise: damage
func TestInjectionsStopNothingElse(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := harness.StartRedis(t, harness.RedisOpts{Args: []string{"--slowlog-log-slower-than", "3000000"}})
	c := harness.NewClusterOn(t, s, `
[defaults]
lease = "5s"
[jobs.victim]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
recover = true
[jobs.child]
command = 'exec "$SCRIBE"'
after = ["victim"]
[jobs.slots]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
parallel = 3
per_tick = 1
overlap = "queue"
[jobs.a]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
[jobs.b]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
overlap = "queue"
`)
	replicas := c.StartAll(t, 3)
	first := int64(0)
	for _, job := range []string{"a", "b", "victim", "slots"} {
		first = max(first, c.AwaitTick(t, harness.Soon, job, 0).Tick)
	}
	seed := uint64(20)
	i := &injector{Cluster: c, t: t, random: rand.New(rand.NewPCG(seed, 1)), published: c.Published(t)}
	pace := time.NewTicker(25 * time.Millisecond)
	defer pace.Stop()
	for range 1000 {
		i.inject(t.Context())
		<-pace.C
	}
	last := harness.RedisTime(t, c.Client).Unix() + 2
	for _, job := range []string{"a", "b"} {
		c.AwaitTick(t, harness.StartTimeout, job, last)
		c.WantPace(t, job, first, last)
	}
	i.wantNamed(replicas)
	for _, r := range replicas {
		if r.Ended() {
			t.Fatalf("%s has ended", r.Name)
		}
		if mib := rss(t, r.PID); mib > 600 {
			t.Errorf("%s takes %d MiB", r.Name, mib)
		}
		for _, line := range r.Log() {
			if strings.Contains(line, "Redis does not answer") && strings.Contains(line, "damaged data") {
				t.Errorf("%s takes damage for silence: %.500s", r.Name, line)
			}
			if strings.Contains(line, "BUSY") || strings.Contains(line, "user_script:") && !strings.Contains(line, "CORRUPT") && !strings.Contains(line, "WRONGTYPE") {
				t.Errorf("%s: %.500s", r.Name, line)
				break
			}
		}
	}
	if slow := c.Client.SlowLogGet(t.Context(), 5).Val(); len(slow) > 0 {
		t.Errorf("Redis was busy: %+v", slow[0])
	}
	harness.StopAll(t, replicas)
	runs := append(harness.Starts(c.Lines(t, "a")), harness.Starts(c.Lines(t, "b"))...)
	harness.CheckOnce(t, runs, 1)
	harness.CheckNotEarly(t, runs)
	c.CheckTokensGrow(t, runs)
}

// wantNamed demands that a replica logs the damage, and its job.
func (i *injector) wantNamed(replicas []*harness.Replica) {
	i.t.Helper()
	harness.Eventually(i.t, harness.Soon, "named error", func() bool {
		for _, r := range replicas {
			for _, e := range r.LogEntries() {
				said, _ := e["error"].(string)
				if strings.HasPrefix(e.Message(), "damaged job data in Redis") && strings.Contains(said, "cronclave:"+i.Namespace+":{"+fmt.Sprint(e["job"])+"}:job") {
					return true
				}
			}
		}
		return false
	})
}
