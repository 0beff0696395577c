package classics

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// GetSet keeps in the key until when the lock is held, by the client's clock, and takes an expired one over by
// GETSET: "Design pattern: locking with SETNX" in the documentation of SETNX, discouraged there since Redlock.
//
// Its fault: the clock of the client that wants the lock decides whether it has expired. (Besides, losers overwrite
// the winner's time.)
type GetSet struct {
	Redis   redis.Cmdable
	Timeout time.Duration
	Clock   Clock
}

// Acquire returns whether it took the lock.
func (l GetSet) Acquire(ctx context.Context, key string) (bool, error) {
	mine := l.Clock().Add(l.Timeout + time.Second).Unix()
	won, err := l.Redis.SetNX(ctx, key, mine, 0).Result()
	if err != nil || won {
		return won, err
	}
	until, err := l.Redis.Get(ctx, key).Int64()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	if err != nil || until > l.Clock().Unix() {
		return false, err
	}
	before, err := l.Redis.GetSet(ctx, key, mine).Int64()
	return err == nil && before <= l.Clock().Unix(), err
}
