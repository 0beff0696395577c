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

func (b *bench) number() string { return b.prefix + "{update}:n" }

// increments is a change that reads and writes two numbers; then runs in between.
func (b *bench) increments(then func()) func(tx *engine.Tx) error {
	return func(tx *engine.Tx) error {
		n, err := tx.Read.Get(b.ctx, b.number()).Int()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		then()
		tx.Write.Set(b.ctx, b.number(), n+1, 0)
		tx.Write.Set(b.ctx, b.number()+":too", n+1, 0)
		return nil
	}
}

func (b *bench) numbers() (n, too int) {
	b.Helper()
	n, err := b.rdb.Get(b.ctx, b.number()).Int()
	too, err2 := b.rdb.Get(b.ctx, b.number()+":too").Int()
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
				if err := c.Update(b.ctx, []string{b.number()}, b.increments(func() {})); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n, too := b.numbers(); n != 40 || too != 40 {
		b.Errorf("%d and %d after 40 updates", n, too)
	}
}

func updateConflicts(b *bench) {
	tries := 0
	err := b.a.Update(b.ctx, []string{b.number() + ":too", b.number()}, b.increments(func() {
		if tries++; tries <= 3 {
			b.rdb.Incr(b.ctx, b.number())
		}
	}))
	if n, too := b.numbers(); err != nil || tries != 4 || n != 4 || too != 4 {
		b.Errorf("%d tries, %d and %d, %v", tries, n, too, err)
	}
}

func updateRefused(b *bench) {
	tries := 0
	err := b.a.Update(b.ctx, []string{b.number()}, func(tx *engine.Tx) error {
		tries++
		tx.Write.Set(b.ctx, b.number(), 1, 0)
		tx.Write.Do(b.ctx, "HSET", b.number()) // which lacks its arguments
		return nil
	})
	if err == nil || errors.Is(err, engine.ErrUnknown) || errors.Is(err, context.DeadlineExceeded) || tries != 1 || !strings.Contains(err.Error(), "wrong number") {
		b.Errorf("%d tries, %v", tries, err)
	}
	if n, err := b.rdb.Exists(b.ctx, b.number()).Result(); n != 0 || err != nil {
		b.Errorf("it was done in part: %d, %v", n, err)
	}
}
