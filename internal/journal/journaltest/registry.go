package journaltest

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

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
		ConfigDigest: "0123456789abcdef", ClockOffsetMS: -12, Running: 3, MaxRunning: 8, LeaseMargin: &journal.LeaseMargin{LeftMS: 20100, LeaseMS: 30000}, Labels: map[string]string{"zone": "a"},
		Since: map[string]time.Time{"clock_off": s.now}}
}

func (s *suite) register(j *journal.Journal, r journal.Replica, ttl time.Duration) (known bool) {
	s.Helper()
	found, err := j.Register(s.ctx, r, ttl)
	must(s, err)
	return found.Known
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
	a, b, c := s.replica("a"), s.replica("lost-abcdefgh"), s.replica("c")
	a.Name, b.Name, c.Name = "z", "lost", "z"
	s.register(j, c, hour)
	s.register(j, a, hour)
	s.register(j, b, 400*time.Millisecond)
	a.Running, a.Draining, a.Labels = 0, true, nil
	s.register(j, a, hour)
	got, err := j.Replicas(s.ctx)
	must(s, err)
	got = slices.DeleteFunc(got, func(r journal.Replica) bool { return r.ID == b.ID }) // on a slow machine it has gone
	if !reflect.DeepEqual(got, []journal.Replica{a, c}) {
		s.Errorf("replicas: %+v", got)
	}
	s.eventually("b has expired", func() bool { return slices.Equal(s.replicaIDs(j), []string{"a", "c"}) })
	s.claimedOnce(j, b.ID)
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

// claimedOnce checks that one replica is lost, and that one of two callers claims it.
func (s *suite) claimedOnce(j *journal.Journal, id string) {
	for i, want := range []bool{true, false} {
		lost, err := j.LostReplicas(s.ctx)
		must(s, err)
		if found := slices.ContainsFunc(lost, func(r journal.LostReplica) bool { return r.ID == id && r.Seen.Equal(s.now.Truncate(time.Millisecond)) }); found != want || len(lost) > 1 {
			s.Errorf("look %d: lost %+v", i, lost)
		}
		claimed, err := j.ClaimLost(s.ctx, journal.LostReplica{ID: id, Seen: s.now})
		must(s, err)
		if claimed != want {
			s.Errorf("look %d: claimed %v", i, claimed)
		}
		recent, err := j.RecentlyLost(s.ctx, journal.MaxLost)
		must(s, err)
		if len(recent) != 1 || recent[0] != (journal.NamedLost{Name: "lost", Seen: s.now.Truncate(time.Millisecond).UTC()}) {
			s.Errorf("look %d: recently lost %+v", i, recent)
		}
	}
	successor := s.replica("successor")
	successor.Name = "lost"
	s.register(j, successor, hour)
	must(s, j.Deregister(s.ctx, successor.ID))
	if recent, err := j.RecentlyLost(s.ctx, journal.MaxLost); err != nil || len(recent) > 0 {
		s.Errorf("after a successor: recently lost %+v, %v", recent, err)
	}
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

// epochs checks that all replicas find the same epoch. After a loss of data all of them find another one, and the format is restored.
func epochs(s *suite) {
	j := s.journal(journal.Config{})
	epoch := func(id string) string {
		s.Helper()
		found, err := j.Register(s.ctx, s.replica(id), hour)
		must(s, err)
		return found.Epoch
	}
	first := epoch("a")
	if again, other := epoch("a"), epoch("b"); first == "" || again != first || other != first {
		s.Errorf("epochs %q, %q, %q", first, again, other)
	}
	for _, name := range []string{"format", "epoch"} {
		key := "cronclave:" + s.namespace + ":" + name
		if ttl, err := s.client.PTTL(s.ctx, key).Result(); err != nil || ttl != -1 {
			s.Errorf("%s expires: %v, %v", name, ttl, err)
		}
		must(s, s.client.Del(s.ctx, key).Err())
	}
	second := epoch("b")
	if again := epoch("a"); second == "" || second == first || again != second {
		s.Errorf("after a loss: epochs %q, then %q, %q", first, second, again)
	}
	must(s, j.CheckFormat(s.ctx))
	if v, err := s.client.Get(s.ctx, "cronclave:"+s.namespace+":format").Result(); err != nil || v != strconv.Itoa(journal.Format) {
		s.Errorf("after a loss: format %q, %v", v, err)
	}
	epochsAfterDamage(s, j, second)
}

// epochsAfterDamage checks that a damaged epoch does not fail a registration, and that a later one finds a new epoch.
func epochsAfterDamage(s *suite, j *journal.Journal, last string) {
	key := "cronclave:" + s.namespace + ":epoch"
	for what, damage := range map[string]func() error{
		"a list":     func() error { return s.client.LPush(s.ctx, key, "x").Err() },
		"empty text": func() error { return s.client.Set(s.ctx, key, "", 0).Err() },
	} {
		must(s, s.client.Del(s.ctx, key).Err())
		must(s, damage())
		found, err := j.Register(s.ctx, s.replica("a"), hour)
		if err != nil || found.Epoch != "" || !errors.Is(found.EpochError, journal.ErrCorrupt) || !found.Known {
			s.Errorf("%s: %+v, %v", what, found, err)
		}
		if there := s.client.Exists(s.ctx, key).Val(); there != 0 {
			s.Errorf("%s: it is replaced, so that replicas may find different ones", what)
		}
		found, err = j.Register(s.ctx, s.replica("a"), hour)
		if err != nil || found.Epoch == "" || found.Epoch == last || found.EpochError != nil {
			s.Errorf("after %s: %+v, %v; before that %q", what, found, err, last)
		}
		last = found.Epoch
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
	a.Except, a.ExceptDates, a.StartsAt, a.ExpiresAt, a.Since = []string{"0 0 * * 7"}, []string{"2026-12-25"}, s.now.Add(-hour), s.now.Add(hour), s.now.Add(-2*hour)
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
	s.client.HSet(s.ctx, "cronclave:"+s.namespace+":jobs", "foreign", "not json", "a b", fmt.Sprintf(`{"name":"a b","seen":%q}`, s.now.Add(hour).Format(time.RFC3339)))
	got, err = j.Jobs(s.ctx)
	if !errors.Is(err, journal.ErrCorrupt) || len(got) != 3 {
		s.Errorf("beside a foreign entry: %+v, %v", got, err)
	}
	gone, err := j.ForgetJobs(s.ctx, s.now.Add(time.Minute))
	if err != nil || !slices.Equal(gone, []string{"a", "a b", "foreign"}) {
		s.Errorf("forgotten: %q, %v", gone, err)
	}
	if got, err = j.Jobs(s.ctx); err != nil || !reflect.DeepEqual(got, []journal.JobInfo{b, c}) {
		s.Errorf("left: %+v, %v", got, err)
	}
	s.goneJobs(j, a)
	s.jobsEverywhere(j)
	for _, bad := range []journal.JobInfo{{Name: "a"}, {Name: "a b", Seen: s.now}, {Seen: s.now}} {
		if err := j.DescribeJobs(s.ctx, []journal.JobInfo{bad}); !errors.Is(err, journal.ErrInvalid) {
			s.Errorf("%+v: %v", bad, err)
		}
	}
}

// jobsEverywhere checks that a job with per_tick = "all" is listed while no instance of it is.
func (s *suite) jobsEverywhere(j *journal.Journal) {
	tidy, instance, plain := s.job("tidy"), s.job("tidy@r1"), s.job("plain")
	tidy.Everywhere = true
	list := func(described journal.JobInfo, want ...string) {
		s.Helper()
		must(s, j.DescribeJobs(s.ctx, []journal.JobInfo{described}))
		got, err := j.Jobs(s.ctx)
		got = slices.DeleteFunc(got, func(info journal.JobInfo) bool {
			return info.Name != "tidy" && info.Of != "tidy" && info.Name != "plain" && info.Of != "plain"
		})
		var names []string
		for _, info := range got {
			if names = append(names, info.Name); info.Everywhere != (info.Name == "tidy") {
				s.Errorf("%+v", info)
			}
		}
		if !slices.Equal(names, want) || err != nil {
			s.Errorf("listed are %q, %v; want %q", names, err, want)
		}
	}
	list(tidy, "tidy")
	list(instance, "tidy@r1")
	list(s.job("plain@r1"), "plain@r1", "tidy@r1")
	list(plain, "plain", "plain@r1", "tidy@r1") // the job no longer runs on each replica, and its instances are not forgotten yet
}

// goneJobs checks that GoneJobs returns a forgotten job until DropGone removes it or DescribeJobs describes it again.
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

func format(s *suite) {
	j := s.journal(journal.Config{})
	key := "cronclave:" + s.namespace + ":format"
	must(s, j.CheckFormat(s.ctx))
	if n, err := s.client.Exists(s.ctx, key).Result(); n != 0 || err != nil {
		s.Errorf("CheckFormat wrote: %v", err)
	}
	must(s, j.ClaimFormat(s.ctx))
	must(s, j.ClaimFormat(s.ctx))
	if v, err := s.client.Get(s.ctx, key).Result(); v != strconv.Itoa(journal.Format) {
		s.Errorf("format %q, %v", v, err)
	}
	for text, want := range map[string]error{"1": nil, "2": nil, "3": journal.ErrNewerFormat, "17": journal.ErrNewerFormat,
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

// lossIsClaimedBesideDamage checks that a lost replica is claimed even if the list of lost names has the wrong type.
func lossIsClaimedBesideDamage(s *suite) {
	j := s.journal(journal.Config{})
	s.register(j, s.replica("beside-abcdefgh"), hour)
	s.client.Del(s.ctx, "cronclave:"+s.namespace+":replica:beside-abcdefgh")
	s.client.Set(s.ctx, "cronclave:"+s.namespace+":lost", "text", 0)
	claimed, err := j.ClaimLost(s.ctx, journal.LostReplica{ID: "beside-abcdefgh", Seen: s.now})
	if !claimed || err == nil {
		s.Errorf("beside a damaged list: claimed %v, %v", claimed, err)
	}
	if _, err := j.RecentlyLost(s.ctx, journal.MaxLost); !errors.Is(err, journal.ErrCorrupt) {
		s.Errorf("of a damaged list: %v", err)
	}
	s.client.Del(s.ctx, "cronclave:"+s.namespace+":lost")
}

// crash registers a replica and removes its entry, as if it had expired.
func crash(s *suite, j *journal.Journal, id string) (lost journal.LostReplica) {
	s.Helper()
	r := s.replica(id)
	r.Name = journal.NameOf(id)
	s.register(j, r, hour)
	must(s, s.client.Del(s.ctx, "cronclave:"+s.namespace+":replica:"+id).Err())
	missing, err := j.LostReplicas(s.ctx)
	if err != nil || len(missing) != 1 || missing[0].ID != id {
		s.Fatalf("missing: %v, %v", missing, err)
	}
	return missing[0]
}

// nameIsBack checks that a replica is not lost if its name is registered again or was forgotten, in any order of leader, user and successor, and also after
// the successor has ended.
func nameIsBack(s *suite) {
	j := s.journal(journal.Config{})
	nobody := func(what string) {
		s.Helper()
		missing, err := j.LostReplicas(s.ctx)
		lost, more := j.RecentlyLost(s.ctx, journal.MaxLost)
		if len(missing)+len(lost) > 0 || err != nil || more != nil {
			s.Errorf("%s: %v and %v are lost, %v, %v", what, missing, lost, err, more)
		}
	}
	claim := func(lost journal.LostReplica, want bool) {
		s.Helper()
		if claimed, err := j.ClaimLost(s.ctx, lost); err != nil || claimed != want {
			s.Errorf("claimed: %v, %v", claimed, err)
		}
	}
	successor := s.replica("host-bbbbbbbb")
	lost := crash(s, j, "host-aaaaaaaa")
	s.register(j, successor, hour)
	nobody("after the successor has registered")
	claim(lost, false)
	claim(crash(s, j, "host-cccccccc"), true)
	nobody("after a namesake of it was lost")
	must(s, s.client.ZAdd(s.ctx, "cronclave:"+s.namespace+":lost", redis.Z{Score: float64(s.now.UnixMilli()), Member: "host"}).Err()) // by a leader that read the replicas before
	must(s, j.Deregister(s.ctx, successor.ID))
	nobody("after the successor has ended")

	lost = crash(s, j, "other-aaaaaaaa")
	must(s, j.ForgetLost(s.ctx, "other", lost.ID))
	claim(lost, false)
	nobody("after it was forgotten")

	lost = crash(s, j, "third-aaaaaaaa")
	claim(lost, true)
	if named, err := j.RecentlyLost(s.ctx, journal.MaxLost); err != nil || fmt.Sprint(named) != fmt.Sprint([]journal.NamedLost{{Name: "third", Seen: lost.Seen}}) {
		s.Errorf("without a successor: %v, %v", named, err)
	}
}
