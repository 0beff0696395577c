package journaltest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

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
	j := s.journal(journal.Config{Runs: 1})
	for i := range 2 {
		var batch []journal.Record
		for job := range 600 { // more than fits in one round trip
			batch = append(batch, s.ended(fmt.Sprintf("job-%d", job), fmt.Sprint(i), journal.OutcomeOK, 10-i))
		}
		s.record(j, batch...)
	}
	if n := len(s.runs(j, "", 0)); n != 600 {
		s.Errorf("%d records of 600 jobs", n)
	}
	s.expect(j, "job-599", "1 ok")
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
	for _, name := range []string{"epoch", "format", "history", "jobs", "replica:id", "replicas", "{a}:output", "{a}:records", "{a}:runs", "{a}:streak", "{a}:took"} {
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

// incidents checks reports of several replicas: overlapping ones are merged, old and surplus ones are removed, and future ones are not listed.
func incidents(s *suite) {
	j := s.journal(journal.Config{})
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	now := at.Add(24 * 10 * time.Hour)
	note := func(kind, replica string, from, to time.Duration) {
		s.Helper()
		must(s, j.NoteIncident(s.ctx, journal.Incident{Kind: kind, Replica: replica, Interval: journal.Interval{From: at.Add(from), To: at.Add(to)}}))
	}
	expect := func(want ...string) {
		s.Helper()
		all, err := j.Incidents(s.ctx, now)
		must(s, err)
		var got []string
		for _, in := range all {
			got = append(got, fmt.Sprintf("%s %v-%v %s", in.Kind, in.From.Sub(at), in.To.Sub(at), in.Replica))
		}
		if strings.Join(got, ", ") != strings.Join(want, ", ") {
			s.Errorf("%q, want %q", got, want)
		}
	}
	key := "cronclave:" + s.namespace + ":incidents"
	expect()
	note(journal.Outage, "r1", 0, 10*time.Second)
	note(journal.Outage, "r2", time.Second, 11*time.Second) // the same
	note(journal.DataLoss, "r2", 5*time.Second, 11*time.Second)
	note(journal.Outage, "r3", 2*time.Second, 17*time.Second)
	note(journal.Outage, "r1", time.Minute, time.Minute+3*time.Second)
	note(journal.Outage, "r2", time.Minute-30*time.Second, time.Minute+3*time.Second) // the longest report comes last
	note(journal.Outage, "r1", time.Minute, time.Minute+3*time.Second)                // once more
	if n := s.client.HLen(s.ctx, key).Val(); n != 6 {
		s.Errorf("%d reports", n)
	}
	expect("outage 30s-1m3s r2", "outage 0s-17s r1", "data_loss 5s-11s r2")
	now = at.Add(time.Minute)
	expect("outage 0s-17s r1", "data_loss 5s-11s r2")
	now = at.Add(24 * 10 * time.Hour)
	if ttl := s.client.PTTL(s.ctx, key).Val(); ttl <= 0 || ttl > 7*24*time.Hour {
		s.Errorf("time to live %v", ttl)
	}
	for n := range 320 {
		after := time.Duration(n+2) * time.Minute
		note(journal.Outage, "r1", after, after+time.Second)
	}
	if n := s.client.HLen(s.ctx, key).Val(); n != 300+1 { // the outages, and the loss of data before them
		s.Errorf("%d reports are kept", n)
	}
	note(journal.DataLoss, "r1", 24*9*time.Hour, 24*9*time.Hour)
	expect("data_loss 216h0m0s-216h0m0s r1")
	must(s, s.client.HSet(s.ctx, key, "outage 1", "{", "outage 2", `{"kind":"flood"}`).Err())
	if all, err := j.Incidents(s.ctx, now); len(all) != 1 || !errors.Is(err, journal.ErrCorrupt) {
		s.Errorf("beside damage: %v, %v", all, err)
	}
	if err := j.NoteIncident(s.ctx, journal.Incident{Kind: "flood", Replica: "r1"}); !errors.Is(err, journal.ErrInvalid) {
		s.Error(err)
	}
}

func lockUses(s *suite) {
	j := s.journal(journal.Config{})
	use := func(id string) journal.LockUse {
		return journal.LockUse{ID: id, Lock: "deploy", Pool: id == "c", Slots: 2, Owner: "host (pid 7)", Since: s.now}
	}
	uses := func(now time.Time) []journal.LockUse {
		s.Helper()
		got, err := j.LockUses(s.ctx, now)
		must(s, err)
		slices.SortFunc(got, func(a, b journal.LockUse) int { return strings.Compare(a.ID, b.ID) })
		return got
	}
	for _, id := range []string{"a", "b", "c"} {
		must(s, j.NoteLock(s.ctx, use(id), s.now, s.now.Add(hour)))
	}
	must(s, j.NoteLock(s.ctx, use("a"), s.now, s.now.Add(2*hour))) // stays for longer
	if got := uses(s.now); !reflect.DeepEqual(got, []journal.LockUse{use("a"), use("b"), use("c")}) {
		s.Errorf("uses: %+v", got)
	}
	must(s, j.DropLock(s.ctx, use("b")))
	must(s, j.DropLock(s.ctx, use("never-there")))
	if got := uses(s.now); len(got) != 2 {
		s.Errorf("after DropLock: %+v", got)
	}
	if got := uses(s.now.Add(90 * time.Minute)); len(got) != 1 || got[0].ID != "a" {
		s.Errorf("later: %+v", got)
	}
	must(s, j.NoteLock(s.ctx, use("d"), s.now.Add(90*time.Minute), s.now.Add(3*hour)))
	if got := uses(s.now); len(got) != 2 {
		s.Errorf("those of the past are removed: %+v", got)
	}
	if err := j.NoteLock(s.ctx, journal.LockUse{ID: "e", Lock: "no name"}, s.now, s.now.Add(hour)); !errors.Is(err, journal.ErrInvalid) {
		s.Errorf("an invalid use: %v", err)
	}
	for _, text := range []string{"{", `{"id":"x","lock":"deploy","slots":0}`} {
		must(s, s.client.ZAdd(s.ctx, "cronclave:"+s.namespace+":locks", redis.Z{Score: float64(s.now.Add(hour).UnixMilli()), Member: text}).Err())
	}
	if got, err := j.LockUses(s.ctx, s.now); !errors.Is(err, journal.ErrCorrupt) || len(got) != 2 {
		s.Errorf("beside damage: %+v, %v", got, err)
	}
	if ttl := s.client.PTTL(s.ctx, "cronclave:"+s.namespace+":locks").Val(); ttl <= 0 || ttl > 2*hour {
		s.Errorf("the key is kept for %v", ttl)
	}
}

// sessionSecrets checks that all replicas get one secret, that a replica which knows it restores it after a loss of data, and that no error contains it.
func sessionSecrets(s *suite) {
	j, other := s.journal(journal.Config{}), s.journal(journal.Config{})
	key := "cronclave:" + s.namespace + ":session-secret"
	read := func(j *journal.Journal, known string) string {
		s.Helper()
		secret, err := j.SessionSecret(s.ctx, known)
		must(s, err)
		return secret
	}
	var found [4]string
	var together sync.WaitGroup
	for i := range found {
		together.Go(func() { found[i], _ = j.SessionSecret(s.ctx, "") })
	}
	together.Wait()
	first := found[0]
	if len(first) != 64 || found != [4]string{first, first, first, first} {
		s.Errorf("secrets %q", found)
	}
	if read(other, "") != first || read(other, strings.Repeat("0", 64)) != first {
		s.Error("another replica has another secret")
	}
	if ttl, err := s.client.PTTL(s.ctx, key).Result(); err != nil || ttl >= 0 || !journal.IsSecretKey(key) {
		s.Errorf("%s ends in %v: %v", key, ttl, err)
	}
	s.client.Del(s.ctx, key)
	if read(other, first) != first || read(j, "") != first {
		s.Error("the secret is not restored")
	}
	s.client.Del(s.ctx, key)
	if read(j, "") == first {
		s.Error("the secret is not random")
	}
	for _, damaged := range []string{"", first[1:], first + "0", strings.Repeat("x", 64)} {
		s.client.Set(s.ctx, key, damaged, 0)
		if got, err := j.SessionSecret(s.ctx, first); got != "" || !errors.Is(err, journal.ErrCorrupt) || !strings.Contains(err.Error(), key) || strings.Contains(err.Error(), first[2:]) {
			s.Errorf("%q is taken for a secret: %q, %v", damaged, got, err)
		}
	}
	s.client.Del(s.ctx, key)
	s.client.HSet(s.ctx, key, "a", "b")
	if _, err := j.SessionSecret(s.ctx, first); !errors.Is(err, journal.ErrCorrupt) || !strings.Contains(err.Error(), key) {
		s.Errorf("a hash: %v", err)
	}
}
