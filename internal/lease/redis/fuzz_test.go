package redis

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/background"
	"github.com/cronclave/cronclave/internal/lease/clock"
	"github.com/cronclave/cronclave/internal/lease/observed"
)

// FuzzNotices has a client hear anything: it believes nothing that can't be true, and remembers no lock that it does not use.
// Promise: damage
func FuzzNotices(f *testing.F) {
	f.Add("x\t1\t2\t3\t4\t5\t6\ttrue\to\t1 1 done granted\n")
	f.Add("x\t1\t9007199254740993\t3\t9007199254740991\t8000000000000000\t6\ttrue\to\t!9007199254740991,1,0,x,y\n")
	f.Add("stop\tid\treason\nreleased\tx\n")
	f.Add("id 0 1792000000000001 1792000001000000 1792000000000000 30000000")
	f.Fuzz(func(t *testing.T, message string) {
		rdb := redis.NewClient(&redis.Options{})
		defer rdb.Close()
		clockStands := func() time.Duration { return time.Hour }
		s := New(Config{Redis: rdb, Clock: clockStands, Idle: time.Minute, Work: background.New(clockStands), Observed: observed.New(), AskToStop: func(string, string) {}})
		s.cfg.Observed.Set("x", observed.State{Permanent: true})
		now := int64(1_792_000_000_000_000)
		s.servers.only.Observe(now, time.Hour, time.Hour)
		for _, n := range s.learnEvents(message) {
			if clock.ToMicros(n.Until) > now+lease.MaxLease.Microseconds()+lease.MinuteMicros || clock.ToMicros(n.Tick) > now+lease.MinuteMicros {
				t.Errorf("believed %+v", n)
			}
		}
		k, _ := s.cfg.Observed.Last("x")
		if s.cfg.Observed.Len() != 1 || !k.Permanent || k.Floor > now+lease.MinuteMicros || k.Low*1e6 > now+lease.MinuteMicros || k.Longest > lease.MaxLease.Microseconds() {
			t.Errorf("%d locks are remembered, and of x %+v", s.cfg.Observed.Len(), k)
		}
		if g, ok := parseGrant(message); ok && (g.expiry-g.now > lease.MaxLease.Microseconds()+lease.MinuteMicros || g.slot >= lease.MaxSlots) {
			t.Errorf("believed %+v", g)
		}
	})
}
