// Package classics has the locks and semaphores on Redis that everybody knows, each as it was published, and each
// with its fault. It is for tests alone: the tests of integration break every one of them, step by step, on a real Redis, put ours
// through the same, and demand of the checker of histories that it tells them apart. docs/locks.md tells the story.
//
// What the publications leave to chance is a parameter here: the client's clock, what happens between two commands, in which
// order nodes are reached.
package classics

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrDied is for a [Gap] in which the client dies.
var ErrDied = errors.New("the client died here")

// Gap is what happens between two commands of a client: other clients, or its end, if it returns an error. Nil is nothing.
type Gap func() error

func (g Gap) pass() error {
	if g == nil {
		return nil
	}
	return g()
}

// Clock is a client's wall clock.
type Clock func() time.Time

// compareAndDelete is the release that the documentation of SET has given since Redis 2.6.12: a holder deletes its own lock only.
var compareAndDelete = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0`)

func deleteOwn(ctx context.Context, c redis.Scripter, key, id string) (bool, error) {
	n, err := compareAndDelete.Run(ctx, c, []string{key}, id).Int()
	return n == 1, err
}

// setNX takes a key that expires, if nobody has it.
func setNX(ctx context.Context, c redis.Cmdable, key, id string, ttl time.Duration) (bool, error) {
	err := c.SetArgs(ctx, key, id, redis.SetArgs{Mode: "NX", TTL: ttl}).Err()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil, err
}
