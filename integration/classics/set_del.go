package classics

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// SetDel is "SET key value NX EX ttl" and "DEL key": the simple form in the documentation of SET, which goes on to
// say why it is too simple.
//
// Its fault: DEL does not ask whose lock it is. Who comes back after its time deletes that of another.
type SetDel struct {
	Redis redis.Cmdable
	TTL   time.Duration
}

// Acquire tells whether it took the lock.
func (l SetDel) Acquire(ctx context.Context, key, id string) (bool, error) {
	return setNX(ctx, l.Redis, key, id, l.TTL)
}

// Release tells whether there was a lock to delete.
func (l SetDel) Release(ctx context.Context, key string) (bool, error) {
	n, err := l.Redis.Del(ctx, key).Result()
	return n == 1, err
}
