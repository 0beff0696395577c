package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

type lockUses struct{ *namespace }

// A LockUse is a `cronclave lock` process that holds a lock or waits for it. The data of the lock in Redis shows which of the two applies.
type LockUse struct {
	// ID is the id of the process's request for the lock, without dots. The lease id contains it.
	ID string `json:"id"`
	// Lock is the name of the lock, or of the pool if Pool is set.
	Lock  string `json:"lock"`
	Pool  bool   `json:"pool,omitempty"`
	Slots int    `json:"slots"`
	Owner string `json:"owner"`
	// Since is the start of the wait, by an estimate of the clock of Redis.
	Since time.Time `json:"since"`
}

func (u *LockUse) findFault() string {
	switch {
	case !isName(u.Lock) || !isRunID(u.ID):
		return fmt.Sprintf("lock %.40q, id %.40q", u.Lock, u.ID)
	case u.Slots < 1 || u.Slots > mostSlots || !isSound(u.Since):
		return fmt.Sprintf("%d slots", u.Slots)
	}
	return ""
}

const mostLockUses = 1000

// NoteLock adds a use to the list. until is the time at which the entry ends, by the clock of Redis. A further call for the same use changes this time.
func (l lockUses) NoteLock(ctx context.Context, use LockUse, now, until time.Time) error {
	ctx, cancel := l.withTimeout(ctx)
	defer cancel()
	text, err := use.encodeUse()
	if err != nil {
		return err
	}
	cmds, err := l.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.ZAdd(ctx, l.key("locks"), redis.Z{Score: float64(until.UnixMilli()), Member: text})
		p.ZRemRangeByScore(ctx, l.key("locks"), "-inf", formatNumber(now.UnixMilli()))
		p.ZRemRangeByRank(ctx, l.key("locks"), 0, -1-mostLockUses)
		p.PExpire(ctx, l.key("locks"), until.Sub(now)+time.Second)
		return nil
	})
	return wrapIf("list the use of lock "+use.Lock, allErrors(ctx, cmds, err))
}

// DropLock removes a use from the list. It is no error if the use is not listed.
func (l lockUses) DropLock(ctx context.Context, use LockUse) error {
	ctx, cancel := l.withTimeout(ctx)
	defer cancel()
	text, err := use.encodeUse()
	if err != nil {
		return err
	}
	return wrapIf("drop the use of lock "+use.Lock, errorOf(ctx, l.redis.ZRem(ctx, l.key("locks"), text)))
}

func (u LockUse) encodeUse() (string, error) {
	u.Since = u.Since.UTC()
	text, err := json.Marshal(u)
	if fault := u.findFault(); fault != "" || err != nil {
		return "", fmt.Errorf("lock %.40q: %w: %s", u.Lock, errors.Join(ErrInvalid, err), fault)
	}
	return string(text), nil
}

// LockUses returns the listed uses of locks and pools, in no particular order. Entries that no process wrote are left out, with an error that wraps ErrCorrupt.
func (l lockUses) LockUses(ctx context.Context, now time.Time) ([]LockUse, error) {
	ctx, cancel := l.withTimeout(ctx)
	defer cancel()
	listed := l.redis.ZRangeByScore(ctx, l.key("locks"), &redis.ZRangeBy{Min: formatNumber(now.UnixMilli()), Max: "+inf", Count: mostLockUses})
	if err := errorOf(ctx, listed); err != nil {
		return nil, fmt.Errorf("list the uses of locks: %w", err)
	}
	return decodeAll[LockUse]("list the uses of locks", listed.Val())
}
