package process

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
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
	testtier.Slow(t)
	t.Parallel()
	for _, tc := range []struct {
		name string
		pipe func(t *testing.T) *os.File
	}{
		{"full pipe", func(t *testing.T) *os.File { t.Helper(); _, w := fullPipe(t); return w }},
		{"full pipe that does not block", func(t *testing.T) *os.File {
			t.Helper()
			_, w := fullPipe(t)
			harness.Must(t, unix.SetNonblock(int(w.Fd()), true))
			return w
		}},
		{"dead reader", func(t *testing.T) *os.File {
			t.Helper()
			r, w := fullPipe(t)
			harness.Must(t, r.Close())
			return w
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := harness.NewCluster(t, talkative)
			r := c.StartWriting(t, "r1", tc.pipe(t))
			c.WantTicksInTime(t)
			r.Term(t)
			r.WantDrained(t)
			c.AwaitRun(t, harness.Soon, "long", "good end", func(r harness.PastRun) bool { return r.Outcome == "ok" })
		})
	}
}

// A log whose reader returns goes on, and says how many lines are missing in their place.
func TestReaderThatReturns(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	c := harness.NewCluster(t, talkative)
	read, write := fullPipe(t)
	r := c.StartWriting(t, "r1", write)
	harness.Must(t, write.Close()) // the replica has its own
	c.WantTicksInTime(t)

	log := &harness.LineLog{}
	done := make(chan error, 1)
	go func() { _, err := io.Copy(log, read); done <- err }()
	harness.Eventually(t, harness.Soon, "log that goes on", func() bool {
		return slices.ContainsFunc(harness.LogEntries(log.Lines()), harness.MessageHas("log lines dropped"))
	})
	r.Term(t)
	r.WantDrained(t)
	harness.Must(t, <-done)
	entries := harness.LogEntries(log.Lines())
	if !harness.Announced(entries[0]) || entries[len(entries)-1].Message() != "drained" {
		t.Errorf("the log has not what was queued, or not what came last: it begins with %v and ends with %v", entries[0], entries[len(entries)-1])
	}
	i := slices.IndexFunc(entries, harness.MessageHas("log lines dropped"))
	if n, _ := entries[i]["lines"].(json.Number); n == "" || n == "0" || entries[i]["level"] != "warn" {
		t.Errorf("the line for what was dropped is %v", entries[i])
	}
}

// Two SIGTERMs at once count as one, since some supervisors send two: the replica waits for its job.
func TestTwoSignalsAtOnceAreOne(t *testing.T) {
	t.Parallel()
	c := harness.NewCluster(t, `
[jobs.long]
schedule = "* * * * * *"
command = 'exec "$SCRIBE" -for 4s'
`)
	r := c.StartAll(t, 1)[0]
	first := c.AwaitTick(t, harness.Soon, "long", 0)
	r.Term(t)
	r.Signal(t, syscall.SIGINT)
	r.WantDrained(t)
	if !slices.ContainsFunc(c.Lines(t, "long"), func(l harness.Line) bool { return l.RunID == first.RunID && l.Event == "end" }) {
		t.Error("the replica ended before its job")
	}
	c.AwaitRun(t, harness.Soon, "long", "good end", func(r harness.PastRun) bool { return r.RunID == first.RunID && r.Outcome == "ok" })
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
	testtier.Slow(t)
	t.Parallel()
	t.Run("log", func(t *testing.T) {
		t.Parallel()
		c := harness.NewCluster(t, stubborn)
		_, w := fullPipe(t)
		r := c.StartWriting(t, "r1", w)
		c.WantEndAtSecondSignal(t, r, func() {})
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		s := harness.StartRedis(t, harness.RedisOpts{})
		c := harness.NewClusterOn(t, s, stubborn)
		r := c.StartAll(t, 1)[0]
		c.WantEndAtSecondSignal(t, r, s.Pause)
	})
}

// fullPipe is a pipe that takes no more.
func fullPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	var fds [2]int
	harness.Must(t, unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK))
	fd := fds[1]
	for {
		if _, err := unix.Write(fd, []byte("\n")); errors.Is(err, unix.EAGAIN) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	harness.Must(t, unix.SetNonblock(fd, false))
	r, w = os.NewFile(uintptr(fds[0]), "reader"), os.NewFile(uintptr(fd), "writer")
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}
