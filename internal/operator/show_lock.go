package operator

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/journal"
)

const (
	// showAfter is how long a process uses a lock before a status can show it, so that short uses cost nothing.
	showAfter = time.Second
	// showEvery is how often it says so again.
	showEvery = 10 * time.Second
	// showFor is how long it is shown after it has said so last: less than the lease of a process that was killed lasts by default, or it would be
	// shown as a waiter for the rest of the time.
	showFor = 15 * time.Second
	// hideWithin is how long the end of a process may wait for Redis: the entry expires by itself.
	hideWithin = 200 * time.Millisecond
)

// ShowLock has each status show a process that uses a plain lock or a pool, from a second after the call until hide is called. It is for people: no failure
// of it matters, and hide waits for Redis for a moment only. lease is that of the lock; clock is that of Redis, and whether it is known.
func ShowLock(j *journal.Journal, use journal.LockUse, lease time.Duration, clock func() (now time.Time, known bool)) (hide func()) {
	ctx, cancel := context.WithCancel(context.Background())
	over, shown, began := make(chan struct{}), false, time.Now()
	lasts := min(lease, showFor)
	go func() { // hide waits for it, or the process ends
		defer close(over)
		for pause := showAfter; backoff.Sleep(ctx, pause); {
			now, known := clock()
			if pause = min(showEvery, lasts*2/3); !known {
				pause = showAfter
				continue
			}
			if use.Since.IsZero() {
				use.Since = now.Add(-time.Since(began))
			}
			err := j.NoteLock(ctx, use, now, now.Add(lasts))
			shown = shown || err == nil || ctx.Err() != nil // which may have been done
		}
	}()
	return func() {
		cancel()
		late, cancel := context.WithTimeout(context.Background(), hideWithin)
		defer cancel()
		select {
		case <-over:
		case <-late.Done():
			return
		}
		if shown {
			_ = j.DropLock(late, use)
		}
	}
}
