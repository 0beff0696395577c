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
)

// ShowLock has each status show a process that uses a plain lock or a pool, from a second after the call until hide is called, which waits for an
// answer of the history for as long as one request may take. It is for people: no failure of it matters. clock is that of Redis, and whether it is known.
func ShowLock(j *journal.Journal, use journal.LockUse, clock func() (now time.Time, known bool)) (hide func()) {
	ctx, cancel := context.WithCancel(context.Background())
	over, shown := make(chan struct{}), false
	go func() {
		defer close(over)
		backoff.Sleep(ctx, showAfter)
		for ; ctx.Err() == nil; backoff.Sleep(ctx, showEvery) {
			now, known := clock()
			if !known {
				continue
			}
			if use.Since.IsZero() {
				use.Since = now.Add(-showAfter)
			}
			err := j.NoteLock(ctx, use, now, now.Add(showFor))
			shown = shown || err == nil || ctx.Err() != nil // which may have been done
		}
	}()
	return func() {
		cancel()
		<-over
		if shown {
			_ = j.DropLock(context.Background(), use)
		}
	}
}
