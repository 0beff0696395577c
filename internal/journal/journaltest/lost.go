package journaltest

import (
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/journal"
)

// lossIsClaimedBesideDamage has the list of lost names be of another type: a lost replica is claimed all the same.
func lossIsClaimedBesideDamage(s *suite) {
	j := s.journal(journal.Config{})
	s.register(j, s.replica("beside-abcdefgh"), hour)
	s.client.Del(s.ctx, "cronclave:"+s.namespace+":replica:beside-abcdefgh")
	s.client.Set(s.ctx, "cronclave:"+s.namespace+":lost", "text", 0)
	claimed, err := j.ClaimLost(s.ctx, journal.LostReplica{ID: "beside-abcdefgh", Seen: s.now})
	if !claimed || err == nil {
		s.Errorf("beside a damaged list: claimed %v, %v", claimed, err)
	}
	if _, err := j.RecentlyLost(s.ctx); !errors.Is(err, journal.ErrCorrupt) {
		s.Errorf("of a damaged list: %v", err)
	}
	s.client.Del(s.ctx, "cronclave:"+s.namespace+":lost")
}

// crash registers a replica, and removes its entry as if its time to live had passed.
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

// nameIsBack: no replica is lost whose name is registered, or that was forgotten, whichever order a leader, a person and a successor come in. So it stays
// when the successor ends.
func nameIsBack(s *suite) {
	j := s.journal(journal.Config{})
	nobody := func(what string) {
		s.Helper()
		missing, err := j.LostReplicas(s.ctx)
		lost, more := j.RecentlyLost(s.ctx)
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
	if named, err := j.RecentlyLost(s.ctx); err != nil || fmt.Sprint(named) != fmt.Sprint([]journal.NamedLost{{Name: "third", Seen: lost.Seen}}) {
		s.Errorf("without a successor: %v, %v", named, err)
	}
}
