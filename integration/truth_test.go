package integration

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"
)

// scribeProgram is the job of these tests: it appends to a file the events of its run. The tests conclude about runs
// from that file, never from the words of replicas.
const scribeProgram = "./testdata/scribe"

// line is a line of a scribe; see there.
type line struct {
	Event   string `json:"event"` // start, beat, term, end
	Job     string `json:"job"`
	Tick    int64  `json:"tick"` // Unix seconds
	Token   int64  `json:"token"`
	Slot    int    `json:"slot"`
	Slots   int    `json:"slots"`
	Attempt int    `json:"attempt"`
	Trigger string `json:"trigger"`
	Replica string `json:"replica"`
	RunID   string `json:"run_id"`
	PID     int    `json:"pid"`
	Micros  int64  `json:"at"`   // by the clock of Redis; 0 if it did not answer
	Mono    int64  `json:"mono"` // microseconds of this machine's monotonic clock
}

// At is the instant by the clock of Redis.
func (l line) At() time.Time { return time.UnixMicro(l.Micros) }

// key names the tick of a run.
func (l line) key() tickOf { return tickOf{l.Job, l.Tick} }

func (l line) String() string {
	return fmt.Sprintf("%s %s tick %d slot %d token %d run %s on %s (pid %d) at %d", l.Event, l.Job, l.Tick, l.Slot, l.Token, l.RunID, l.Replica, l.PID, l.Micros)
}

// tickOf names a tick of a job.
type tickOf struct {
	job  string
	tick int64 // Unix seconds
}

// chronicle is the file that the scribes of a test write.
type chronicle struct{ path string }

func newChronicle(t *testing.T) chronicle {
	t.Helper()
	path := filepath.Join(t.TempDir(), "chronicle")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return chronicle{path}
}

// lines returns the lines that the scribes of one job have written so far, in the order of writing; of all jobs if it is "".
func (c chronicle) lines(t *testing.T, job string) []line {
	t.Helper()
	var all []line
	for _, text := range readLines(t, c.path) {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%s: %v: %s", c.path, err, text)
		}
		if job == "" || l.Job == job {
			all = append(all, l)
		}
	}
	return all
}

// await waits until a scribe of the job has written a line that meets the condition, and returns the first such line.
func (c chronicle) await(t *testing.T, within time.Duration, job, what string, meets func(line) bool) line {
	t.Helper()
	var hit line
	eventually(t, within, fmt.Sprintf("%s of job %s", what, job), func() bool {
		lines := c.lines(t, job)
		i := slices.IndexFunc(lines, meets)
		if i >= 0 {
			hit = lines[i]
		}
		return i >= 0
	})
	return hit
}

// awaitTick waits until a run of the job's given tick, or a later one, has started.
func (c chronicle) awaitTick(t *testing.T, within time.Duration, job string, tick int64) line {
	t.Helper()
	return c.await(t, within, job, fmt.Sprintf("run of tick %d", tick), func(l line) bool { return l.Event == "start" && l.Tick >= tick })
}

// starts are the lines with which runs began. A run's children say start as well: only the first counts.
func starts(lines []line) []line {
	var first []line
	seen := map[string]bool{}
	for _, l := range lines {
		if l.Event == "start" && !seen[l.Job+l.RunID] {
			seen[l.Job+l.RunID] = true
			first = append(first, l)
		}
	}
	return first
}

// of are the lines that one run wrote, its children included.
func of(run string, lines []line) []line {
	return slices.DeleteFunc(slices.Clone(lines), func(l line) bool { return l.RunID != run })
}

// event are the lines of one kind.
func event(kind string, lines []line) []line {
	return slices.DeleteFunc(slices.Clone(lines), func(l line) bool { return l.Event != kind })
}

// latest returns the last instant of the lines.
func latest(lines []line) time.Time {
	if len(lines) == 0 {
		return time.Time{}
	}
	return slices.MaxFunc(lines, func(a, b line) int { return cmp.Compare(a.Micros, b.Micros) }).At()
}

// checkOnce demands that each tick ran at most perTick times, each slot of it at most once (P1).
func checkOnce(t *testing.T, runs []line, perTick int) {
	t.Helper()
	ran := map[tickOf][]line{}
	for _, l := range runs {
		ran[l.key()] = append(ran[l.key()], l)
	}
	for key, list := range ran {
		slots := map[int]bool{}
		for _, l := range list {
			slots[l.Slot] = true
		}
		if len(list) > perTick || len(slots) < len(list) {
			t.Errorf("tick %d of job %s ran %d times, in %d slots:\n%s", key.tick, key.job, len(list), len(slots), text(list))
		}
	}
}

// checkAttempts demands that no attempt of a tick began twice, and that the history has none twice. A run outside the schedule counts its own.
func checkAttempts(t *testing.T, lines []line, history []pastRun) {
	t.Helper()
	type try struct {
		run     string
		attempt int
	}
	seen, began, told := map[try]bool{}, map[string][]string{}, map[string][]string{}
	for _, l := range event("start", lines) {
		if k := (try{l.RunID, l.Attempt}); !seen[k] && l.Trigger != "manual" { // a run's children say start as well
			seen[k] = true
			name := fmt.Sprintf("attempt %d of job %s, tick %d", l.Attempt, l.Job, l.Tick)
			began[name] = append(began[name], l.String())
		}
	}
	for _, r := range history {
		if r.Attempt > 0 && r.Trigger != "manual" {
			name := fmt.Sprintf("attempt %d of job %s, tick %d", r.Attempt, r.Job, r.Tick.Unix())
			told[name] = append(told[name], fmt.Sprintf("%+v", r))
		}
	}
	for what, all := range map[string]map[string][]string{"began": began, "is told of": told} {
		for name, each := range all {
			if len(each) > 1 {
				t.Errorf("%s %s %d times:\n%s", name, what, len(each), strings.Join(each, "\n"))
			}
		}
	}
}

// checkNotEarly demands that no run started before its tick by the clock of Redis (P2).
func checkNotEarly(t *testing.T, runs []line) {
	t.Helper()
	for _, l := range runs {
		if l.Micros != 0 && l.At().Before(time.Unix(l.Tick, 0)) {
			t.Errorf("%s early: %v", time.Unix(l.Tick, 0).Sub(l.At()), l)
		}
	}
}

// claimedAnew returns the log entries of the replicas that withdrew a grant of which they never heard.
func (c *cluster) claimedAnew() (entries []logEntry) {
	const withdrawn = "a claim was granted, and its answer came only after the lease; the claim is withdrawn, and the tick is claimed anew"
	for _, r := range c.started {
		entries = append(entries, slices.DeleteFunc(r.LogEntries(), func(e logEntry) bool { return e.Message() != withdrawn })...)
	}
	return entries
}

// checkTokensGrow demands the same of the replicas of a cluster. A tick that was claimed anew, since its replica never heard of its
// grant, may run after later ones. Then each run has a greater token than the runs before it.
func (c *cluster) checkTokensGrow(t *testing.T, runs []line) {
	t.Helper()
	anew := map[string]bool{} // job and tick
	jobs := map[string]bool{}
	for _, e := range c.claimedAnew() {
		anew[fmt.Sprint(e["job"], e["tick"])] = true
		jobs[fmt.Sprint(e["job"])] = true
	}
	checkTokensGrowInSlots(t, slices.DeleteFunc(slices.Clone(runs), func(l line) bool { return !jobs[l.Job] }))
	runs = slices.DeleteFunc(slices.Clone(runs), func(l line) bool {
		return anew[l.Job+time.Unix(l.Tick, 0).UTC().Format(time.RFC3339)]
	})
	checkTokensGrow(t, runs)
}

// checkTokensGrow demands that of two ticks of one job the later has the greater token (P4).
func checkTokensGrow(t *testing.T, runs []line) {
	t.Helper()
	sorted := slices.SortedFunc(slices.Values(runs), func(a, b line) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Tick, b.Tick))
	})
	for i, l := range sorted {
		if i > 0 && l.Job == sorted[i-1].Job && l.Token <= sorted[i-1].Token {
			t.Errorf("the token did not grow:\n%s", text(sorted[i-1:i+1]))
		}
	}
}

// checkTokensGrowInSlots demands that of two runs in one slot of a job the later has the greater token: no two are at once (P4).
func checkTokensGrowInSlots(t *testing.T, runs []line) {
	t.Helper()
	sorted := slices.SortedFunc(slices.Values(runs), func(a, b line) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Slot, b.Slot), cmp.Compare(a.Mono, b.Mono))
	})
	for i, l := range sorted {
		if i > 0 && l.Job == sorted[i-1].Job && l.Slot == sorted[i-1].Slot && l.Token <= sorted[i-1].Token {
			t.Errorf("the token of a slot did not grow:\n%s", text(sorted[i-1:i+1]))
		}
	}
}

// checkAlone demands that at no time more than one run of a job was alive, children included (P3 with parallel = 1).
func checkAlone(t *testing.T, lines []line) { t.Helper(); checkAtMost(t, lines, 1) }

// checkAtMost demands that at no time more than so many runs of a job were alive, children included (P3). It goes by the clock
// of this machine, where all of them are: that of Redis may be away, or set.
func checkAtMost(t *testing.T, lines []line, parallel int) {
	t.Helper()
	ends := map[string]int64{}
	for _, l := range lines {
		ends[l.RunID] = max(ends[l.RunID], l.Mono)
	}
	runs := starts(lines)
	for _, l := range runs {
		alive := slices.DeleteFunc(slices.Clone(runs), func(o line) bool { return o.Job != l.Job || o.Mono > l.Mono || ends[o.RunID] < l.Mono })
		if len(alive) <= parallel {
			continue
		}
		for _, o := range alive {
			t.Logf("run %s began at %dµs and wrote until %dµs", o.RunID, o.Mono, ends[o.RunID])
		}
		t.Errorf("%d runs at once, where %d may be:\n%s", len(alive), parallel, text(alive))
	}
}

func text(lines []line) string {
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "  %v\n", l)
	}
	return b.String()
}

// redisTime is the clock of Redis, by which all promises are judged.
func redisTime(t *testing.T, c *redis.Client) time.Time {
	t.Helper()
	now, err := c.Time(t.Context()).Result()
	if err != nil {
		t.Fatal("ask Redis for the time:", err)
	}
	return now
}

// awaitTime waits until the clock of Redis has passed an instant.
func awaitTime(t *testing.T, c *redis.Client, until time.Time) {
	t.Helper()
	patience := max(0, time.Until(until)) + startTimeout
	eventually(t, patience, "passing of "+until.Format(time.TimeOnly), func() bool { return redisTime(t, c).After(until) })
}

// monotonic is the clock of the machine that cannot be set.
func monotonic(t *testing.T) (micros int64) {
	t.Helper()
	var now unix.Timespec
	must(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	return now.Nano() / 1000
}
