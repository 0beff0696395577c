package journaltest

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

const hour = time.Hour

func must(s *suite, err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *suite) replica(id string) journal.Replica {
	return journal.Replica{ID: id, Name: "host", Version: "1.2.3", Started: s.now.Add(-hour), Seen: s.now,
		ConfigDigest: "0123456789abcdef", ClockOffsetMS: -12, Running: 3, Labels: map[string]string{"zone": "a"}}
}

// register returns whether the replica was known before.
func (s *suite) register(j *journal.Journal, r journal.Replica, ttl time.Duration) (known bool) {
	s.Helper()
	known, err := j.Register(s.ctx, r, ttl)
	must(s, err)
	return known
}

func (s *suite) job(name string) journal.JobInfo {
	return journal.JobInfo{Name: name, Schedule: []string{"* * * * *", "@every 90s"}, Timezone: "Europe/Berlin",
		Parallel: 4, PerTick: 2, Digest: "0123456789abcdef", Enabled: true, Where: map[string]string{"zone": "a"}, Seen: s.now}
}

func (s *suite) replicaIDs(j *journal.Journal) []string {
	s.Helper()
	replicas, err := j.Replicas(s.ctx)
	must(s, err)
	var ids []string
	for _, r := range replicas {
		ids = append(ids, r.ID)
	}
	return ids
}

func replicas(s *suite) {
	j := s.journal(journal.Config{})
	a, b, c := s.replica("a"), s.replica("b"), s.replica("c")
	a.Name, b.Name, c.Name = "z", "y", "z"
	s.register(j, c, hour)
	s.register(j, a, hour)
	s.register(j, b, 400*time.Millisecond)
	a.Running, a.Draining, a.Labels = 0, true, nil
	s.register(j, a, hour)
	got, err := j.Replicas(s.ctx)
	must(s, err)
	got = slices.DeleteFunc(got, func(r journal.Replica) bool { return r.ID == "b" }) // on a slow machine it has gone
	if !reflect.DeepEqual(got, []journal.Replica{a, c}) {
		s.Errorf("replicas: %+v", got)
	}
	s.eventually("b has expired", func() bool { return slices.Equal(s.replicaIDs(j), []string{"a", "c"}) })
	s.claimedOnce(j, "b")
	must(s, j.Deregister(s.ctx, "a"))
	must(s, j.Deregister(s.ctx, "never there"))
	if ids := s.replicaIDs(j); !slices.Equal(ids, []string{"c"}) {
		s.Errorf("after Deregister: %q", ids)
	}
	later := s.replica("d")
	later.Seen = s.now.Add(11 * hour)
	s.register(j, later, hour)
	n, err := s.client.ZCard(s.ctx, "cronclave:"+s.namespace+":replicas").Result()
	if err != nil || n != 1 {
		s.Errorf("the index has %d entries, %v", n, err)
	}
	s.register(j, c, hour)
	if ids := s.replicaIDs(j); !slices.Equal(ids, []string{"d", "c"}) {
		s.Errorf("one that was away: %q", ids)
	}
}

// claimedOnce demands that one replica is lost, and that one of two callers is to say so.
func (s *suite) claimedOnce(j *journal.Journal, id string) {
	for i, want := range []bool{true, false} {
		lost, err := j.LostReplicas(s.ctx)
		must(s, err)
		if found := slices.ContainsFunc(lost, func(r journal.LostReplica) bool { return r.ID == id && r.Seen.Equal(s.now.Truncate(time.Millisecond)) }); found != want || len(lost) > 1 {
			s.Errorf("look %d: lost %+v", i, lost)
		}
		claimed, err := j.ClaimLost(s.ctx, journal.LostReplica{ID: id, Seen: s.now}, "lost")
		must(s, err)
		if claimed != want {
			s.Errorf("look %d: claimed %v", i, claimed)
		}
		recent, err := j.RecentlyLost(s.ctx)
		must(s, err)
		if len(recent) != 1 || recent[0] != (journal.NamedLost{Name: "lost", Seen: s.now.Truncate(time.Millisecond).UTC()}) {
			s.Errorf("look %d: recently lost %+v", i, recent)
		}
	}
	successor := s.replica("successor")
	successor.Name = "lost"
	s.register(j, successor, hour)
	must(s, j.Deregister(s.ctx, successor.ID))
	if recent, err := j.RecentlyLost(s.ctx); err != nil || len(recent) > 0 {
		s.Errorf("after a successor: recently lost %+v, %v", recent, err)
	}
	s.lossIsClaimedBesideDamage(j)
}

// lossIsClaimedBesideDamage has the list of lost names be of another type: a lost replica is claimed all the same.
func (s *suite) lossIsClaimedBesideDamage(j *journal.Journal) {
	s.register(j, s.replica("beside"), hour)
	s.client.Del(s.ctx, "cronclave:"+s.namespace+":replica:beside")
	s.client.Set(s.ctx, "cronclave:"+s.namespace+":lost", "text", 0)
	claimed, err := j.ClaimLost(s.ctx, journal.LostReplica{ID: "beside", Seen: s.now}, "beside")
	if !claimed || err == nil {
		s.Errorf("beside a damaged list: claimed %v, %v", claimed, err)
	}
	if _, err := j.RecentlyLost(s.ctx); !errors.Is(err, journal.ErrCorrupt) {
		s.Errorf("of a damaged list: %v", err)
	}
	s.client.Del(s.ctx, "cronclave:"+s.namespace+":lost")
}

func forgottenReplica(s *suite) {
	j := s.journal(journal.Config{})
	a := s.replica("a")
	for i, want := range []bool{false, true, true} {
		if known := s.register(j, a, hour); known != want {
			s.Errorf("registration %d: known %v", i, known)
		}
	}
	s.client.Del(s.ctx, "cronclave:"+s.namespace+":replica:a")
	if s.register(j, s.replica("b"), hour) || s.register(j, a, hour) {
		s.Error("known though it was not there")
	}
	must(s, j.Deregister(s.ctx, "b"))
	if s.register(j, s.replica("b"), hour) || !s.register(j, a, hour) {
		s.Error("the one that left is known, or the other is not")
	}
}

func foreignReplicas(s *suite) {
	j := s.journal(journal.Config{})
	s.register(j, s.replica("a"), hour)
	for id, text := range map[string]string{"b": "not json", "c": `{"id":"x"}`, "d": `[]`} {
		s.register(j, s.replica(id), hour)
		s.client.Set(s.ctx, "cronclave:"+s.namespace+":replica:"+id, text, 0)
	}
	s.register(j, s.replica("e"), hour)
	s.client.Del(s.ctx, "cronclave:"+s.namespace+":replica:e")
	s.client.SAdd(s.ctx, "cronclave:"+s.namespace+":replica:e", "of another type")
	replicas, err := j.Replicas(s.ctx)
	if !errors.Is(err, journal.ErrCorrupt) || len(replicas) != 1 || replicas[0].ID != "a" {
		s.Errorf("%+v, %v", replicas, err)
	}
	for _, bad := range []journal.Replica{{}, {ID: "a"}, {ID: "a b", Seen: s.now}} {
		if _, err := j.Register(s.ctx, bad, hour); !errors.Is(err, journal.ErrInvalid) {
			s.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := j.Register(s.ctx, s.replica("a"), 0); !errors.Is(err, journal.ErrInvalid) {
		s.Errorf("no ttl: %v", err)
	}
}

func jobs(s *suite) {
	j := s.journal(journal.Config{})
	a, b, c := s.job("a"), s.job("b"), s.job("c")
	a.Where = nil
	a.Except, a.ExceptDates, a.StartsAt, a.ExpiresAt = []string{"0 0 * * 7"}, []string{"2026-12-25"}, s.now.Add(-hour), s.now.Add(hour)
	must(s, j.DescribeJobs(s.ctx, nil))
	must(s, j.DescribeJobs(s.ctx, []journal.JobInfo{b, a, c}))
	b.Seen, c.Seen, c.Enabled = s.now.Add(hour), s.now.Add(hour), false
	must(s, j.DescribeJobs(s.ctx, []journal.JobInfo{b, c}))
	got, err := j.Jobs(s.ctx)
	if err != nil || !reflect.DeepEqual(got, []journal.JobInfo{a, b, c}) {
		s.Errorf("%+v, %v", got, err)
	}
	if gone, err := j.ForgetJobs(s.ctx, s.now); err != nil || len(gone) > 0 {
		s.Errorf("forgotten too early: %q, %v", gone, err)
	}
	s.client.HSet(s.ctx, "cronclave:"+s.namespace+":jobs", "foreign", "not json")
	got, err = j.Jobs(s.ctx)
	if !errors.Is(err, journal.ErrCorrupt) || len(got) != 3 {
		s.Errorf("beside a foreign entry: %+v, %v", got, err)
	}
	gone, err := j.ForgetJobs(s.ctx, s.now.Add(time.Minute))
	if err != nil || !slices.Equal(gone, []string{"a", "foreign"}) {
		s.Errorf("forgotten: %q, %v", gone, err)
	}
	if got, err = j.Jobs(s.ctx); err != nil || !reflect.DeepEqual(got, []journal.JobInfo{b, c}) {
		s.Errorf("left: %+v, %v", got, err)
	}
	s.goneJobs(j, a)
	for _, bad := range []journal.JobInfo{{Name: "a"}, {Name: "a b", Seen: s.now}, {Seen: s.now}} {
		if err := j.DescribeJobs(s.ctx, []journal.JobInfo{bad}); !errors.Is(err, journal.ErrInvalid) {
			s.Errorf("%+v: %v", bad, err)
		}
	}
}

// goneJobs: a name is kept after the job was forgotten, until it is dropped or described again.
func (s *suite) goneJobs(j *journal.Journal, a journal.JobInfo) {
	gone := func(want map[string]time.Time) {
		s.Helper()
		got, err := j.GoneJobs(s.ctx)
		if err != nil || !maps.EqualFunc(got, want, time.Time.Equal) {
			s.Errorf("gone: %v, %v; want %v", got, err, want)
		}
	}
	gone(map[string]time.Time{"a": a.Seen.Truncate(time.Millisecond)})
	must(s, j.DescribeJobs(s.ctx, []journal.JobInfo{a}))
	gone(nil)
	again, err := j.ForgetJobs(s.ctx, s.now.Add(time.Minute))
	if err != nil || !slices.Equal(again, []string{"a"}) {
		s.Errorf("forgotten again: %q, %v", again, err)
	}
	gone(map[string]time.Time{"a": a.Seen.Truncate(time.Millisecond)})
	must(s, j.DropGone(s.ctx))
	must(s, j.DropGone(s.ctx, "a", "never"))
	gone(nil)
}

// digests are written once for all replicas with one configuration, and end with the last of them.
func digests(s *suite) {
	j := s.journal(journal.Config{})
	one, other := map[string]string{"a": "1", "b": "2"}, map[string]string{"a": "1"}
	must(s, j.KeepDigests(s.ctx, "one", one, hour))
	must(s, j.KeepDigests(s.ctx, "one", map[string]string{"of": "nobody"}, hour)) // which can't be: it is there
	must(s, j.KeepDigests(s.ctx, "other", other, hour))
	got, err := j.Digests(s.ctx, []string{"one", "none", "other"})
	if err != nil || !reflect.DeepEqual(got, map[string]map[string]string{"one": one, "other": other}) {
		s.Errorf("%v, %v", got, err)
	}
	must(s, j.KeepDigests(s.ctx, "one", one, 50*time.Millisecond))
	s.eventually("the digests end with those who have them", func() bool {
		got, err := j.Digests(s.ctx, []string{"one", "other"})
		return err == nil && len(got) == 1
	})
	s.client.Set(s.ctx, "cronclave:"+s.namespace+":digests:one", "not json", 0)
	if got, err = j.Digests(s.ctx, []string{"one", "other"}); !errors.Is(err, journal.ErrCorrupt) || len(got) != 1 {
		s.Errorf("beside a foreign one: %v, %v", got, err)
	}
}

func format(s *suite) {
	j := s.journal(journal.Config{})
	key := "cronclave:" + s.namespace + ":format"
	must(s, j.CheckFormat(s.ctx))
	if n, err := s.client.Exists(s.ctx, key).Result(); n != 0 || err != nil {
		s.Errorf("CheckFormat wrote: %v", err)
	}
	must(s, j.ClaimFormat(s.ctx))
	must(s, j.ClaimFormat(s.ctx))
	if v, err := s.client.Get(s.ctx, key).Result(); v != "1" {
		s.Errorf("format %q, %v", v, err)
	}
	for text, want := range map[string]error{"1": nil, "2": journal.ErrNewerFormat, "17": journal.ErrNewerFormat,
		"0": journal.ErrCorrupt, "": journal.ErrCorrupt, "one": journal.ErrCorrupt} {
		s.client.Set(s.ctx, key, text, 0)
		for _, check := range []error{j.CheckFormat(s.ctx), j.ClaimFormat(s.ctx)} {
			if !errors.Is(check, want) {
				s.Errorf("format %q: %v", text, check)
			}
		}
	}
	s.client.Del(s.ctx, key)
	s.client.LPush(s.ctx, key, "x")
	if err := j.CheckFormat(s.ctx); !errors.Is(err, journal.ErrCorrupt) {
		s.Errorf("a list: %v", err)
	}
}
