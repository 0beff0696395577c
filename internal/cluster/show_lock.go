package cluster

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/journal"
)

const (
	// showAfter is the time for which a process must use a lock before a status shows it, so that short uses cost nothing.
	showAfter = time.Second
	// showEvery is the interval at which the entry of a process is renewed.
	showEvery = 10 * time.Second
	// showFor is the time for which an entry lasts without renewal. It is shorter than the default lease. Otherwise, a killed process would be shown as a waiter
	// after its lease has ended.
	showFor = 15 * time.Second
	// hideWithin is the maximum time for which hide waits for Redis to remove the entry. An entry that is not removed expires.
	hideWithin = 200 * time.Millisecond
)

// ShowLock lists a process that uses a lock or a pool in the status, from one second after the call until hide is called. The entry is for display only:
// failures are ignored, and hide waits for Redis only for a moment. lease is the lease length of the lock. clock returns the time of Redis, and whether the
// time is known.
func ShowLock(j *journal.Journal, use journal.LockUse, lease time.Duration, clock func() (now time.Time, known bool)) (hide func()) {
	ctx, cancel := context.WithCancel(context.Background())
	over, shown, began := make(chan struct{}), false, time.Now()
	lasts := min(lease, showFor)
	go func() { // hide waits for this goroutine, or the process ends
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
			shown = shown || err == nil || ctx.Err() != nil // a canceled write may have reached Redis
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
