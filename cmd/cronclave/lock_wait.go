package main

import (
	"context"
	crypto "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/locking"
)

// contest is an attempt to get a lock.
type contest struct {
	*lockJob
	locks   *locking.Client
	at      string // where they are
	say     func(format string, args ...any)
	request locking.Request
	begun   time.Time
	told    bool
}

// errWaited ends the wait of those who have waited for as long as they wanted.
var errWaited = errors.New("waited long enough")

// silence that is longer than this is told as such, however short the wait was to be.
const silenceLimit = 2 * redisTimeout

// win returns the lease, or an error that ends the program.
func (c *contest) win(ctx context.Context) (*locking.Lease, error) {
	c.begun = time.Now()
	// The id is made here: whoever asks again with it gets the grant of which the answer was lost.
	c.request = locking.Request{Lock: c.lockName(), ID: strings.ToLower(crypto.Text()[:16]), Slots: c.slots, Lease: c.lease, AnyLimit: c.pool}
	a := c.ask(ctx)
	for pause := firstPause; a.Verdict != locking.Granted; pause = min(2*pause, lastPause) {
		left := c.left()
		switch {
		case a.Verdict == locking.Unknown:
			c.locks.Withdraw(c.request, c.request.ID)
			return nil, c.failure(a.Err)
		case ctx.Err() != nil || left <= 0:
			return nil, c.lost(a)
		}
		c.announce(a)
		if c.fair {
			return c.lineUp(ctx)
		}
		c.sleep(ctx, min(c.until(a, pause/2+rand.N(pause)), left))
		a = c.ask(ctx)
	}
	return c.won(a.Lease), nil
}

// The pauses between two looks at a lock that is held grow from the first to the last, and are half as long to one and a half times as
// long, so that those who wait do not all come at once. Nobody is told when it is free but those who wait in line.
const firstPause, lastPause = 50 * time.Millisecond, time.Second

// left is how much time there is to wait.
func (c *contest) left() time.Duration {
	if c.forever {
		return time.Hour // again and again
	}
	return c.wait - time.Since(c.begun)
}

// ask asks until the answer is known. It passes nobody who waits in line: the server serves them first.
func (c *contest) ask(ctx context.Context) locking.Answer {
	if !c.forever {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, max(c.left(), silenceLimit))
		defer cancel()
	}
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, redisTimeout) {
		a := c.locks.Acquire(ctx, c.request)
		if !a.Unsure() || ctx.Err() != nil {
			return a
		}
		c.sleep(ctx, pause/2+rand.N(pause))
	}
}

// until is when to ask again: after the pause, or earlier if a lease ends before, unless it is renewed.
func (c *contest) until(a locking.Answer, pause time.Duration) time.Duration {
	now, known := c.locks.EstimatedTime()
	if !known || a.Until.IsZero() {
		return pause
	}
	out := max(a.Until.Sub(now), 0) + rand.N(firstPause)
	if a.Verdict == locking.Closed { // nothing is granted before
		return max(out, pause)
	}
	return min(out, pause)
}

// lineUp waits in the queue.
func (c *contest) lineUp(ctx context.Context) (*locking.Lease, error) {
	waiting := ctx
	if !c.forever {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeoutCause(ctx, c.left(), errWaited)
		defer cancel()
	}
	options := []locking.Option{locking.WithLease(c.lease)}
	if c.pool {
		options = append(options, locking.WithAnyLimit())
	}
	lease, err := c.locks.Semaphore(c.lockName(), c.slots, options...).AcquireConfirmed(waiting) // the command needs its grace
	switch {
	case err == nil:
		return c.won(lease), nil
	case !errors.Is(err, errWaited) || errors.Is(err, locking.ErrUnknown): // nobody would answer who has it
		return nil, c.failure(err)
	}
	c.request.Abstain = true // only who has it
	a := c.ask(ctx)
	if a.Verdict == locking.Unknown {
		return nil, c.failure(a.Err)
	}
	return nil, c.lost(a)
}

func (c *contest) sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (c *contest) announce(a locking.Answer) {
	if !c.told {
		c.told = true
		c.say("waiting for %s: %s", c.what(), c.why(a))
	}
}

func (c *contest) won(lease *locking.Lease) *locking.Lease {
	if c.told {
		c.say("%s: acquired after %v", c.what(), c.waited())
	}
	return lease
}

func (c *contest) waited() time.Duration { return time.Since(c.begun).Round(10 * time.Millisecond) }

// why says what keeps the lock from being granted. Instants are those of Redis' clock.
func (c *contest) why(a locking.Answer) string {
	switch {
	case a.Verdict == locking.Closed:
		return fmt.Sprintf("Redis has lost its memory of it, and a living holder has until %s to say so", stamp(a.Until))
	case a.Until.IsZero():
		return "nobody holds it at the moment"
	case c.slots > 1:
		return fmt.Sprintf("all %d slots are held, or meant for those in line; the lease that ends first, at %s unless it is renewed, is held by %s", c.slots, stamp(a.Until), orNobody(a.Holder))
	}
	return fmt.Sprintf("held by %s until %s, unless it is renewed", orNobody(a.Holder), stamp(a.Until))
}

// lost is the error of a lock that was not acquired in time.
func (c *contest) lost(a locking.Answer) error {
	after := ""
	if c.wait > 0 {
		after = fmt.Sprintf(" after %v", c.waited())
	}
	return exitError{c.busyCode, fmt.Errorf("%s: not acquired%s: %s", c.what(), after, c.why(a))}
}

// failure is the error of a lock of which nobody can tell.
func (c *contest) failure(err error) error {
	switch {
	case errors.Is(err, locking.ErrLimit):
		return usageError("%s is in use with another number of slots than %d: all who use it must say the same (the number is forgotten when nobody has used it for 10 minutes)",
			c.what(), c.slots)
	case errors.Is(err, locking.ErrUnknown):
		return unavailable(fmt.Sprintf("ask %s for %s", c.at, c.what()), election.Plain(err))
	}
	return election.Plain(err)
}
