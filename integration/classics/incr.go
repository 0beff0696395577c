package classics

import (
	"context"
	"time"
)

// Incr is SET NX EX with a release by the owner only, and with fencing tokens from a counter in the same Redis. It is
// the usual form of Kleppmann's advice (2016), whose tokens come from a service that loses no data.
//
// Its fault: the counter is as lasting as that Redis. A failover that lost its last step gives a token twice; after
// FLUSHALL, or a restart without memory, they begin at 1, and the resource refuses every rightful holder from then
// on.
type Incr struct {
	Redis Node
	TTL   time.Duration
}

// Acquire returns whether it took the lock, and with which token.
func (l Incr) Acquire(ctx context.Context, key, id string) (token int64, ok bool, err error) {
	ok, err = setNX(ctx, l.Redis, key, id, l.TTL)
	if err != nil || !ok {
		return 0, false, err
	}
	token, err = l.Redis.Incr(ctx, key+":token").Result()
	return token, err == nil, err
}

// Release returns whether the lock was still its own.
func (l Incr) Release(ctx context.Context, key, id string) (bool, error) {
	return deleteOwn(ctx, l.Redis, key, id)
}
