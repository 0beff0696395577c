package journaltest

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler/run"
)

// streak compares the streak of a job: the number of failures, the end of the first one, and the newest ok.
func (s *suite) streak(j *journal.Journal, job string, count int, since, lastOK time.Time) {
	s.Helper()
	all, err := j.Streaks(s.ctx, []string{job, "another"})
	if err != nil {
		s.Fatal(err)
	}
	if got := all[job]; got.Count != count || !got.Since.Equal(since) || !got.LastOK.Equal(lastOK) {
		s.Errorf("job %s: %d failures since %v, ok at %v; want %d since %v, ok at %v", job, got.Count, got.Since, got.LastOK, count, since, lastOK)
	}
	if got := all["another"]; got != (journal.Streak{}) {
		s.Errorf("a job without records: %+v", got)
	}
}

// streaks lets a job fail 1,000 times, more than the history keeps, with other outcomes in between that do not change a streak.
func streaks(s *suite) {
	j, other := s.journal(journal.Config{Runs: 3}), s.journal(journal.Config{Runs: 3})
	none := time.Time{}
	s.streak(j, "a", 0, none, none)
	ok, first := s.ended("a", "ok", journal.OutcomeOK, 5000), s.ended("a", "0", journal.OutcomeFailed, 4000)
	s.record(j, s.ended("a", "before", journal.OutcomeFailed, 6000), ok)
	s.streak(j, "a", 0, none, ok.Finished)
	s.record(other, first, first)
	s.streak(j, "a", 1, first.Finished, ok.Finished)
	for n := 1; n < 1000; n += 3 {
		tried := s.ended("a", fmt.Sprint("tried-", n), journal.OutcomeFailed, 4000-n)
		tried.Retried = true
		batch := []journal.Record{tried, s.ended("a", fmt.Sprint(n), run.Failures()[n%5], 4000-n), s.ended("a", fmt.Sprint(n+1), journal.OutcomeFailed, 3999-n),
			s.ended("a", fmt.Sprint("skipped-", n), journal.OutcomeSkipped, 3999-n), s.ended("a", fmt.Sprint("canceled-", n), journal.OutcomeCanceled, 3999-n),
			s.running("a", fmt.Sprint("running-", n), 3999-n), s.ended("a", fmt.Sprint(n+2), journal.OutcomeTimeout, 3998-n)}
		s.record(j, batch...)
		s.record(other, batch...) // as if the answer had been lost
	}
	s.streak(j, "a", 1000, first.Finished, ok.Finished)
	if members, err := s.client.ZCard(s.ctx, s.key("a", "streak")).Result(); err != nil || members > 125 {
		s.Errorf("%v, %d members of the set", err, members)
	}
	late := s.ended("a", "late", journal.OutcomeOK, 5500)
	s.record(j, late)
	s.streak(j, "a", 1000, first.Finished, ok.Finished)
	well := s.ended("a", "well", journal.OutcomeOK, 100)
	s.record(j, well)
	s.streak(j, "a", 0, none, well.Finished)
	s.record(j, s.ended("a", "slow-news", journal.OutcomeFailed, 200)) // which is older than that
	again := s.ended("a", "again", journal.OutcomeMissed, 50)
	s.record(j, again)
	s.streak(j, "a", 1, again.Finished, well.Finished)
}

// gap returns the records of 101 ticks of a job that were missed together.
func gap(s *suite, job string, ago int) (missed []journal.Record) {
	for n := range 101 {
		missed = append(missed, s.ended(job, fmt.Sprintf("%s.20261127T%06dZ", job, n), journal.OutcomeMissed, ago))
	}
	return missed
}

// streaksOfGaps checks failures that end at the same time, are reported by several replicas, or are reported late. Each counts once, also after folding.
func streaksOfGaps(s *suite) {
	j, other := s.journal(journal.Config{}), s.journal(journal.Config{})
	none, missed := time.Time{}, gap(s, "a", 500)
	s.record(j, missed...)
	for n := range 150 {
		s.record(j, s.ended("a", fmt.Sprint("later-", n), journal.OutcomeFailed, 400-n))
		s.streak(j, "a", 102+n, missed[0].Finished, none)
	}
	s.record(other, missed...)
	s.streak(j, "a", 251, missed[0].Finished, none)

	ok, first := s.ended("b", "ok", journal.OutcomeOK, 1000), s.ended("b", "0", journal.OutcomeFailed, 900)
	s.record(j, ok, first)
	for n := 1; n < 30; n++ {
		s.record(j, s.ended("b", fmt.Sprint(n), journal.OutcomeFailed, 900-n))
	}
	for range 2 {
		s.record(j, gap(s, "b", 500)...)
		s.streak(j, "b", 131, first.Finished, ok.Finished)
		s.record(other, gap(s, "b", 500)...)
		s.streak(j, "b", 131, first.Finished, ok.Finished)
	}
	s.record(other, s.ended("b", "reported-late", journal.OutcomeFailed, 950))
	s.streak(j, "b", 131, first.Finished, ok.Finished)
	for n := range 200 {
		s.record(j, s.ended("b", fmt.Sprint("later-", n), journal.OutcomeFailed, 400-n))
		s.streak(j, "b", 132+n, first.Finished, ok.Finished)
		if members, err := s.client.ZCard(s.ctx, s.key("b", "streak")).Result(); err != nil || members > 120 {
			s.Fatalf("%v, %d members of the set", err, members)
		}
	}
}

// streaksOfALateOK reports an ok late, with a time among the folded failures. The streak then counts only failures that are certainly newer, and AtLeast is
// set until the next ok.
func streaksOfALateOK(s *suite) {
	j := s.journal(journal.Config{})
	expect := func(want journal.Streak) {
		s.Helper()
		all, err := j.Streaks(s.ctx, []string{"a"})
		want.First = want.Since
		if err != nil || all["a"] != want {
			s.Errorf("%v, %+v, want %+v", err, all["a"], want)
		}
	}
	var failures []journal.Record
	for n := range 200 {
		failures = append(failures, s.ended("a", fmt.Sprint(n), journal.OutcomeFailed, 1000-n))
	}
	for _, r := range failures {
		s.record(j, r)
	}
	expect(journal.Streak{Count: 200, Since: failures[0].Finished})
	late := s.ended("a", "late", journal.OutcomeOK, 990) // after the first ten
	s.record(j, late)
	members, err := s.client.ZRangeWithScores(s.ctx, s.key("a", "streak"), 0, -1).Result()
	if err != nil || len(members) < 3 {
		s.Fatalf("%v, %d members", err, len(members))
	}
	known := len(members) - 1 // one is the ok, one the newest of the folded failures
	if known >= 190 {
		s.Fatalf("%d failures are kept one by one: none is folded", known)
	}
	since := failures[200-known].Finished
	expect(journal.Streak{Count: known, Since: since, LastOK: late.Finished, AtLeast: true})
	for n := range 100 { // they are folded again
		s.record(j, s.ended("a", fmt.Sprint("later-", n), journal.OutcomeFailed, 500-n))
	}
	expect(journal.Streak{Count: known + 100, Since: since, LastOK: late.Finished, AtLeast: true})
	well := s.ended("a", "well", journal.OutcomeOK, 100)
	s.record(j, well)
	expect(journal.Streak{LastOK: well.Finished})
	s.record(j, s.ended("a", "again", journal.OutcomeFailed, 90))
	expect(journal.Streak{Count: 1, Since: s.ended("a", "again", journal.OutcomeFailed, 90).Finished, LastOK: well.Finished})
}

// streaksOfLateReports writes all records of a run in every order. An abandoned run is no failure once its holder has reported another end.
func streaksOfLateReports(s *suite) {
	j := s.journal(journal.Config{})
	for i, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}, {2}, {1, 2}, {2, 1}} {
		for _, end := range []journal.Outcome{journal.OutcomeOK, journal.OutcomeCanceled, journal.OutcomeFailed} {
			job := fmt.Sprintf("%s-%d", end, i)
			ok, final := s.ended(job, "before", journal.OutcomeOK, 90), s.ended(job, "1", end, 60)
			words := []journal.Record{s.running(job, "1", 60), s.ended(job, "1", journal.OutcomeAbandoned, 50), final}
			s.record(j, ok)
			for _, k := range order {
				s.record(j, words[k])
			}
			switch end {
			case journal.OutcomeOK:
				s.streak(j, job, 0, time.Time{}, final.Finished)
			case journal.OutcomeCanceled:
				s.streak(j, job, 0, time.Time{}, ok.Finished)
			default:
				s.streak(j, job, 1, final.Finished, ok.Finished)
			}
		}
	}
	lost := s.ended("b", "1", journal.OutcomeAbandoned, 50)
	s.record(j, s.running("b", "1", 60), lost)
	s.streak(j, "b", 1, lost.Finished, time.Time{})
}

// streaksOfOtherEnds records runs that were canceled and ticks that were skipped, in every order. They are no failures, but signs of life. A pause is remembered
// beyond the next success, and when a long streak is folded.
func streaksOfOtherEnds(s *suite) {
	j := s.journal(journal.Config{})
	expect := func(job string, want journal.Streak) {
		s.Helper()
		all, err := j.Streaks(s.ctx, []string{job})
		if err != nil || all[job] != want {
			s.Errorf("job %s: %v, %+v, want %+v", job, err, all[job], want)
		}
	}
	skipped := func(job, id string, reason journal.Reason, ago int) journal.Record {
		r := s.ended(job, id, journal.OutcomeSkipped, ago)
		r.Reason, r.Started, r.Finished = reason, time.Time{}, r.Tick.Add(5*time.Second)
		return r
	}
	canceled, overlap, failed := s.ended("a", "1", journal.OutcomeCanceled, 1000), skipped("a", "2", "overlap", 900), s.ended("a", "3", journal.OutcomeFailed, 950)
	paused, later := skipped("a", "4", "paused", 800), skipped("a", "5", "paused", 700)
	all := []journal.Record{canceled, overlap, failed, paused, later}
	for i := range all {
		job := fmt.Sprint("job", i)
		for k := range all {
			r := all[(i+k)%len(all)]
			r.Job = job
			s.record(j, s.running(job, r.RunID, 2000), r)
		}
		want := journal.Streak{Count: 1, Since: failed.Finished, First: canceled.Finished, Paused: later.Tick}
		expect(job, want)
		ok := s.ended(job, "ok", journal.OutcomeOK, 600)
		s.record(j, ok)
		want = journal.Streak{LastOK: ok.Finished, Paused: later.Tick}
		expect(job, want)
		many := skipped(job, "many", "paused", 650) // the first of several ticks, which were settled later
		many.Ticks, many.Finished = 3, s.now.Add(-500*time.Second)
		s.record(j, many)
		want.First, want.Paused = many.Finished, many.Finished
		expect(job, want)
		for n := range 200 {
			s.record(j, s.ended(job, fmt.Sprint("failed", n), journal.OutcomeFailed, 400-n))
		}
		want.Count, want.Since = 200, s.ended(job, "", journal.OutcomeFailed, 400).Finished
		expect(job, want)
	}
	first := s.ended("b", "1", journal.OutcomeMissed, 90)
	s.record(j, s.ended("b", "2", journal.OutcomeCanceled, 80), first)
	expect("b", journal.Streak{Count: 1, Since: first.Finished, First: first.Finished})
}

// durations keeps the newest ones of a job, in whatever order and however often they are reported, and whatever is recorded between them.
func durations(s *suite) {
	j := s.journal(journal.Config{Runs: 3})
	for _, n := range []int{5, 1, 2, 14, 13, 0, 3, 4, 6, 6, 7, 8, 11, 9, 10, 12, 1} {
		r := s.ended("a", fmt.Sprint(n), journal.OutcomeOK, 100-n)
		r.DurationMS = new(int64(n))
		s.record(j, r, s.ended("a", fmt.Sprint("failed", n), journal.OutcomeFailed, 0), s.ended("a", fmt.Sprint("skipped", n), journal.OutcomeSkipped, 0))
	}
	var want []time.Duration
	for n := 5; n < 15; n++ {
		want = append(want, time.Duration(n)*time.Millisecond)
	}
	got, err := j.Durations(s.ctx, []string{"a", "b"})
	if err != nil || !reflect.DeepEqual(got, map[string][]time.Duration{"a": want}) {
		s.Errorf("%v, %v", err, got)
	}
	if n := s.client.ZCard(s.ctx, s.key("a", "took")).Val(); n != 10 {
		s.Errorf("%d durations are stored", n)
	}
	for _, name := range []string{"took", "streak"} {
		if ttl := s.client.PTTL(s.ctx, s.key("a", name)).Val(); ttl <= 366*24*time.Hour || ttl > 400*24*time.Hour {
			s.Errorf("%s is kept for %v", name, ttl)
		}
	}
	s.client.ZAdd(s.ctx, s.key("a", "took"), redis.Z{Score: float64(s.now.UnixMicro()), Member: "foreign"})
	if got, err = j.Durations(s.ctx, []string{"a"}); !errors.Is(err, journal.ErrCorrupt) || !reflect.DeepEqual(got["a"], want[1:]) {
		s.Errorf("%v, %v", err, got)
	}
	must(s, j.ForgetFacts(s.ctx, "a", "b"))
	if got, err = j.Durations(s.ctx, []string{"a"}); err != nil || len(got) > 0 {
		s.Errorf("%v, %v", err, got)
	}
	s.streak(j, "a", 0, time.Time{}, time.Time{})
	s.expect(j, "a", describe(s.runs(j, "a", 0))...)
}

// runsByID reads runs in progress and ended ones, beyond the newest of the job.
func runsByID(s *suite) {
	j := s.journal(journal.Config{})
	for n := range 20 {
		s.record(j, s.running("a", fmt.Sprint(n), 100-n))
	}
	s.record(j, s.ended("a", "3", journal.OutcomeOK, 50), s.running("b", "0", 10), s.running("a@web-1.example", "0", 10))
	got, err := j.RunsByID(s.ctx, map[string][]string{"a": {"3", "none", "0", "no\nid"}, "b": {"0"}, "a@web-1.example": {"0"}, "c": {"0"}, "no name": {"0"}, "d": nil})
	if err != nil || len(got) != 3 || len(got["a@web-1.example"]) != 1 || !reflect.DeepEqual(describe(got["a"]), []string{"3 ok", "0 running"}) || !reflect.DeepEqual(describe(got["b"]), []string{"0 running"}) {
		s.Errorf("%v, %+v", err, got)
	}
}

// failuresOfAWindow reads failures among many other runs. Failures beyond the limit, or whose records were removed, are only counted.
func failuresOfAWindow(s *suite) {
	j := s.journal(journal.Config{Runs: 3})
	expect := func(what string, from, most int, jobs string, more, removed int, want ...string) {
		s.Helper()
		found, err := j.FailuresBetween(s.ctx, journal.FailuresRequest{From: s.now.Add(-time.Duration(from) * time.Second), Until: s.now, Most: most,
			Includes: func(job string) bool { return strings.Contains(jobs, job) }})
		if got := describe(found.Records); err != nil || !reflect.DeepEqual(got, want) || found.More != more || found.Removed != removed || !found.Since.IsZero() {
			s.Errorf("%s: %v, %q, %d more, %d removed, since %v; want %q, %d, %d", what, err, got, found.More, found.Removed, found.Since, want, more, removed)
		}
	}
	expect("nothing", 1000, 10, "abc", 0, 0)
	s.record(j, s.ended("a", "removed", journal.OutcomeFailed, 100))
	for n := range 10 {
		s.record(j, s.ended("a", fmt.Sprint("ok-", n), journal.OutcomeOK, 90-n))
	}
	tried := s.ended("b", "tried", journal.OutcomeFailed, 45)
	tried.Retried = true
	s.record(j, s.ended("b", "1", journal.OutcomeMissed, 50), tried, s.ended("b", "2", journal.OutcomeSkipped, 40), s.ended("b", "3", journal.OutcomeTimeout, 30))
	s.record(j, s.running("c", "1", 60), s.ended("c", "1", journal.OutcomeAbandoned, 20), s.ended("c", "2", journal.OutcomeAbandoned, 10))
	expect("all", 1000, 10, "abc", 0, 1, "2 abandoned", "1 abandoned", "3 timeout", "1 missed")
	s.record(j, s.ended("c", "1", journal.OutcomeOK, 60)) // the holder was only cut off
	expect("a run that was well", 1000, 10, "abc", 0, 1, "2 abandoned", "3 timeout", "1 missed")
	expect("one job", 1000, 10, "b", 0, 0, "3 timeout", "1 missed")
	expect("a short window", 35, 10, "abc", 0, 0, "2 abandoned", "3 timeout")
	expect("the newest", 1000, 2, "abc", 1, 1, "2 abandoned", "3 timeout")

	old := make([]redis.Z, journal.MaxFailures)
	for i := range old {
		old[i] = redis.Z{Score: float64(s.now.Add(-time.Hour).UnixMicro() + int64(i)), Member: fmt.Sprint("d|", i)}
	}
	if err := s.client.ZAdd(s.ctx, "cronclave:"+s.namespace+":failures", old...).Err(); err != nil {
		s.Fatal(err)
	}
	s.record(j, s.ended("b", "4", journal.OutcomeFailed, 5))
	for _, tc := range []struct{ most, records, more, removed int }{
		{1, 1, journal.MaxFailures - 500 + 2, 500 - 4}, // three of the newest 500 have a record of a failure, and one was well
		{10, 3, journal.MaxFailures - 2000, 2000 - 4},  // the reading ends
	} {
		found, err := j.FailuresBetween(s.ctx, journal.FailuresRequest{From: s.now.Add(-2 * time.Hour), Until: s.now, Includes: func(string) bool { return true }, Most: tc.most})
		if err != nil || found.More != tc.more || found.Removed != tc.removed || len(found.Records) != tc.records || describe(found.Records)[0] != "4 failed" || found.Since.Before(s.now.Add(-time.Hour)) {
			s.Errorf("at most %d: %v, %d more, %d removed, since %v, %q", tc.most, err, found.More, found.Removed, found.Since, describe(found.Records))
		}
	}
}
