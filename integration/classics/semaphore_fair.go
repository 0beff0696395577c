package classics

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// FairSemaphore ranks by a counter instead of clocks, and keeps the times in a second sorted set, only to remove dead
// holders: Redis in Action, 6.3.2.
//
// Its fault: other clients pass between taking a number and entering it. A client with a smaller number that enters
// later is first again, and the holders inside do not notice. The book sees it, calls it less likely, and (6.3.4)
// puts a lock around it.
type FairSemaphore struct {
	Redis   redis.Cmdable
	Limit   int64
	Timeout time.Duration
	Clock   Clock
	Gap     Gap
}

// Acquire returns whether it is inside.
func (s FairSemaphore) Acquire(ctx context.Context, key, id string) (bool, error) {
	owners, counter := key+":owner", key+":counter"
	now := s.Clock()
	var number, rank *redis.IntCmd
	_, err := s.Redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.ZRemRangeByScore(ctx, key, "-inf", score(now.Add(-s.Timeout)))
		p.ZInterStore(ctx, owners, &redis.ZStore{Keys: []string{owners, key}, Weights: []float64{1, 0}})
		number = p.Incr(ctx, counter)
		return nil
	})
	if err != nil {
		return false, err
	}
	if err := s.Gap.pass(); err != nil {
		return false, err
	}
	_, err = s.Redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.ZAdd(ctx, key, redis.Z{Score: seconds(now), Member: id})
		p.ZAdd(ctx, owners, redis.Z{Score: float64(number.Val()), Member: id})
		rank = p.ZRank(ctx, owners, id)
		return nil
	})
	if err != nil || rank.Val() < s.Limit {
		return err == nil, err
	}
	_, err = s.Redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.ZRem(ctx, key, id)
		p.ZRem(ctx, owners, id)
		return nil
	})
	return false, err
}
