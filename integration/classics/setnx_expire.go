package classics

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// SetNXExpire takes the lock by SETNX and lets it expire by EXPIRE: Redis in Action (Carlson 2013), 6.2.5, whose
// losers also give a lock without a time to live one; the many copies of it leave that out, and so does this one.
//
// Its fault: a client that dies between the two commands leaves a lock that never ends.
type SetNXExpire struct {
	Redis redis.Cmdable
	TTL   time.Duration
	Gap   Gap
}

// Acquire returns whether it took the lock.
func (l SetNXExpire) Acquire(ctx context.Context, key, id string) (bool, error) {
	won, err := l.Redis.SetNX(ctx, key, id, 0).Result()
	if err != nil || !won {
		return false, err
	}
	if err := l.Gap.pass(); err != nil {
		return false, err
	}
	return true, l.Redis.PExpire(ctx, key, l.TTL).Err()
}
