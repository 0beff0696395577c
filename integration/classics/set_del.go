package classics

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// SetDel is "SET key value NX EX ttl" and "DEL key": the simple form in the documentation of SET, which goes on to
// say why it is too simple.
//
// Its fault: DEL does not check the owner. A holder that comes back after its time deletes the lock of another.
type SetDel struct {
	Redis redis.Cmdable
	TTL   time.Duration
}

// Acquire returns whether it took the lock.
func (l SetDel) Acquire(ctx context.Context, key, id string) (bool, error) {
	return setNX(ctx, l.Redis, key, id, l.TTL)
}

// Release returns whether there was a lock to delete.
func (l SetDel) Release(ctx context.Context, key string) (bool, error) {
	n, err := l.Redis.Del(ctx, key).Result()
	return n == 1, err
}
