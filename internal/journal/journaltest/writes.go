package journaltest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

func endCompletesRunning(s *suite) {
	j := s.journal(journal.Config{})
	s.record(j, s.running("a", "1", 9))
	s.expect(j, "a", "1 running")
	s.record(j, s.ended("a", "1", journal.OutcomeOK, 9))
	s.expect(j, "a", "1 ok")
	if indexed, texts := s.stored("a"); indexed != 1 || texts != 1 {
		s.Errorf("%d entries and %d texts for one run", indexed, texts)
	}
}

// recordsInAnyOrder writes all records of a run in every order, one by one and in one batch.
func recordsInAnyOrder(s *suite) {
	records := func(job string) []journal.Record {
		end := s.ended(job, "1", journal.OutcomeFailed, 60)
		end.Finished = s.now.Add(-50 * time.Second)
		abandoned := s.ended(job, "1", journal.OutcomeAbandoned, 60)
		abandoned.Replica = "r2"
		return []journal.Record{s.running(job, "1", 60), abandoned, end}
	}
	j := s.journal(journal.Config{})
	for i, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}, {2}, {1, 2}, {2, 1}} {
		one, batch := fmt.Sprintf("one-%d", i), fmt.Sprintf("batch-%d", i)
		var all []journal.Record
		for _, k := range order {
			s.record(j, records(one)[k])
			all = append(all, records(batch)[k])
		}
		s.record(j, all...)
		s.expect(j, one, "1 failed")
		s.expect(j, batch, "1 failed")
	}
	s.record(j, records("left")[1], records("left")[0])
	s.expect(j, "left", "1 abandoned")
}

// abandonedKeepsItsStart checks that an abandoned record gets its start from the running record of the holder, in either order.
func abandonedKeepsItsStart(s *suite) {
	j := s.journal(journal.Config{})
	for i, order := range [][]int{{0, 1}, {1, 0}} {
		job := fmt.Sprintf("job-%d", i)
		running := s.running(job, "1", 60)
		abandoned := s.ended(job, "1", journal.OutcomeAbandoned, 20)
		abandoned.Started, abandoned.DurationMS = time.Time{}, nil
		both := []journal.Record{running, abandoned}
		s.record(j, both[order[0]])
		s.record(j, both[order[1]])
		for _, r := range s.runs(j, job, 0) {
			if !r.Started.Equal(running.Started) || !r.Finished.Equal(abandoned.Finished) || r.DurationMS != nil {
				s.Errorf("started %v, noticed %v, lasted %v", r.Started, r.Finished, r.DurationMS)
			}
		}
		s.expect(j, job, "1 abandoned")
	}
	unknown := s.ended("b", "1", journal.OutcomeAbandoned, 20)
	unknown.Started = time.Time{}
	s.record(j, unknown)
	if r := s.runs(j, "b", 0); len(r) != 1 || !r[0].Started.IsZero() {
		s.Errorf("without a running record: %v", r)
	}
}

func firstRecordStays(s *suite) {
	j, other := s.journal(journal.Config{}), s.journal(journal.Config{})
	settled := func(outcome journal.Outcome, reason journal.Reason, said int) journal.Record {
		return journal.Record{RunID: "a.20260101T000000Z", Job: "a", Tick: s.now.Add(-time.Minute), Trigger: "schedule",
			Replica: "r1", Outcome: outcome, Reason: reason, Finished: s.now.Add(-time.Duration(said) * time.Second)}
	}
	s.record(j, settled(journal.OutcomeSkipped, "overlap", 5))
	s.record(other, settled(journal.OutcomeMissed, "late", 1), settled(journal.OutcomeMissed, "late", 9))
	s.expect(j, "a", "a.20260101T000000Z skipped overlap")

	first, second := s.ended("b", "1", journal.OutcomeAbandoned, 9), s.ended("b", "1", journal.OutcomeAbandoned, 9)
	first.Reason, second.Reason = "first", "second"
	second.Finished = first.Finished.Add(-time.Second)
	s.record(j, first, second)
	s.record(other, second)
	s.expect(j, "b", "1 abandoned first")
}

// laterAttemptReplaces checks that a running record of a later attempt replaces the earlier one.
func laterAttemptReplaces(s *suite) {
	j := s.journal(journal.Config{})
	attempts := func(want ...int) {
		s.Helper()
		var got []int
		for _, r := range s.runs(j, "a", 0) {
			got = append(got, r.Attempt)
		}
		if !reflect.DeepEqual(got, want) {
			s.Errorf("attempts %v, want %v", got, want)
		}
	}
	first, second := s.running("a", "1", 9), s.running("a", "1", 9)
	second.Attempt = 2
	s.record(j, first)
	attempts(1)
	s.record(j, second)
	attempts(2)
	s.record(j, first, second, first)
	attempts(2)
	end := s.ended("a", "1", journal.OutcomeOK, 9)
	end.Attempt = 3
	s.record(j, end)
	s.record(j, second)
	attempts(3)
}

func repeatedBatch(s *suite) {
	j := s.journal(journal.Config{})
	batch := []journal.Record{s.running("a", "1", 9), s.ended("a", "1", journal.OutcomeOK, 9), s.running("a", "2", 8)}
	batch[1].Output = new("some output")
	s.record(j, batch...)
	before := s.runs(j, "a", 0)
	for range 5 {
		s.record(j, batch...)
	}
	if after := s.runs(j, "a", 0); !reflect.DeepEqual(before, after) {
		s.Errorf("changed:\n%v\n%v", before, after)
	}
	if n := s.outputBytes("a"); n != len("some output") {
		s.Errorf("%d bytes of output stored", n)
	}
}

// lateRunning writes a running record long after the end. It must not be shown, and must not keep the record from being trimmed.
func lateRunning(s *suite) {
	j := s.journal(journal.Config{Runs: 3})
	s.record(j, s.ended("a", "late", journal.OutcomeOK, 100))
	s.record(j, s.running("a", "late", 100))
	s.expect(j, "a", "late ok")
	for i := range 5 {
		s.record(j, s.ended("a", fmt.Sprint(i), journal.OutcomeOK, 50-i))
	}
	s.expect(j, "a", "4 ok", "3 ok", "2 ok")
	if indexed, texts := s.stored("a"); indexed > 4 || texts > 4 {
		s.Errorf("%d entries and %d texts stored", indexed, texts)
	}
}

func fieldsSurvive(s *suite) {
	j := s.journal(journal.Config{})
	full := s.ended("a", "run-1", journal.OutcomeFailed, 7)
	full.Slot, full.Attempt, full.Token = new(3), 2, 1<<53-1
	full.Trigger, full.Reason, full.Signal = "recovery", `it "said" <this> & ü`, "SIGKILL"
	full.ExitCode, full.Output, full.OutputCut = new(0), new("line\nand \x00 more"), 12_345
	full.Finished = full.Started.Add(123456 * time.Microsecond)
	zone := time.FixedZone("elsewhere", 5400)
	given := full
	given.Tick, given.Started = given.Tick.In(zone), given.Started.In(zone)
	settled := journal.Record{RunID: "t", Job: "b", Tick: s.now, Trigger: "schedule", Outcome: journal.OutcomeMissed, Reason: "down"}
	s.record(j, given, settled)
	for _, want := range []journal.Record{full, settled} {
		got := s.runs(j, want.Job, 1)
		if len(got) != 1 || !reflect.DeepEqual(got[0], want) {
			s.Errorf("\n got %+v\nwant %+v", got, want)
		}
	}
	if got, err := j.Runs(s.ctx, "a", 1, false); err != nil || got[0].Output != nil {
		s.Errorf("output without being asked: %v, %v", got, err)
	}
}

func invalidRecords(s *suite) {
	j := s.journal(journal.Config{})
	good := s.ended("a", "good", journal.OutcomeOK, 1)
	for name, spoil := range map[string]func(*journal.Record){
		"no job":        func(r *journal.Record) { r.Job = "" },
		"braces":        func(r *journal.Record) { r.Job = "a}b" },
		"no id":         func(r *journal.Record) { r.RunID = "" },
		"bar in id":     func(r *journal.Record) { r.RunID = "a|b" },
		"space in id":   func(r *journal.Record) { r.RunID = "a b" },
		"long id":       func(r *journal.Record) { r.RunID = strings.Repeat("x", journal.MaxRunID+1) },
		"no outcome":    func(r *journal.Record) { r.Outcome = "" },
		"no time":       func(r *journal.Record) { r.Tick, r.Started, r.Finished = time.Time{}, time.Time{}, time.Time{} },
		"far future":    func(r *journal.Record) { r.Finished = r.Finished.AddDate(500, 0, 0) },
		"year too long": func(r *journal.Record) { r.Tick = r.Tick.AddDate(9000, 0, 0) },
	} {
		bad := s.ended("a", "bad", journal.OutcomeOK, 2)
		spoil(&bad)
		if err := j.Record(s.ctx, []journal.Record{bad, good}); !errors.Is(err, journal.ErrInvalid) {
			s.Errorf("%s: %v", name, err)
		}
		s.expect(j, "a", "good ok")
	}
	long := s.ended("long", "1", journal.OutcomeFailed, 1)
	long.Reason = journal.Reason(strings.Repeat("ü", journal.MaxText))
	s.record(j, long)
	if got := s.runs(j, "long", 1)[0].Reason; string(got) != strings.Repeat("ü", journal.MaxText/2) {
		s.Errorf("long reason: %q", got)
	}
	if err := j.Record(s.ctx, nil); err != nil {
		s.Errorf("nothing to record: %v", err)
	}
}

func ids(first, last int, outcome string) []string {
	var all []string
	for i := first; i >= last; i-- {
		all = append(all, fmt.Sprintf("%d %s", i, outcome))
	}
	return all
}

func boundedByRuns(s *suite) {
	j := s.journal(journal.Config{Runs: 10})
	for i := range 100 {
		s.record(j, s.running("a", fmt.Sprint(i), 100-i))
		if indexed, _ := s.stored("a"); indexed > 11 {
			s.Fatalf("%d entries stored", indexed)
		}
		s.record(j, s.ended("a", fmt.Sprint(i), journal.OutcomeOK, 100-i))
		if indexed, texts := s.stored("a"); indexed > 11 || texts > 11 {
			s.Fatalf("%d entries and %d texts stored", indexed, texts)
		}
	}
	s.expect(j, "a", ids(99, 90, "ok")...)
}

// boundedByWriters lets five replicas write the records of one job in random turns.
func boundedByWriters(s *suite) {
	const writers = 5
	var replicas []*journal.Journal
	for range writers {
		replicas = append(replicas, s.journal(journal.Config{Runs: 10}))
	}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 200 {
		s.record(replicas[random.IntN(writers)], s.ended("a", fmt.Sprint(i), journal.OutcomeOK, 200-i))
	}
	for i, j := range replicas { // so that all have written lately
		s.record(j, s.ended("a", fmt.Sprint(200+i), journal.OutcomeOK, -i))
	}
	if indexed, texts := s.stored("a"); indexed > 10+writers || texts != indexed {
		s.Errorf("%d entries and %d texts stored", indexed, texts)
	}
	s.expect(replicas[0], "a", ids(204, 195, "ok")...)
}

func loweredLimit(s *suite) {
	var batch []journal.Record
	for i := range 2500 {
		batch = append(batch, s.ended("a", fmt.Sprint(i), journal.OutcomeOK, 2500-i))
	}
	s.record(s.journal(journal.Config{Runs: 5000}), batch...)
	j := s.journal(journal.Config{Runs: 3})
	s.expect(j, "a", ids(2499, 2497, "ok")...)
	for i := range 5 {
		s.record(j, s.ended("a", fmt.Sprint(2500+i), journal.OutcomeOK, -i))
	}
	s.expect(j, "a", ids(2504, 2502, "ok")...)
	if indexed, texts := s.stored("a"); indexed > 4 || texts > 4 {
		s.Errorf("%d entries and %d texts stored", indexed, texts)
	}
}

func runningLast(s *suite) {
	j := s.journal(journal.Config{Runs: 5})
	s.record(j, s.running("a", "long", 1000), s.running("a", "longer", 2000))
	for i := range 50 {
		s.record(j, s.ended("a", fmt.Sprint(i), journal.OutcomeOK, 50-i))
	}
	s.expect(j, "a", append([]string{"long running", "longer running"}, ids(49, 47, "ok")...)...)
	end := s.ended("a", "longer", journal.OutcomeOK, 2000)
	end.Finished = s.now
	s.record(j, end)
	s.expect(j, "a", append([]string{"long running", "longer ok"}, ids(49, 47, "ok")...)...)
	for i := range 9 { // too many even of running ones: the oldest go
		s.record(j, s.running("a", fmt.Sprint(i), 9-i))
	}
	s.expect(j, "a", ids(8, 4, "running")...)
}

func tooOld(s *suite) {
	j := s.journal(journal.Config{MaxAge: time.Hour})
	s.record(j, s.ended("a", "2h", journal.OutcomeOK, 7200), s.running("a", "3h", 3*3600), s.ended("a", "59m", journal.OutcomeOK, 3540))
	s.expect(j, "a", "59m ok")
	s.record(j, s.ended("a", "now", journal.OutcomeOK, 1))
	s.record(j, s.ended("a", "again", journal.OutcomeOK, 0))
	s.expect(j, "a", "again ok", "now ok", "59m ok")
	if indexed, texts := s.stored("a"); indexed != 3 || texts != 3 {
		s.Errorf("%d entries and %d texts stored", indexed, texts)
	}
	old := s.ended("b", "old", journal.OutcomeOK, 7200)
	old.Output = new("old output")
	s.record(j, old)
	s.record(j, s.ended("b", "new", journal.OutcomeOK, 0))
	if n := s.outputBytes("b"); n != 0 {
		s.Errorf("%d bytes of old output stored", n)
	}
}

func allExpires(s *suite) {
	j := s.journal(journal.Config{MaxAge: 400 * time.Millisecond})
	r := s.ended("a", "1", journal.OutcomeOK, 0)
	r.Output = new("x")
	r.Finished = s.now.Add(time.Second)
	s.record(j, r)
	s.eventually("only the last success is stored", func() bool { return slices.Equal(s.allKeys(), []string{s.key("a", "streak"), s.key("a", "took")}) })
	s.expect(j, "")
}

func outputSizes(s *suite) {
	const limit = 4096 // two runs: blocks of 256 bytes
	j := s.journal(journal.Config{Runs: 2, MaxBytes: limit})
	for _, n := range []int{0, 1, 255, 256, 257, 4095, 4096, 4097, 100_000} {
		job := fmt.Sprintf("job-%d", n)
		text := bytes.Repeat([]byte("0123456789\x00\xff|}"), n/14+1)[:n]
		r := s.ended(job, "1", journal.OutcomeOK, 1)
		r.Output = new(string(text))
		s.record(j, r)
		want := string(text[max(0, n-limit):])
		if got := s.runs(j, job, 1)[0].Output; got == nil || *got != want {
			s.Errorf("output of %d bytes is not what was recorded", n)
		}
		if n := s.outputBytes(job); n != len(want) {
			s.Errorf("%d bytes stored for %d", n, len(want))
		}
	}
}

func oldestOutput(s *suite) {
	const limit = 10_240 // ten runs: 40 blocks of 256 bytes
	j := s.journal(journal.Config{Runs: 10, MaxBytes: limit})
	output := func(i int) string { return strings.Repeat(fmt.Sprint(i), 2560) }
	for i := range 10 {
		r := s.ended("a", fmt.Sprint(i), journal.OutcomeOK, 10-i)
		r.Output = new(output(i))
		s.record(j, s.running("a", r.RunID, 10-i))
		s.record(j, r)
		if n := s.outputBytes("a"); n > limit {
			s.Fatalf("%d bytes stored", n)
		}
	}
	s.expect(j, "a", ids(9, 0, "ok")...)
	for _, r := range s.runs(j, "a", 0) {
		if kept := r.RunID >= "6"; kept != (r.Output != nil) {
			s.Errorf("run %s: output kept: %v", r.RunID, !kept)
		} else if kept && *r.Output != output(int(r.RunID[0]-'0')) {
			s.Errorf("run %s: output damaged", r.RunID)
		}
	}
}

// smallOutputs checks that every record keeps its small output.
func smallOutputs(s *suite) {
	j := s.journal(journal.Config{Runs: 40, MaxBytes: 1 << 20})
	var batch []journal.Record
	for i := range 60 {
		r := s.ended("a", fmt.Sprint(i), journal.OutcomeOK, 60-i)
		r.Output = new(fmt.Sprint("output ", i))
		batch = append(batch, r)
	}
	s.record(j, batch...)
	records := s.runs(j, "a", 0)
	if got, want := describe(records), ids(59, 20, "ok"); !slices.Equal(got, want) {
		s.Fatalf("%q", got)
	}
	for _, r := range records {
		if r.Output == nil || *r.Output != "output "+r.RunID {
			s.Errorf("run %s: %v", r.RunID, r.Output)
		}
	}
}
