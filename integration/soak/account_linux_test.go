package soak

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
)

// truth has the lines of the jobs, as far as they are needed: all starts, and the last word of runs that say more.
type truth struct {
	path   string
	offset int64
	names  map[string]string // one copy of each
	runs   []harness.Line
	last   map[string]harness.Line // by run
}

// read reads the lines that were written since the last time.
func (w *truth) read(t *testing.T) {
	t.Helper()
	f, err := os.Open(w.path)
	harness.Must(t, err)
	defer f.Close()
	_, err = f.Seek(w.offset, io.SeekStart)
	harness.Must(t, err)
	text, err := io.ReadAll(f)
	harness.Must(t, err)
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	w.offset += int64(len(text))
	for one := range bytes.Lines(text) {
		var l harness.Line
		if err := json.Unmarshal(one, &l); err != nil {
			t.Fatalf("%s: %v: %s", w.path, err, one)
		}
		l.Event, l.Job, l.Replica = w.once(l.Event), w.once(l.Job), w.once(l.Replica)
		if l.Event == "start" {
			w.runs = append(w.runs, l)
		} else {
			w.last[l.Job+l.RunID] = l
		}
	}
}

func (w *truth) once(s string) string {
	if _, ok := w.names[s]; !ok {
		w.names[s] = s
	}
	return w.names[s]
}

// lines are those of one job that matter.
func (w *truth) lines(job string) (list []harness.Line) {
	for _, l := range w.runs {
		if l.Job != job {
			continue
		}
		list = append(list, l)
		if end, ok := w.last[l.Job+l.RunID]; ok {
			list = append(list, end)
		}
	}
	return list
}

// record is the history of all jobs since the beginning, of which Redis keeps the end only.
type record map[harness.TickOf][]harness.PastRun

// take adds the present records of the history.
func (r record) take(runs []harness.PastRun) {
	for _, run := range runs {
		key := harness.TickOf{Job: run.Job, Tick: run.Tick.Unix()}
		same := func(o harness.PastRun) bool { return o.RunID == run.RunID }
		if i := slices.IndexFunc(r[key], same); i >= 0 {
			r[key][i] = run
		} else {
			r[key] = append(r[key], run)
		}
	}
}

// account judges all ticks until an instant.
type account struct {
	*soak
	to   time.Time
	said slotLog
	told int // ticks that were complained of: only the first ones are told in detail
}

// due are the ticks that are judged.
func (a *account) due(do func(harness.TickOf)) {
	for job, k := range a.kinds {
		for tick := a.from.Unix(); tick <= a.to.Unix(); tick++ {
			if tick%k.every == 0 {
				do(harness.TickOf{Job: job, Tick: tick})
			}
		}
	}
}

// settled returns whether each tick has an outcome, as far as Redis has not forgotten it.
func (a *account) settled() bool {
	all, ran := true, a.ran()
	a.due(func(key harness.TickOf) {
		all = all && (len(a.past[key]) > 0 && a.past[key][0].Outcome != "running" || a.forgotten(key, ran[key]...))
	})
	return all
}

// ran are the ticks that did, and when.
func (a *account) ran() map[harness.TickOf][]time.Time {
	ran := map[harness.TickOf][]time.Time{}
	for _, l := range a.truth.runs {
		ran[l.Key()] = append(ran[l.Key()], time.UnixMicro(l.Token))
	}
	return ran
}

// forgotten returns whether the outcome of a tick may be lost with the memory of Redis: it was not read back before,
// or no other replica knew of the grant. A tick that was due while Redis was away is not forgotten, since no replica
// could have decided it, unless Redis was killed at once when it came back without its memory.
func (a *account) forgotten(key harness.TickOf, ran ...time.Time) bool {
	before, after := a.kinds[key.Job].lasts+2*time.Second, time.Second
	if a.length == 0 { // one fault comes right after another
		before += betweenFaults
	}
	return slices.ContainsFunc(a.faults, func(m mishap) bool {
		if !m.forgets() {
			return false
		}
		until := a.restorable(m)
		if len(ran) > 0 {
			until = m.to.Add(soakLease)
		}
		if slices.ContainsFunc(ran, func(at time.Time) bool { return m.during(at, before, 0) }) { // late, as it was due before
			return true
		}
		return !time.Unix(key.Tick, 0).Before(m.from.Add(-before)) && !time.Unix(key.Tick, 0).After(until.Add(after))
	})
}

// restorable returns the instant from which a replica can restore the data that Redis has lost. That is its loss, unless
// it comes back empty and another fault of its own follows, in the short soak, before a replica has restored it. Then
// a replica that was started meanwhile may come first, for which its schedules begin there.
func (a *account) restorable(m mishap) time.Time {
	until := m.lost
	if a.length > 0 || m.name != emptied {
		return until
	}
	for _, next := range a.faults {
		if next.most == 0 && next.from.After(m.to) && next.from.Before(m.to.Add(time.Second)) && next.to.After(until) {
			until = next.to
		}
	}
	return until
}

// again returns whether a tick may have been granted before, in its turn, by a grant whose reply came too late: the link of
// its claimant was bad, or Redis was frozen or killed just then. The lease ended, and this or another replica claimed the tick
// again. Meanwhile, replicas that knew the first claimant were granted younger ticks.
func (a *account) again(l harness.Line) bool {
	due, granted := time.Unix(l.Tick, 0), time.UnixMicro(l.Token)
	return granted.Sub(due) >= soakLease && slices.ContainsFunc(a.faults, func(m mishap) bool {
		return m.silent && !m.forgets() && m.to.After(due) && m.from.Before(granted)
	})
}

func (a *account) judge(t *testing.T) {
	t.Helper()
	runs := a.truth.runs
	one := slices.DeleteFunc(slices.Clone(runs), func(l harness.Line) bool { return a.kinds[l.Job].perTick > 1 })
	two := slices.DeleteFunc(slices.Clone(runs), func(l harness.Line) bool { return a.kinds[l.Job].perTick == 1 })
	harness.CheckOnce(t, one, 1)
	harness.CheckOnce(t, two, 2)
	harness.CheckNotEarly(t, runs)
	harness.CheckTokensGrow(t, slices.DeleteFunc(slices.Clone(one), a.again))
	harness.CheckTokensGrowInSlots(t, runs)
	for job, k := range a.kinds {
		if k.lasts > 0 {
			harness.CheckAtMost(t, a.truth.lines(job), k.parallel)
		}
	}
	a.said = heard(t, a.dir)
	verdicts := a.checkOutcomes(t)
	all := append(slices.Clone(a.gauges), goroutines(t, a.logOf(a.seats[0]), a.from)...)
	a.summarize(t, verdicts, all.judge(t, a.from, a.to, 5*time.Minute/2, a.mostInRedis()))
}

func (a *account) logOf(at *seat) string { return at.Output.Path }

// checkOutcomes demands that each tick has as many outcomes as grants at most, and one at least; and counts them.
func (a *account) checkOutcomes(t *testing.T) map[string]int {
	t.Helper()
	started := map[string]harness.Line{}
	for _, l := range a.truth.runs {
		started[l.Job+l.RunID] = l
	}
	ticks := a.ran()
	count := map[string]int{}
	a.due(func(key harness.TickOf) {
		outcomes := a.past[key]
		unsure := a.forgotten(key, ticks[key]...)
		if len(outcomes) == 0 {
			count[fmt.Sprintf("none left, ran %v", len(ticks[key]) > 0)]++
			if !unsure && !(len(ticks[key]) == 0 && a.grantIsForgotten(time.Unix(key.Tick, 0))) {
				a.complain(t, key, "no outcome")
			}
		}
		if len(outcomes) > a.kinds[key.Job].perTick {
			a.complain(t, key, "%d outcomes", len(outcomes))
		}
		for _, o := range outcomes {
			start, did := started[o.Job+o.RunID]
			count[fmt.Sprintf("%s, ran %v", o.Verdict(), did)]++
			if !unsure && !a.fits(o, start, did) {
				a.complain(t, key, "outcome %s is not excused; it ran: %v", o.Verdict(), did)
			}
		}
	})
	return count
}

// fits returns whether an outcome is possible. The short soak is for busy machines: there every true outcome will do.
func (a *account) fits(o harness.PastRun, start harness.Line, ran bool) bool {
	switch {
	case o.Outcome == "ok":
		return ran
	case o.Outcome == "running":
		return a.endIsForgotten(o)
	case a.length == 0:
		return true
	}
	switch o.Verdict() {
	case "abandoned", "lost":
		return slices.ContainsFunc(a.faults, func(m mishap) bool {
			return m.hits(o.Replica) && m.during(granted(o), starting(o, start)+a.kinds[o.Job].lasts+time.Second, time.Second)
		})
	case "skipped overlap":
		return !ran && (a.occupied(o) || a.blocked(o.Tick))
	}
	return false
}

// grantIsForgotten returns whether a replica may have been killed with the grant of a tick before its run wrote anything, and Redis lost its memory before others could
// record that: see endIsForgotten.
func (a *account) grantIsForgotten(tick time.Time) bool {
	return slices.ContainsFunc(a.faults, func(k mishap) bool {
		return k.most > 0 && k.during(tick, soakLease, 0) && slices.ContainsFunc(a.faults, func(m mishap) bool {
			return m.forgets() && m.from.After(k.from) && m.from.Before(tick.Add(soakDeadline+soakLease))
		})
	})
}

// endIsForgotten returns whether Redis lost its memory before the end of a run was recorded. A run whose holder was killed before it renewed the lease is recorded by
// the others only at the start deadline of its tick, unless they know before that the holder is gone: it might not have heard of the grant, and withdraw its claim.
func (a *account) endIsForgotten(o harness.PastRun) bool {
	return slices.ContainsFunc(a.faults, func(m mishap) bool { return m.most > 0 && m.hits(o.Replica) && m.during(granted(o), soakLease, 0) }) &&
		slices.ContainsFunc(a.faults, func(m mishap) bool {
			return m.forgets() && m.from.After(granted(o)) && m.from.Before(o.Tick.Add(soakDeadline+soakLease))
		})
}

// starting is how long a run took from its grant to its start, when the machine was busy. One that never said that it started had a
// lease for it.
func starting(o harness.PastRun, start harness.Line) time.Duration {
	if start.Micros == 0 {
		return soakLease
	}
	return max(0, start.At().Sub(granted(o)))
}

// granted returns when a run was granted, from its token: by the clock of Redis, not by that of its replica.
func granted(o harness.PastRun) time.Time { return time.UnixMicro(o.Token) }

// blocked returns whether a slot may have been held by a grant that no replica heard of, or was closed since Redis
// forgot.
func (a *account) blocked(at time.Time) bool {
	return slices.ContainsFunc(a.faults, func(m mishap) bool { return m.silent && m.during(at, 0, soakLease+time.Second) })
}

// complain reports everything about a tick; for the first ones also the logs of the replicas.
func (a *account) complain(t *testing.T, key harness.TickOf, format string, args ...any) {
	t.Helper()
	a.told++
	if a.told > 20 {
		t.Errorf("job %s, tick %d: %s", key.Job, key.Tick, fmt.Sprintf(format, args...))
		return
	}
	var b strings.Builder
	for _, o := range a.past[key] {
		fmt.Fprintf(&b, "  outcome %s of run %s on %s, token %d, ended %v\n", o.Verdict(), o.RunID, o.Replica, o.Token, o.Finished)
	}
	b.WriteString(harness.TextOf(slices.DeleteFunc(slices.Clone(a.truth.runs), func(l harness.Line) bool { return l.Key() != key })))
	near := slices.DeleteFunc(slices.Clone(a.faults), func(m mishap) bool { return !m.during(time.Unix(key.Tick, 0), soakDeadline, soakDeadline) })
	b.WriteString(describe(near))
	if a.told <= 5 {
		b.WriteString(a.logged(t, key))
	}
	t.Errorf("job %s, tick %d: %s\n%s", key.Job, key.Tick, fmt.Sprintf(format, args...), b.String())
}

// logged returns the replicas' log lines of a tick.
func (a *account) logged(t *testing.T, key harness.TickOf) string {
	t.Helper()
	job, tick := fmt.Sprintf("%q:%q", "job", key.Job), time.Unix(key.Tick, 0).UTC().Format(time.RFC3339)
	logs, err := filepath.Glob(filepath.Join(a.dir, "*.log"))
	harness.Must(t, err)
	var b strings.Builder
	for _, path := range logs {
		for _, l := range harness.ReadLines(t, path) {
			if strings.Contains(l, job) && strings.Contains(l, tick) {
				fmt.Fprintf(&b, "  %s: %s\n", filepath.Base(path), l)
			}
		}
	}
	return b.String()
}

// summarize sums it all up.
func (a *account) summarize(t *testing.T, verdicts map[string]int, flat [][2]string) {
	t.Helper()
	due := 0
	a.due(func(harness.TickOf) { due++ })
	rows := [][2]string{
		{"time, replicas, jobs", fmt.Sprintf("%v, %d, %d", a.to.Sub(a.from).Round(time.Second), len(a.seats), len(a.kinds))},
		{"ticks due, runs", fmt.Sprintf("%d, %d", due, len(a.truth.runs))},
		{"doubled, early, not accounted for or not excused", fmt.Sprintf("%d, %d, %d", a.doubled(), early(a.truth.runs), a.told)},
		{"faults", listed(byKind(a.faults))},
		{"outcomes", listed(verdicts)},
		{"lateness of runs", harness.Lateness(slices.DeleteFunc(slices.Clone(a.truth.runs), func(l harness.Line) bool { return l.Micros == 0 }))},
	}
	var b strings.Builder
	for _, row := range append(rows, flat...) {
		fmt.Fprintf(&b, "| %s | %s |\n", row[0], row[1])
	}
	t.Logf("\n| | |\n| --- | --- |\n%s", b.String())
}

// doubled counts the runs beyond the first of each tick and slot.
func (a *account) doubled() int {
	type place struct {
		harness.TickOf
		slot int
	}
	once := map[place]bool{}
	for _, l := range a.truth.runs {
		once[place{l.Key(), l.Slot}] = true
	}
	return len(a.truth.runs) - len(once)
}

func early(runs []harness.Line) (n int) {
	for _, l := range runs {
		if l.Micros != 0 && l.At().Before(time.Unix(l.Tick, 0)) {
			n++
		}
	}
	return n
}

func byKind(faults []mishap) map[string]int {
	count := map[string]int{}
	for _, m := range faults {
		count[m.name]++
	}
	return count
}

func listed(count map[string]int) string {
	var list []string
	for name, n := range count {
		list = append(list, fmt.Sprintf("%s: %d", name, n))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}
