package integration

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/locking"
)

// A Redis whose memory is full refuses what would write. Of requests that travel as one command, each gets its own answer and nobody another's:
// clients that read errors among the replies of an array lose count of what follows.
func TestFullRedisMixesUpNoReplies(t *testing.T) {
	t.Parallel()
	server := startRedis(t, redisOpts{})
	one, two := locksOn(t, clientOptions(server.instance.addr())), locksOn(t, clientOptions(server.instance.addr()))
	held := []locking.Request{{Lock: "victim"}, {Lock: "again", ID: "same"}}
	for _, a := range one.AcquireAll(t.Context(), held) {
		if a.Verdict != locking.Granted {
			t.Fatal(a.Verdict, a.Err)
		}
	}
	must(t, server.Client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	for _, first := range []locking.Request{{Lock: "new"}, {Lock: "again", ID: "same"}} {
		requests := []locking.Request{first} // a command of fifty, and one of its own for the last
		for i := range 49 {
			requests = append(requests, locking.Request{Lock: fmt.Sprint("other", i)})
		}
		answers := two.AcquireAll(t.Context(), append(requests, locking.Request{Lock: "victim"}))
		if a := answers[50]; a.Verdict != locking.Held {
			t.Errorf("%s first: the lock of another client: %q (%v)", first.Lock, a.Verdict, a.Err)
		}
		if a := answers[0]; first.ID != "" && a.Verdict != locking.Granted {
			t.Errorf("asked for again: %q (%v)", a.Verdict, a.Err)
		}
		for i, a := range answers[1:50] {
			if a.Verdict != locking.Unknown || !errors.Is(a.Err, locking.ErrUnknown) || !redis.HasErrorPrefix(a.Err, "OOM") {
				t.Errorf("%s first: request %d: %q (%v)", first.Lock, i+1, a.Verdict, a.Err)
			}
		}
	}
}

// A user who may not touch the keys of one lock is refused that one.
func TestForbiddenLockIsRefusedAlone(t *testing.T) {
	t.Parallel()
	server := startRedis(t, redisOpts{})
	must(t, server.Client.Do(t.Context(), "ACL", "SETUSER", "clerk", "on", ">secret", "+@all", "&*", "~locking:{a}*", "~locking:{b}*").Err())
	o := clientOptions(server.instance.addr())
	o.Username, o.Password = "clerk", "secret"
	answers := locksOn(t, o).AcquireAll(t.Context(), []locking.Request{{Lock: "a"}, {Lock: "forbidden"}, {Lock: "b"}})
	for i, want := range []locking.Verdict{locking.Granted, locking.Unknown, locking.Granted} {
		if answers[i].Verdict != want {
			t.Errorf("request %d: %q (%v), want %q", i, answers[i].Verdict, answers[i].Err, want)
		}
	}
	if !redis.HasErrorPrefix(answers[1].Err, "NOPERM") {
		t.Error(answers[1].Err)
	}
}

func locksOn(t *testing.T, o *redis.Options) *locking.Client {
	t.Helper()
	rdb := redis.NewClient(o)
	c, err := locking.New(locking.Config{Redis: rdb, Timeout: 10 * time.Second})
	must(t, err)
	t.Cleanup(func() {
		_ = c.Close()
		_ = rdb.Close()
	})
	return c
}
