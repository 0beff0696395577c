package journaltest

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/journal"
)

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
