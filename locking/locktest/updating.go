package locktest

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease/engine"
)

func updating() []theorem {
	return []theorem{
		{"UpdatesAreNotLost", updatesCount, transactions},
		{"UpdateIsTriedAgainAfterAConflict", updateConflicts, transactions},
		{"UpdateThatIsRefusedIsNotTriedAgain", updateRefused, transactions},
	}
}

func numberKey(b *bench) string { return b.prefix + "{update}:n" }

// increments is a change that reads and writes two numbers; then runs in between.
func increments(b *bench, then func()) func(tx *engine.Tx) error {
	return func(tx *engine.Tx) error {
		n, err := tx.Read.Get(b.ctx, numberKey(b)).Int()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		then()
		tx.Write.Set(b.ctx, numberKey(b), n+1, 0)
		tx.Write.Set(b.ctx, numberKey(b)+":too", n+1, 0)
		return nil
	}
}

func numbers(b *bench) (n, too int) {
	b.Helper()
	n, err := b.rdb.Get(b.ctx, numberKey(b)).Int()
	too, err2 := b.rdb.Get(b.ctx, numberKey(b)+":too").Int()
	if err := errors.Join(err, err2); err != nil {
		b.Fatal(err)
	}
	return n, too
}

func updatesCount(b *bench) {
	var all sync.WaitGroup
	for _, c := range []*engine.Client{b.a, b.a, b.b, b.b} {
		all.Go(func() {
			for range 10 {
				if err := c.Update(b.ctx, []string{numberKey(b)}, increments(b, func() {})); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n, too := numbers(b); n != 40 || too != 40 {
		b.Errorf("%d and %d after 40 updates", n, too)
	}
}

func updateConflicts(b *bench) {
	tries := 0
	err := b.a.Update(b.ctx, []string{numberKey(b) + ":too", numberKey(b)}, increments(b, func() {
		if tries++; tries <= 3 {
			b.rdb.Incr(b.ctx, numberKey(b))
		}
	}))
	if n, too := numbers(b); err != nil || tries != 4 || n != 4 || too != 4 {
		b.Errorf("%d tries, %d and %d, %v", tries, n, too, err)
	}
}

func updateRefused(b *bench) {
	tries := 0
	err := b.a.Update(b.ctx, []string{numberKey(b)}, func(tx *engine.Tx) error {
		tries++
		tx.Write.Set(b.ctx, numberKey(b), 1, 0)
		tx.Write.Do(b.ctx, "HSET", numberKey(b)) // which lacks its arguments
		return nil
	})
	if err == nil || errors.Is(err, engine.ErrUnknown) || errors.Is(err, context.DeadlineExceeded) || tries != 1 || !strings.Contains(err.Error(), "wrong number") {
		b.Errorf("%d tries, %v", tries, err)
	}
	if n, err := b.rdb.Exists(b.ctx, numberKey(b)).Result(); n != 0 || err != nil {
		b.Errorf("it was done in part: %d, %v", n, err)
	}
}
