package journaltest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/journal"
)

func orderAndLimits(s *suite) {
	j := s.journal(journal.Config{})
	long := s.ended("b", "long", journal.OutcomeOK, 1000)
	long.Finished = s.now.Add(-1)
	s.record(j, s.ended("a", "1", journal.OutcomeOK, 30), long, s.running("a", "2", 500),
		s.ended("a", "3", journal.OutcomeFailed, 10), s.ended("c", "4", journal.OutcomeOK, 20))
	all := []string{"2 running", "long ok", "3 failed", "4 ok", "1 ok"}
	s.expect(j, "", all...)
	s.expect(j, "a", "2 running", "3 failed", "1 ok")
	s.expect(j, "nobody")
	for n := 1; n < 7; n++ {
		want := all[:min(n, len(all))]
		if got := describe(s.runs(j, "", n)); !slices.Equal(got, want) {
			s.Errorf("newest %d: %q", n, got)
		}
	}
}

func recentOfEach(s *suite) {
	j := s.journal(journal.Config{})
	s.record(j, s.ended("a", "1", journal.OutcomeOK, 30), s.ended("a", "2", journal.OutcomeFailed, 20),
		s.ended("b", "3", journal.OutcomeOK, 1), s.running("b", "4", 90))
	for n, want := range map[int][]string{1: {"2 failed", "4 running"}, 2: {"2 failed", "1 ok", "4 running", "3 ok"}, 3: {"2 failed", "1 ok", "4 running", "3 ok"}} {
		recent, err := j.Recent(s.ctx, []string{"a", "b", "nobody"}, n)
		if got := describe(slices.Concat(recent["a"], recent["b"])); err != nil || len(recent) != 2 || !slices.Equal(got, want) {
			s.Errorf("%d of each: %q, %v; want %q", n, got, err, want)
		}
	}
}

func manyJobs(s *suite) {
	j := s.journal(journal.Config{Runs: 2})
	for i := range 3 {
		var batch []journal.Record
		for job := range 600 { // more than fits in one round trip
			batch = append(batch, s.ended(fmt.Sprintf("job-%d", job), fmt.Sprint(i), journal.OutcomeOK, 10-i))
		}
		s.record(j, batch...)
	}
	if n := len(s.runs(j, "", 0)); n != 1200 {
		s.Errorf("%d records of 600 jobs", n)
	}
	s.expect(j, "job-599", "2 ok", "1 ok")
}

func damage(s *suite) {
	j := s.journal(journal.Config{})
	s.record(j, s.ended("a", "1", journal.OutcomeOK, 5), s.ended("a", "2", journal.OutcomeOK, 4), s.ended("a", "gone", journal.OutcomeOK, 3))
	foreign := map[string]string{"list": `[1]`, "empty": ``, "number": `7`, "other": `{"run_id":"x","job":"a","outcome":"ok"}`,
		"types": `{"run_id":7}`, "binary": "\xff\x00", "deep": strings.Repeat("[", 20000)}
	for id, text := range foreign {
		s.client.ZAdd(s.ctx, s.key("a", "runs"), redis.Z{Score: float64(s.now.UnixMicro()), Member: id})
		s.client.HSet(s.ctx, s.key("a", "records"), "e"+id, text)
	}
	s.client.ZAdd(s.ctx, s.key("a", "runs"), redis.Z{Score: float64(s.now.UnixMicro()), Member: "no\nid"})
	s.client.HDel(s.ctx, s.key("a", "records"), "egone")
	for _, job := range []string{"a", ""} {
		records, err := j.Runs(s.ctx, job, 0, true)
		if !errors.Is(err, journal.ErrCorrupt) {
			s.Errorf("error: %v", err)
		}
		for id := range foreign {
			if !strings.Contains(err.Error(), "run "+id+" of job a") || !strings.Contains(err.Error(), s.key("a", "records")) || !strings.Contains(err.Error(), s.key("a", "runs")) {
				s.Errorf("nothing is said of %s: %v", id, err)
			}
		}
		if got := describe(records); !slices.Equal(got, []string{"2 ok", "1 ok"}) {
			s.Errorf("good records: %q", got)
		}
	}
	s.record(j, s.ended("a", "3", journal.OutcomeOK, 0)) // writing goes on
}

func foreignKeys(s *suite) {
	j := s.journal(journal.Config{Runs: 1})
	for _, key := range []string{s.key("bad", "runs"), s.key("worse", "records"), s.key("worst", "output")} {
		s.client.Set(s.ctx, key, "not ours", 0)
	}
	for i := range 5 {
		var batch []journal.Record
		for _, job := range []string{"bad", "good", "worse", "worst"} {
			r := s.ended(job, fmt.Sprint(i), journal.OutcomeOK, 9-i)
			r.Output = new("text")
			batch = append(batch, r)
		}
		err := j.Record(s.ctx, batch)
		if !errors.Is(err, journal.ErrCorrupt) || !strings.Contains(err.Error(), s.key("bad", "runs")) {
			s.Errorf("error: %v", err)
		}
	}
	s.expect(j, "good", "4 ok")
	if indexed, _ := s.stored("good"); indexed > 2 {
		s.Errorf("%d entries of the good job", indexed)
	}
	records, err := j.Runs(s.ctx, "", 0, true)
	if got := describe(records); !errors.Is(err, journal.ErrCorrupt) || !slices.Equal(got, []string{"4 ok", "4 ok"}) {
		s.Errorf("%q, %v", got, err)
	}
}

func keys(s *suite) {
	j := s.journal(journal.Config{})
	r := s.ended("a", "1", journal.OutcomeOK, 1)
	r.Output = new("x")
	s.record(j, r)
	must(s, j.ClaimFormat(s.ctx))
	s.register(j, s.replica("id"), hour)
	must(s, j.DescribeJobs(s.ctx, []journal.JobInfo{s.job("a")}))
	var want []string
	for _, name := range []string{"epoch", "format", "history", "jobs", "replica:id", "replicas", "{a}:output", "{a}:records", "{a}:runs", "{a}:streak"} {
		want = append(want, "cronclave:"+s.namespace+":"+name)
	}
	if got := s.allKeys(); !reflect.DeepEqual(got, want) {
		s.Errorf("keys: %q", got)
	}
}

func namespaces(s *suite) {
	j, other := s.journal(journal.Config{}), s.journal(journal.Config{Namespace: s.namespace + "-other"})
	s.record(j, s.ended("a", "1", journal.OutcomeOK, 1))
	s.register(j, s.replica("id"), hour)
	must(s, j.DescribeJobs(s.ctx, []journal.JobInfo{s.job("a")}))
	s.expect(other, "")
	s.expect(other, "a")
	replicas, err := other.Replicas(s.ctx)
	jobs, err2 := other.Jobs(s.ctx)
	if len(replicas)+len(jobs) > 0 || err != nil || err2 != nil {
		s.Errorf("seen from elsewhere: %v %v, %v %v", replicas, jobs, err, err2)
	}
}
