package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// talkative has jobs of each second, one that prints more than a log may take, and one whose lease is renewed again and again.
const talkative = `
[defaults]
schedule = "* * * * * *"
start_deadline = "20s"

[jobs.tick]
command = 'exec "$SCRIBE"'
parallel = 6
per_tick = 1
per_replica = 6

[jobs.talk]
command = '"$SCRIBE"; yes "more than a reader takes" | head -n 20000; head -c 3000000 /dev/zero'

[jobs.long]
command = 'exec "$SCRIBE" -for 5s'
lease = "3s"
`

// A log that is not read does not stop a replica: each tick runs in time and once, leases are renewed, and a drain
// ends well. Its stdout and stderr are a full pipe, or one whose reader is dead.
func TestUnreadLogStopsNothing(t *testing.T) {
	slow(t)
	t.Parallel()
	for _, tc := range []struct {
		name string
		pipe func(t *testing.T) *os.File
	}{
		{"full pipe", func(t *testing.T) *os.File { t.Helper(); _, w := fullPipe(t); return w }},
		{"full pipe that does not block", func(t *testing.T) *os.File {
			t.Helper()
			_, w := fullPipe(t)
			must(t, unix.SetNonblock(int(w.Fd()), true))
			return w
		}},
		{"dead reader", func(t *testing.T) *os.File {
			t.Helper()
			r, w := fullPipe(t)
			must(t, r.Close())
			return w
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, talkative)
			r := c.startWriting(t, "r1", tc.pipe(t))
			c.wantTicksInTime(t)
			r.Term(t)
			r.wantDrained(t)
			c.awaitRun(t, soon, "long", "good end", func(r pastRun) bool { return r.Outcome == "ok" })
		})
	}
}

// wantTicksInTime demands that ten ticks of the talkative cluster run once and soon after they were due, and the runs of its slower jobs one by one.
func (c *cluster) wantTicksInTime(t *testing.T) {
	t.Helper()
	const ticks = 10
	first := c.awaitTick(t, startTimeout, "tick", 0).Tick
	c.awaitTick(t, startTimeout, "talk", first+1)
	c.awaitTick(t, startTimeout, "long", first+6) // the first one has been renewed
	c.awaitTick(t, startTimeout, "tick", first+ticks)
	for tick := first; tick <= first+ticks; tick++ {
		run := c.await(t, soon, "tick", fmt.Sprintf("run of tick %d itself", tick), func(l line) bool { return l.Event == "start" && l.Tick == tick })
		if late := run.At().Sub(time.Unix(tick, 0)); late > slack {
			t.Errorf("late by %v: %v", late, run)
		}
	}
	lines := c.lines(t, "")
	checkOnce(t, starts(lines), 1)
	checkNotEarly(t, starts(lines))
	slower := slices.DeleteFunc(lines, func(l line) bool { return l.Job == "tick" }) // of which runs may be beside each other
	c.checkTokensGrow(t, starts(slower))
	checkAlone(t, slower)
}

// A log whose reader returns goes on, and says how many lines are missing in their place.
func TestReaderThatReturns(t *testing.T) {
	slow(t)
	t.Parallel()
	c := newCluster(t, talkative)
	read, write := fullPipe(t)
	r := c.startWriting(t, "r1", write)
	must(t, write.Close()) // the replica has its own
	c.wantTicksInTime(t)

	log := &lineLog{}
	done := make(chan error, 1)
	go func() { _, err := io.Copy(log, read); done <- err }()
	eventually(t, soon, "log that goes on", func() bool {
		return slices.ContainsFunc(logEntries(log.lines()), message("log lines dropped"))
	})
	r.Term(t)
	r.wantDrained(t)
	must(t, <-done)
	entries := logEntries(log.lines())
	if !announced(entries[0]) || entries[len(entries)-1].Message() != "drained" {
		t.Errorf("the log has not what was queued, or not what came last: it begins with %v and ends with %v", entries[0], entries[len(entries)-1])
	}
	i := slices.IndexFunc(entries, message("log lines dropped"))
	if n, _ := entries[i]["lines"].(json.Number); n == "" || n == "0" || entries[i]["level"] != "warn" {
		t.Errorf("the line for what was dropped is %v", entries[i])
	}
}

// Two SIGTERMs at once count as one, since some supervisors send two: the replica waits for its job.
func TestTwoSignalsAtOnceAreOne(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `
[jobs.long]
schedule = "* * * * * *"
command = 'exec "$SCRIBE" -for 4s'
`)
	r := c.startAll(t, 1)[0]
	first := c.awaitTick(t, soon, "long", 0)
	r.Term(t)
	r.signal(t, syscall.SIGINT)
	r.wantDrained(t)
	if !slices.ContainsFunc(c.lines(t, "long"), func(l line) bool { return l.RunID == first.RunID && l.Event == "end" }) {
		t.Error("the replica ended before its job")
	}
	c.awaitRun(t, soon, "long", "good end", func(r pastRun) bool { return r.RunID == first.RunID && r.Outcome == "ok" })
}

// stubborn is a job that only SIGKILL ends, in a drain that waits for it.
const stubborn = `
[replica]
drain_timeout = "2m"

[jobs.stubborn]
schedule = "* * * * * *"
command = 'exec "$SCRIBE" -for 5m -beat 20ms -ignore-term -child'
kill_grace = "1m"
lease = "1m"
`

// A second signal stops at once a replica that waits for the reader of its log, or for Redis.
func TestSecondSignalEndsWhateverHangs(t *testing.T) {
	t.Parallel()
	t.Run("log", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t, stubborn)
		_, w := fullPipe(t)
		r := c.startWriting(t, "r1", w)
		c.wantEndAtSecondSignal(t, r, func() {})
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		s := startRedis(t, redisOpts{})
		c := newClusterOn(t, s, stubborn)
		r := c.startAll(t, 1)[0]
		c.wantEndAtSecondSignal(t, r, s.Pause)
	})
}

// wantEndAtSecondSignal demands that the second signal ends the replica and its job, once something hangs.
func (c *cluster) wantEndAtSecondSignal(t *testing.T, r *replica, hang func()) {
	t.Helper()
	const within = 4 * time.Second // a second is promised; calls to Redis that time out one after the other take longer than these
	first := c.awaitTick(t, soon, "stubborn", 0)
	c.await(t, soon, "stubborn", "child", func(l line) bool { return l.PID != first.PID })
	hang()
	r.Term(t)
	asked := time.Now()
	eventually(t, soon, "time between the signals", func() bool { return time.Since(asked) > 2*time.Second })
	if r.Ended() {
		t.Fatalf("the first signal ended it:\n%s", strings.Join(r.Log(), "\n"))
	}
	asked = time.Now()
	r.Term(t)
	r.Wait(t, soon)
	took := time.Since(asked)
	if took > within {
		t.Errorf("the second signal took %v, want a second", took)
	}
	eventually(t, slack, "end of the job", func() bool {
		return !slices.ContainsFunc(c.lines(t, ""), func(l line) bool { s := processState(l.PID); return s != "" && s != "Z" })
	})
	t.Logf("the replica ended %v after the second signal", took.Round(time.Millisecond))
}

// fullPipe is a pipe that takes no more.
func fullPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	var fds [2]int
	must(t, unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK))
	fd := fds[1]
	for {
		if _, err := unix.Write(fd, []byte("\n")); errors.Is(err, unix.EAGAIN) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	must(t, unix.SetNonblock(fd, false))
	r, w = os.NewFile(uintptr(fds[0]), "reader"), os.NewFile(uintptr(fd), "writer")
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}
