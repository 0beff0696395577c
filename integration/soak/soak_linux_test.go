package soak

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

// Five replicas keep all promises while one fault after the other befalls them, their links, their wardens and their
// Redis. The faults are those of faultKinds. Two replicas at least are up and connected at any time, except when the
// fault is that of Redis. No tick runs twice or early, no run beside more than may be, tokens grow, and each tick has
// an outcome (P1 to P4, P6), one that only a fault excuses if the tick did not run (P5); and nothing grows that
// should not (P9).
//
// By itself it is short, and each kind of fault comes once. CRONCLAVE_TEST_SOAK (`make soak`) says how long it lasts
// else: then there are fifty jobs, and a fault every ten seconds. CRONCLAVE_TEST_SEED repeats the faults of an
// earlier run.
// Promise: P1, P2, P3, P5, P6, P9
func TestSoak(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := newSoak(t)
	s.begin(t)
	if s.length == 0 {
		for _, i := range s.random.Perm(len(faultKinds)) {
			s.befall(t, faultKinds[i])
			s.lookAround(t)
		}
	}
	for end, next := s.from.Add(s.length), s.from; time.Now().Before(end); {
		next = later(next.Add(betweenFaults), time.Now())
		s.befall(t, s.drawKind())
		harness.Pass(t, next.Add(s.between(0, time.Second))) // when it is calm, and not always at the moment of a tick
		s.lookAround(t)
	}
	s.finish(t)
}

const (
	betweenFaults = 10 * time.Second
	soakLease     = 3 * time.Second
	soakDeadline  = 30 * time.Second // to start a tick
	soakRuns      = 200              // of each job that the history keeps
)

// soakJobs are the jobs of a soak: most of them of a millisecond, some that last longer than a second, or have two places.
const soakJobs = `
[history]
runs = %[2]d

[defaults]
schedule = "* * * * * *"
command = [%[1]q]
lease = "3s"
start_deadline = "30s"
`

// soakKind is a kind of job, of which there are several. Runs leave room between them for a backlog to get smaller: ticks that
// wait do not skip each other, nor do those that come due behind them.
type soakKind struct {
	name, keys        string
	every             int64 // seconds between ticks
	parallel, perTick int
	lasts             time.Duration // of a run, if that is worth mention
	few, many         int           // how many jobs: of the short soak, and of the long one
}

// %[1]q is the scribe's path: a shell would only cost time. The stubborn outlast their lease.
var soakKinds = []soakKind{
	{"quick", "", 1, 1, 1, 0, 4, 40},
	{"jittered", `jitter = "300ms"`, 1, 1, 1, 0, 1, 2},
	{"fan", "parallel = 2\nper_tick = 2", 1, 2, 2, 0, 1, 2},
	{"pair", "parallel = 2\nper_tick = 1\nkill_grace = \"500ms\"\ncommand = [%[1]q, \"-for\", \"1200ms\", \"-beat\", \"100ms\"]", 1, 2, 1, 1200 * time.Millisecond, 1, 4},
	{"stubborn", "schedule = \"*/6 * * * * *\"\nkill_grace = \"500ms\"\ncommand = [%[1]q, \"-for\", \"4s\", \"-beat\", \"50ms\", \"-ignore-term\"]", 6, 1, 1, 4 * time.Second, 1, 2},
}

// soak is one such test.
type soak struct {
	*harness.Cluster
	server *harness.RedisServer
	length time.Duration // 0 is the short one
	random *rand.Rand
	dir    string // the files that are kept when it fails
	kinds  map[string]soakKind
	seats  []*seat
	faults []mishap
	from   time.Time // ticks before it are not judged
	truth  truth
	past   record
	gauges gauges
}

// seat is a place for a replica, behind a link of its own. The replica in the first seat is never ended, so that
// growth shows there.
type seat struct {
	*harness.Replica
	name  string
	link  *harness.Proxy
	lives int
}

func newSoak(t *testing.T) *soak {
	t.Helper()
	s := &soak{random: harness.NewRandom(t), kinds: map[string]soakKind{}}
	if text := os.Getenv("CRONCLAVE_TEST_SOAK"); text != "" {
		var err error
		if s.length, err = time.ParseDuration(text); err != nil {
			t.Fatal("CRONCLAVE_TEST_SOAK:", err)
		}
	}
	s.server = harness.StartRedis(t, harness.RedisOpts{Persist: true})
	s.Cluster = harness.NewClusterOn(t, s.server, s.jobs(t))
	// The runtime of the long-lived replica counts goroutines by this; its jobs shall not. The environment is the last table.
	s.Config += "GODEBUG = \"\"\n"
	s.truth = truth{path: s.Chronicle.Path, names: map[string]string{}, last: map[string]harness.Line{}}
	s.past = record{}
	s.keep(t)
	return s
}

// jobs is the configuration.
func (s *soak) jobs(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	scribe := harness.Absolute(t, harness.Program(t, harness.ScribeProgram))
	fmt.Fprintf(&b, soakJobs, scribe, soakRuns)
	for _, k := range soakKinds {
		n := k.few
		if s.length > 0 {
			n = k.many
		}
		for i := range n {
			name := fmt.Sprintf("%s-%d", k.name, i+1)
			s.kinds[name] = k
			keys := k.keys
			if strings.Contains(keys, "%") {
				keys = fmt.Sprintf(keys, scribe)
			}
			fmt.Fprintf(&b, "\n[jobs.%s]\n%s\n", name, keys)
		}
	}
	return b.String()
}

// keep makes the directory that outlives a failure.
func (s *soak) keep(t *testing.T) {
	t.Helper()
	var err error
	if s.dir, err = os.MkdirTemp("", "cronclave-soak-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			harness.Must(t, os.RemoveAll(s.dir))
			return
		}
		if err := os.Rename(s.Chronicle.Path, filepath.Join(s.dir, "chronicle")); err != nil {
			t.Error(err)
		}
		t.Logf("faults, by the clock of Redis:\n%s", describe(s.faults))
		t.Logf("what the jobs wrote, and the log of each life of a replica: in %s", s.dir)
	})
}

// begin starts all replicas, and waits until each job runs.
func (s *soak) begin(t *testing.T) {
	t.Helper()
	for i := range 5 {
		at := &seat{name: fmt.Sprintf("r%d", i+1), link: harness.StartProxy(t, s.Client.Options().Addr, nil, nil)}
		s.seats = append(s.seats, at)
		s.revive(t, at)
	}
	s.awaitReady(t)
	for name := range s.kinds {
		s.from = later(s.from, time.Unix(s.AwaitTick(t, harness.StartTimeout, name, 0).Tick+1, 0))
	}
	s.from = later(s.from, time.Unix(time.Now().Unix()+1, 0))
}

// revive begins another life in a seat.
func (s *soak) revive(t *testing.T, at *seat, env ...string) {
	t.Helper()
	at.lives++
	if at == s.seats[0] {
		env = append(env, countGoroutines(min(s.sampleEvery(), 5*time.Second)))
	}
	at.Replica = harness.StartReplica(t, harness.ReplicaOpts{
		Name: at.name, Config: s.Config, Namespace: s.Namespace, RedisURL: at.link.URL, Env: append(env, harness.QuickExit),
		LogFile: filepath.Join(s.dir, fmt.Sprintf("%s-%04d.log", at.name, at.lives)),
	})
}

func (s *soak) awaitReady(t *testing.T) {
	t.Helper()
	for _, at := range s.seats {
		at.WaitLog(t, harness.StartTimeout, "announcement", harness.Announced)
	}
}

// lookAround saves the records that Redis will soon drop, when it is time for that.
func (s *soak) lookAround(t *testing.T) {
	t.Helper()
	s.truth.read(t)
	if now := time.Now(); now.Sub(s.gauges.latest()) >= s.sampleEvery() {
		s.gauges = append(s.gauges, measure(t, s.seats[0].PID, s.Client))
		s.readBack(t)
	}
}

// readBack adds the records of the history. On a busy machine Redis may be too slow to answer at the first time.
func (s *soak) readBack(t *testing.T) {
	t.Helper()
	var runs []harness.PastRun
	harness.Eventually(t, harness.StartTimeout, "answer of cronclave history", func() bool {
		c := s.Command(t, "history", "-n", "10000", "--json")
		if c.Code == 0 {
			c.Decode(t, &runs)
		}
		return c.Code == 0
	})
	s.past.take(runs)
}

// finish waits for the outcomes of all ticks, ends the replicas, and judges.
func (s *soak) finish(t *testing.T) {
	t.Helper()
	to := time.Unix(time.Now().Unix(), 0)
	overdue := to.Add(soakDeadline + harness.StartTimeout)
	a := &account{soak: s, to: to}
	harness.Eventually(t, time.Until(overdue), "outcome of any tick in the history", func() bool {
		harness.Pass(t, time.Now().Add(time.Second))
		s.truth.read(t)
		s.readBack(t)
		return a.settled() || time.Now().After(to.Add(soakDeadline+5*time.Second))
	})
	var all []*harness.Replica
	for _, at := range s.seats {
		all = append(all, at.Replica)
	}
	harness.StopAll(t, all)
	s.truth.read(t)
	a.judge(t)
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
