package integration

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease/engine"
)

// Of requests that travel as one command to a Redis whose memory is full, each gets its own answer. Such a Redis
// refuses writes, and clients that read errors among the replies of an array lose count of the replies after them.
func TestFullRedisMixesUpNoReplies(t *testing.T) {
	t.Parallel()
	server := startRedis(t, redisOpts{})
	one, two := locksOn(t, clientOptions(server.instance.addr())), locksOn(t, clientOptions(server.instance.addr()))
	held := []engine.Request{{Lock: "victim"}, {Lock: "again", ID: "same"}}
	for _, a := range one.AcquireAll(t.Context(), held) {
		if a.Verdict != engine.Granted {
			t.Fatal(a.Verdict, a.Err)
		}
	}
	must(t, server.Client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	for _, first := range []engine.Request{{Lock: "new"}, {Lock: "again", ID: "same"}} {
		requests := []engine.Request{first} // a command of fifty, and one of its own for the last
		for i := range 49 {
			requests = append(requests, engine.Request{Lock: fmt.Sprint("other", i)})
		}
		answers := two.AcquireAll(t.Context(), append(requests, engine.Request{Lock: "victim"}))
		if a := answers[50]; a.Verdict != engine.Held {
			t.Errorf("%s first: the lock of another client: %q (%v)", first.Lock, a.Verdict, a.Err)
		}
		if a := answers[0]; first.ID != "" && a.Verdict != engine.Granted {
			t.Errorf("asked for again: %q (%v)", a.Verdict, a.Err)
		}
		for i, a := range answers[1:50] {
			if a.Verdict != engine.Unknown || !errors.Is(a.Err, engine.ErrUnknown) || !redis.HasErrorPrefix(a.Err, "OOM") {
				t.Errorf("%s first: request %d: %q (%v)", first.Lock, i+1, a.Verdict, a.Err)
			}
		}
	}
}

// A user without rights to the keys of one lock is refused only that lock.
func TestForbiddenLockIsRefusedAlone(t *testing.T) {
	t.Parallel()
	server := startRedis(t, redisOpts{})
	must(t, server.Client.Do(t.Context(), "ACL", "SETUSER", "clerk", "on", ">secret", "+@all", "&*", "~locking:{a}*", "~locking:{b}*").Err())
	o := clientOptions(server.instance.addr())
	o.Username, o.Password = "clerk", "secret"
	answers := locksOn(t, o).AcquireAll(t.Context(), []engine.Request{{Lock: "a"}, {Lock: "forbidden"}, {Lock: "b"}})
	for i, want := range []engine.Verdict{engine.Granted, engine.Unknown, engine.Granted} {
		if answers[i].Verdict != want {
			t.Errorf("request %d: %q (%v), want %q", i, answers[i].Verdict, answers[i].Err, want)
		}
	}
	if !redis.HasErrorPrefix(answers[1].Err, "NOPERM") {
		t.Error(answers[1].Err)
	}
}

func locksOn(t *testing.T, o *redis.Options) *engine.Client {
	t.Helper()
	rdb := redis.NewClient(o)
	c, err := engine.New(engine.Config{Redis: rdb, Timeout: 10 * time.Second})
	must(t, err)
	t.Cleanup(func() {
		_ = c.Close()
		_ = rdb.Close()
	})
	return c
}
