package classics

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// UnfairSemaphore is a sorted set of holders by the time at which they came: Redis in Action, 6.3.1. The first Limit
// of them are inside.
//
// Its fault, which the book names: the time is the client's. A client whose clock is late is first, even when others
// are inside already.
type UnfairSemaphore struct {
	Redis   redis.Cmdable
	Limit   int64
	Timeout time.Duration
	Clock   Clock
}

// Acquire returns whether it is inside.
func (s UnfairSemaphore) Acquire(ctx context.Context, key, id string) (bool, error) {
	now := s.Clock()
	var rank *redis.IntCmd
	_, err := s.Redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.ZRemRangeByScore(ctx, key, "-inf", score(now.Add(-s.Timeout)))
		p.ZAdd(ctx, key, redis.Z{Score: seconds(now), Member: id})
		rank = p.ZRank(ctx, key, id)
		return nil
	})
	if err != nil || rank.Val() < s.Limit {
		return err == nil, err
	}
	return false, s.Redis.ZRem(ctx, key, id).Err()
}

func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }
func score(t time.Time) string    { return strconv.FormatFloat(seconds(t), 'f', -1, 64) }
