package redis

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

// settable is a Redis whose clock can be set: a process of redis-server with a library of ours before the system's.
type settable struct {
	*harness.RedisServer
	file  string
	steps []step
}

// step is one time that a clock was set.
type step struct {
	mono         int64     // before it was set, by the machine's monotonic clock, in microseconds
	before, from time.Time // the time that it showed, and the instant from which it went on
}

// settableProgram makes servers whose clock reads a file.
type settableProgram struct {
	harness.RedisProgram
	library, file string
}

func (s settableProgram) Create(args []string) (harness.RedisInstance, error) {
	instance, err := s.RedisProgram.Create(args)
	if err == nil {
		instance.(*harness.RedisProcess).Env = []string{"LD_PRELOAD=" + s.library, "CLOCK_OFFSET_FILE=" + s.file}
	}
	return instance, err
}

func startSettable(t *testing.T) *settable {
	t.Helper()
	dir := t.TempDir()
	library, file := filepath.Join(dir, "clock.so"), filepath.Join(dir, "offset")
	cmd := exec.Command("cc", "-shared", "-fPIC", "-O2", "-Wall", "-o", library, "testdata/clock/clock.c")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("setting the clock of a Redis takes a C compiler (apt-get install gcc libc6-dev): %s: %v\n%s", cmd, err, out)
	}
	s := &settable{RedisServer: harness.StartFrom(t, settableProgram{harness.MustProgram(t), library, file}, harness.Persistent), file: file}
	s.set(t, 0)
	return s
}

// set has the clock show another time than that of the machine.
func (s *settable) set(t *testing.T, offset time.Duration) {
	t.Helper()
	st := step{mono: harness.Monotonic(t), before: harness.RedisTime(t, s.Client)}
	harness.Must(t, os.WriteFile(s.file+".new", fmt.Append(nil, offset.Milliseconds()), 0o600))
	st.from = time.Now().Add(offset) // its machine is this one
	harness.Must(t, os.Rename(s.file+".new", s.file))
	if off := time.Until(harness.RedisTime(t, s.Client)) - offset; off.Abs() > harness.Slack {
		t.Fatalf("the clock of Redis is %v off, want %v", off+offset, offset)
	}
	s.steps = append(s.steps, st)
}

// Steps of Redis' clock make no tick run twice (P1), early by that clock (P2), or beside another run (P3), and tokens
// grow (P4). The test sets it back and forth by two seconds while jobs run, and then back by more than a minute. An
// instant that the clock has shown less than a minute too early stays decided; after a greater step the clock passes
// instants once more, and their ticks are due once more. The leases are long enough for the steps forward: that is
// one of our assumptions.
// Promise: P1, P2, P3, P4
func TestRedisClockIsSet(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := startSettable(t)
	c := harness.NewClusterOn(t, s.RedisServer, `
[defaults]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
start_deadline = "20s"
lease = "20s"

[jobs.a]
[jobs.b]

[jobs.long]
command = 'exec "$SCRIBE" -for 22s -beat 50ms'
`)
	replicas := c.StartAll(t, 5)
	long := c.AwaitTick(t, harness.Soon, "long", 0)
	s.awaitRuns(t, c)
	for _, offset := range []time.Duration{-2 * time.Second, 0, 2 * time.Second, 0, -90 * time.Second} {
		s.set(t, offset)
		s.awaitRuns(t, c)
	}
	c.Await(t, harness.StartTimeout, "long", "good end", func(l harness.Line) bool { return l.RunID == long.RunID && l.Event == "end" })
	harness.StopAll(t, replicas)

	harness.CheckAlone(t, c.Lines(t, "long"))
	for _, job := range []string{"a", "b"} {
		s.check(t, c.Lines(t, job))
	}
}

// awaitRuns waits until the clock has passed whatever it showed before a small step, and jobs run on.
func (s *settable) awaitRuns(t *testing.T, c *harness.Cluster) {
	t.Helper()
	from := harness.RedisTime(t, s.Client)
	if n := len(s.steps); n > 0 {
		if before := s.steps[n-1].before; before.Sub(from) < time.Minute && before.After(from) {
			from = before
		}
	}
	for _, job := range []string{"a", "b"} {
		c.Await(t, harness.StartTimeout, job, "run after "+from.Format(time.TimeOnly), func(l harness.Line) bool {
			return l.Event == "start" && l.Tick > from.Unix()+1 && l.At().Sub(from).Abs() < harness.StartTimeout
		})
	}
}

// inFlight finds the step back during which a run was on its way: its tick was due before.
func (s *settable) inFlight(l harness.Line) *step {
	const way = 5 * time.Second
	i := slices.IndexFunc(s.steps, func(st step) bool {
		return st.mono <= l.Mono && l.Mono < st.mono+way.Microseconds() && l.Tick <= st.before.Unix() && st.from.Before(st.before)
	})
	if i < 0 {
		return nil
	}
	return &s.steps[i]
}

// check judges the runs of one job, of which one may be alive.
func (s *settable) check(t *testing.T, lines []harness.Line) {
	t.Helper()
	harness.CheckAlone(t, lines)
	big := s.steps[len(s.steps)-1]
	var once, again []harness.Line // before the big step, and after
	var last int64
	for _, l := range harness.Starts(lines) {
		if l.Token <= last {
			t.Errorf("the token did not grow: %v", l)
		}
		last = l.Token
		early := l.At().Before(time.Unix(l.Tick, 0))
		if early && s.inFlight(l) == nil {
			t.Errorf("%v early: %v", time.Unix(l.Tick, 0).Sub(l.At()), l)
		}
		if l.Mono < big.mono || early {
			once = append(once, l)
			continue
		}
		again = append(again, l)
		if l.Tick <= big.from.Unix() {
			t.Errorf("the clock was set to %v, and a tick of before that ran: %v", big.from, l)
		}
	}
	harness.CheckOnce(t, once, 1)
	harness.CheckOnce(t, again, 1)
	t.Logf("%d runs, %d of them after the step by more than a minute", len(once)+len(again), len(again))
}
