package harness

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

// ScribeProgram is the job of these tests: it appends to a file the events of its run. The tests conclude about runs
// from that file, never from the words of replicas.
const ScribeProgram = "github.com/cronclave/cronclave/integration/harness/testdata/scribe"

// Line is a line of a scribe; see there.
type Line struct {
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
func (l Line) At() time.Time { return time.UnixMicro(l.Micros) }

// Key names the tick of a run.
func (l Line) Key() TickOf { return TickOf{l.Job, l.Tick} }

func (l Line) String() string {
	return fmt.Sprintf("%s %s tick %d slot %d token %d run %s on %s (pid %d) at %d", l.Event, l.Job, l.Tick, l.Slot, l.Token, l.RunID, l.Replica, l.PID, l.Micros)
}

// TickOf names a tick of a job.
type TickOf struct {
	Job  string
	Tick int64 // Unix seconds
}

// Chronicle is the file that the scribes of a test write.
type Chronicle struct{ Path string }

func newChronicle(t *testing.T) Chronicle {
	t.Helper()
	path := filepath.Join(t.TempDir(), "chronicle")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return Chronicle{path}
}

// Lines returns the lines that the scribes of one job have written so far, in the order of writing; of all jobs if it is "".
func (c Chronicle) Lines(t *testing.T, job string) []Line {
	t.Helper()
	var all []Line
	for _, text := range ReadLines(t, c.Path) {
		var l Line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%s: %v: %s", c.Path, err, text)
		}
		if job == "" || l.Job == job {
			all = append(all, l)
		}
	}
	return all
}

// Await waits until a scribe of the job has written a line that meets the condition, and returns the first such line.
func (c Chronicle) Await(t *testing.T, within time.Duration, job, what string, meets func(Line) bool) Line {
	t.Helper()
	var hit Line
	Eventually(t, within, fmt.Sprintf("%s of job %s", what, job), func() bool {
		lines := c.Lines(t, job)
		i := slices.IndexFunc(lines, meets)
		if i >= 0 {
			hit = lines[i]
		}
		return i >= 0
	})
	return hit
}

// AwaitTick waits until a run of the job's given tick, or a later one, has started.
func (c Chronicle) AwaitTick(t *testing.T, within time.Duration, job string, tick int64) Line {
	t.Helper()
	return c.Await(t, within, job, fmt.Sprintf("run of tick %d", tick), func(l Line) bool { return l.Event == "start" && l.Tick >= tick })
}

// Starts are the lines with which runs began. A run's children say start as well: only the first counts.
func Starts(lines []Line) []Line {
	var first []Line
	seen := map[string]bool{}
	for _, l := range lines {
		if l.Event == "start" && !seen[l.Job+l.RunID] {
			seen[l.Job+l.RunID] = true
			first = append(first, l)
		}
	}
	return first
}

// RunLines are the lines that one run wrote, its children included.
func RunLines(run string, lines []Line) []Line {
	return slices.DeleteFunc(slices.Clone(lines), func(l Line) bool { return l.RunID != run })
}

// LinesOf are the lines of one kind.
func LinesOf(kind string, lines []Line) []Line {
	return slices.DeleteFunc(slices.Clone(lines), func(l Line) bool { return l.Event != kind })
}

// LatestAt returns the last instant of the lines.
func LatestAt(lines []Line) time.Time {
	if len(lines) == 0 {
		return time.Time{}
	}
	return slices.MaxFunc(lines, func(a, b Line) int { return cmp.Compare(a.Micros, b.Micros) }).At()
}

// CheckOnce demands that each tick ran at most perTick times, each slot of it at most once (P1).
func CheckOnce(t *testing.T, runs []Line, perTick int) {
	t.Helper()
	ran := map[TickOf][]Line{}
	for _, l := range runs {
		ran[l.Key()] = append(ran[l.Key()], l)
	}
	for key, list := range ran {
		slots := map[int]bool{}
		for _, l := range list {
			slots[l.Slot] = true
		}
		if len(list) > perTick || len(slots) < len(list) {
			t.Errorf("tick %d of job %s ran %d times, in %d slots:\n%s", key.Tick, key.Job, len(list), len(slots), TextOf(list))
		}
	}
}

// CheckAttempts demands that no attempt of a tick began twice, and that the history has none twice. A run outside the schedule counts its own.
func CheckAttempts(t *testing.T, lines []Line, history []PastRun) {
	t.Helper()
	type try struct {
		run     string
		attempt int
	}
	seen, began, told := map[try]bool{}, map[string][]string{}, map[string][]string{}
	for _, l := range LinesOf("start", lines) {
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

// CheckNotEarly demands that no run started before its tick by the clock of Redis (P2).
func CheckNotEarly(t *testing.T, runs []Line) {
	t.Helper()
	for _, l := range runs {
		if l.Micros != 0 && l.At().Before(time.Unix(l.Tick, 0)) {
			t.Errorf("%s early: %v", time.Unix(l.Tick, 0).Sub(l.At()), l)
		}
	}
}

// ClaimedAnew returns the log entries of the replicas that withdrew a grant of which they never heard.
func (c *Cluster) ClaimedAnew() (entries []LogEntry) {
	const withdrawn = "a claim was granted, and its answer came only after the lease; the claim is withdrawn, and the tick is claimed anew"
	for _, r := range c.Started {
		entries = append(entries, slices.DeleteFunc(r.LogEntries(), func(e LogEntry) bool { return e.Message() != withdrawn })...)
	}
	return entries
}

// CheckTokensGrow demands the same of the replicas of a cluster. A tick that was claimed anew, since its replica never heard of its
// grant, may run after later ones. Then each run has a greater token than the runs before it.
func (c *Cluster) CheckTokensGrow(t *testing.T, runs []Line) {
	t.Helper()
	anew := map[string]bool{} // job and tick
	jobs := map[string]bool{}
	for _, e := range c.ClaimedAnew() {
		anew[fmt.Sprint(e["job"], e["tick"])] = true
		jobs[fmt.Sprint(e["job"])] = true
	}
	CheckTokensGrowInSlots(t, slices.DeleteFunc(slices.Clone(runs), func(l Line) bool { return !jobs[l.Job] }))
	runs = slices.DeleteFunc(slices.Clone(runs), func(l Line) bool {
		return anew[l.Job+time.Unix(l.Tick, 0).UTC().Format(time.RFC3339)]
	})
	CheckTokensGrow(t, runs)
}

// CheckTokensGrow demands that of two ticks of one job the later has the greater token (P4).
func CheckTokensGrow(t *testing.T, runs []Line) {
	t.Helper()
	sorted := slices.SortedFunc(slices.Values(runs), func(a, b Line) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Tick, b.Tick))
	})
	for i, l := range sorted {
		if i > 0 && l.Job == sorted[i-1].Job && l.Token <= sorted[i-1].Token {
			t.Errorf("the token did not grow:\n%s", TextOf(sorted[i-1:i+1]))
		}
	}
}

// CheckTokensGrowInSlots demands that of two runs in one slot of a job the later has the greater token: no two are at once (P4).
func CheckTokensGrowInSlots(t *testing.T, runs []Line) {
	t.Helper()
	sorted := slices.SortedFunc(slices.Values(runs), func(a, b Line) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Slot, b.Slot), cmp.Compare(a.Mono, b.Mono))
	})
	for i, l := range sorted {
		if i > 0 && l.Job == sorted[i-1].Job && l.Slot == sorted[i-1].Slot && l.Token <= sorted[i-1].Token {
			t.Errorf("the token of a slot did not grow:\n%s", TextOf(sorted[i-1:i+1]))
		}
	}
}

// CheckAlone demands that at no time more than one run of a job was alive, children included (P3 with parallel = 1).
func CheckAlone(t *testing.T, lines []Line) { t.Helper(); CheckAtMost(t, lines, 1) }

// CheckAtMost demands that at no time more than so many runs of a job were alive, children included (P3). It goes by the clock
// of this machine, where all of them are: that of Redis may be away, or set.
func CheckAtMost(t *testing.T, lines []Line, parallel int) {
	t.Helper()
	ends := map[string]int64{}
	for _, l := range lines {
		ends[l.RunID] = max(ends[l.RunID], l.Mono)
	}
	runs := Starts(lines)
	for _, l := range runs {
		alive := slices.DeleteFunc(slices.Clone(runs), func(o Line) bool { return o.Job != l.Job || o.Mono > l.Mono || ends[o.RunID] < l.Mono })
		if len(alive) <= parallel {
			continue
		}
		for _, o := range alive {
			t.Logf("run %s began at %dµs and wrote until %dµs", o.RunID, o.Mono, ends[o.RunID])
		}
		t.Errorf("%d runs at once, where %d may be:\n%s", len(alive), parallel, TextOf(alive))
	}
}

func TextOf(lines []Line) string {
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "  %v\n", l)
	}
	return b.String()
}

// RedisTime is the clock of Redis, by which all promises are judged.
func RedisTime(t *testing.T, c *redis.Client) time.Time {
	t.Helper()
	now, err := c.Time(t.Context()).Result()
	if err != nil {
		t.Fatal("ask Redis for the time:", err)
	}
	return now
}

// AwaitTime waits until the clock of Redis has passed an instant.
func AwaitTime(t *testing.T, c *redis.Client, until time.Time) {
	t.Helper()
	patience := max(0, time.Until(until)) + StartTimeout
	Eventually(t, patience, "passing of "+until.Format(time.TimeOnly), func() bool { return RedisTime(t, c).After(until) })
}

// Monotonic is the clock of the machine that cannot be set.
func Monotonic(t *testing.T) (micros int64) {
	t.Helper()
	var now unix.Timespec
	Must(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	return now.Nano() / 1000
}
