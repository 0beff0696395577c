// Package classics has the well-known locks and semaphores on Redis, each as it was published, and each with its
// fault. It is for tests alone. The tests of integration break every one of them, step by step, on a real Redis, and
// put ours through the same; the checker of histories must find each fault. docs/locks.md describes them.
//
// A matter that the publications leave to chance is a parameter here: the client's clock, the events between two
// commands, the order in which nodes are reached.
package classics

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrDied is the error of a [Gap] in which the client dies.
var ErrDied = errors.New("the client died here")

// Gap runs between two commands of a client: it lets other clients work, or ends the client by an error. Nil does
// nothing.
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

// setNX takes a key that expires, if it does not exist.
func setNX(ctx context.Context, c redis.Cmdable, key, id string, ttl time.Duration) (bool, error) {
	err := c.SetArgs(ctx, key, id, redis.SetArgs{Mode: "NX", TTL: ttl}).Err()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil, err
}
