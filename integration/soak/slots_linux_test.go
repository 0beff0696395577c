package soak

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
)

// slotLog has the replicas' log lines about slots and ticks, by this machine's clock, which is that of Redis. The
// history shows only the end of a run. The slot is held for longer: until that end is recorded, and the release
// answered, which the log shows.
type slotLog struct {
	released map[string]time.Time         // by run: the slot was given up by then
	decided  map[harness.TickOf]time.Time // the tick was settled by then
}

// heard reads the logs of all lives of all replicas.
func heard(t *testing.T, dir string) slotLog {
	t.Helper()
	h := slotLog{map[string]time.Time{}, map[harness.TickOf]time.Time{}}
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	harness.Must(t, err)
	for _, path := range logs {
		f, err := os.Open(path)
		harness.Must(t, err)
		lines := bufio.NewScanner(f) // an hour's log is long
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			h.take(lines.Text())
		}
		harness.Must(t, lines.Err())
		harness.Must(t, f.Close())
	}
	return h
}

func (h slotLog) take(text string) {
	var l struct {
		Message string    `json:"msg"`
		At      time.Time `json:"time"`
		Job     string    `json:"job"`
		RunID   string    `json:"run_id"`
		Tick    time.Time `json:"tick"`
	}
	if !strings.Contains(text, `"finished"`) && !strings.Contains(text, `"tick not run"`) && !strings.Contains(text, "could not be released") {
		return
	}
	if json.Unmarshal([]byte(text), &l) != nil {
		return // the last line of one that was killed
	}
	switch key := (harness.TickOf{Job: l.Job, Tick: l.Tick.Unix()}); {
	case strings.Contains(l.Message, "could not be released"):
		h.released[l.RunID] = l.At.Add(soakLease)
	case l.Message == "finished" && h.released[l.RunID].Before(l.At):
		h.released[l.RunID] = l.At
	case l.Message == "tick not run" && (h.decided[key].IsZero() || l.At.Before(h.decided[key])):
		h.decided[key] = l.At
	}
}

// tenure is the time for which a slot may have been held.
type tenure struct {
	slot     int
	from, to time.Time
}

// tenures are those of a job's runs near a tick, each over at the latest when the slot was granted again.
func (a *account) tenures(o harness.PastRun) (all []tenure) {
	reach := int64(soakDeadline.Seconds())
	for tick := o.Tick.Unix() - reach; tick <= o.Tick.Unix()+reach; tick++ {
		for _, run := range a.past[harness.TickOf{Job: o.Job, Tick: tick}] {
			if run.Token != 0 && run.Slot != nil {
				all = append(all, tenure{*run.Slot, granted(run), a.letGo(run)})
			}
		}
	}
	slices.SortFunc(all, func(x, y tenure) int { return x.from.Compare(y.from) })
	for i := range all {
		next := slices.IndexFunc(all[i+1:], func(n tenure) bool { return n.slot == all[i].slot })
		if next >= 0 && all[i+1+next].from.Before(all[i].to) {
			all[i].to = all[i+1+next].from
		}
	}
	return all
}

// letGo is until when a run may have held its slot: a replica that could not let go of it held it until the lease was over.
func (a *account) letGo(run harness.PastRun) time.Time {
	end := run.Finished
	if slices.ContainsFunc(a.faults, func(m mishap) bool { return m.hits(run.Replica) && m.during(end, 0, 0) }) {
		end = end.Add(soakLease)
	}
	return later(end, a.said.released[run.RunID])
}

// occupied returns whether at some moment between the due time of a tick and its skip as many slots were held as
// there are.
func (a *account) occupied(o harness.PastRun) bool {
	decided, ok := a.said.decided[harness.TickOf{Job: o.Job, Tick: o.Tick.Unix()}]
	if !ok {
		decided = o.Finished
	}
	all := a.tenures(o)
	moments := []time.Time{o.Tick}
	for _, one := range all {
		moments = append(moments, one.from)
	}
	return slices.ContainsFunc(moments, func(at time.Time) bool {
		held := 0
		for _, one := range all {
			if !at.Before(one.from) && at.Before(one.to) {
				held++
			}
		}
		return held >= a.kinds[o.Job].parallel && !at.Before(o.Tick) && !at.After(decided)
	})
}

// A skip is excused by slots that were held when it was decided, as long as they were held and no longer.
func TestSoakJudgesSkips(t *testing.T) {
	second := func(s float64) time.Time { return time.UnixMicro(int64(1e15 + s*1e6)) }
	run := func(id string, tick, slot int, from, to float64) harness.PastRun {
		return harness.PastRun{RunID: id, Job: "j", Tick: second(float64(tick)), Slot: &slot, Token: second(from).UnixMicro(), Replica: "r1", Outcome: "ok", Finished: second(to)}
	}
	logged := func(at float64, message, rest string) string {
		return fmt.Sprintf("{\"msg\":%q,\"time\":%q,\"job\":\"j\",%s}\n", message, second(at).Format(time.RFC3339Nano), rest)
	}
	decided := func(at float64) string {
		return logged(at, "tick not run", fmt.Sprintf(`"tick":%q`, second(10).UTC().Format(time.RFC3339)))
	}
	for _, tc := range []struct {
		name     string
		parallel int
		runs     []harness.PastRun
		log      string
		faults   []mishap
		want     bool
	}{
		{"no run held it", 1, []harness.PastRun{run("a", 9, 0, 9, 9.1)}, logged(9.2, "finished", `"run_id":"a"`) + decided(10.1), nil, false},
		{"it was on", 1, []harness.PastRun{run("a", 9, 0, 9, 11)}, logged(11.1, "finished", `"run_id":"a"`) + decided(10.1), nil, true},
		{"its end was being recorded", 1, []harness.PastRun{run("a", 9, 0, 9, 9.4)}, logged(10.1, "finished", `"run_id":"a"`) + decided(10.2), nil, true},
		{"its end was being recorded, and another's", 1, []harness.PastRun{run("a", 8, 0, 8, 8.4), run("b", 9, 0, 9, 9.1)},
			logged(10.1, "finished", `"run_id":"a"`) + logged(9.9, "finished", `"run_id":"b"`) + decided(10.2), nil, false},
		{"granted before it was decided", 1, []harness.PastRun{run("a", 9, 0, 10.2, 10.3)}, logged(10.4, "finished", `"run_id":"a"`) + decided(10.3), nil, true},
		{"granted after it was decided", 1, []harness.PastRun{run("a", 9, 0, 10.2, 10.3)}, logged(10.4, "finished", `"run_id":"a"`) + decided(10.1), nil, false},
		{"one of two", 2, []harness.PastRun{run("a", 9, 0, 9, 11)}, decided(10.1), nil, false},
		{"both", 2, []harness.PastRun{run("a", 8, 0, 8, 11), run("b", 9, 1, 9, 11)}, decided(10.1), nil, true},
		{"one after the other", 2, []harness.PastRun{run("a", 8, 0, 8, 10.1), run("b", 9, 1, 10.2, 11)}, decided(10.3), nil, false},
		{"a lease that was not released", 1, []harness.PastRun{run("a", 9, 0, 9, 9.1)}, logged(9.2, "the lease could not be released; it ends by itself", `"run_id":"a"`) +
			logged(9.2, "finished", `"run_id":"a"`) + decided(10.1), nil, true},
		{"a replica in trouble", 1, []harness.PastRun{run("a", 9, 0, 9, 9.1)}, decided(10.1),
			[]mishap{{faultKind: faultKind{most: 1}, victims: []string{"r1"}, from: second(9), to: second(12)}}, true},
		{"another one in trouble", 1, []harness.PastRun{run("a", 9, 0, 9, 9.1)}, decided(10.1),
			[]mishap{{faultKind: faultKind{most: 1}, victims: []string{"r2"}, from: second(9), to: second(12)}}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			harness.Must(t, os.WriteFile(filepath.Join(dir, "r1-0001.log"), []byte(tc.log+"{\"@mess\n"), 0o600))
			a := &account{soak: &soak{dir: dir, kinds: map[string]soakKind{"j": {parallel: tc.parallel}}, past: record{}, faults: tc.faults}, said: heard(t, dir)}
			a.past.take(tc.runs)
			skipped := harness.PastRun{RunID: "s", Job: "j", Tick: second(10), Outcome: "skipped", Reason: "overlap", Finished: second(10.5)}
			if got := a.occupied(skipped); got != tc.want {
				t.Errorf("occupied: %v", got)
			}
		})
	}
}
