package journaltest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

// ids are the names of runs from first down to last.
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

// boundedByWriters lets five replicas write one job in turns that are not fair.
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
	s.eventually("nothing is stored", func() bool { return len(s.allKeys()) == 0 })
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

// smallOutputs checks that small ones do not push each other out: each of the
// records has its own.
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
