package classics

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// Watch is a lock made of WATCH alone: look at the key, work, and write it in a transaction that fails if another
// client has written it meanwhile. It is the optimistic locking of the documentation of transactions, and of Redis in
// Action, 4.4, used for work that is not itself in the transaction.
//
// Its fault: it prevents nothing. EXEC fails for the losers when all of them have done the work.
type Watch struct {
	Redis *redis.Client
}

// ErrTooLate is the error of a client after another was faster; the work is done all the same.
var ErrTooLate = errors.New("another has written the key meanwhile")

// Do does the work, and returns afterwards an error if it was not alone.
func (l Watch) Do(ctx context.Context, key string, work func() error) error {
	err := l.Redis.Watch(ctx, func(tx *redis.Tx) error {
		if err := tx.Get(ctx, key).Err(); err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		if err := work(); err != nil {
			return err
		}
		_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Incr(ctx, key).Err() })
		return err
	}, key)
	if errors.Is(err, redis.TxFailedErr) {
		return ErrTooLate
	}
	return err
}
