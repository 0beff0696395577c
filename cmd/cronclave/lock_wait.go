package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/redisconn"
)

// acquisition is one call to acquire a lock, with all its requests.
type acquisition struct {
	*lockJob
	locks    *lease.Client
	id       string
	at       string // addresses of the Redis servers, for messages
	say      func(format string, args ...any)
	request  lease.Request
	begun    time.Time
	reported bool
}

var errWaited = errors.New("waited long enough")

// silenceLimit is the minimum time for which a request without an answer is repeated, even if --wait is shorter.
const silenceLimit = 2 * redisconn.Timeout

// acquireLease returns the lease of the lock. If the lock is held, it waits for at most --wait. Its errors have the exit code of the program.
func (c *acquisition) acquireLease(ctx context.Context) (lease.Run, error) {
	c.begun = time.Now()
	c.request = lease.Request{Lock: c.lockName(), ID: c.id, Slots: c.slots, Lease: c.lease, AnyLimit: c.pool}
	a := c.askServer(ctx)
	for again := backoff.New(firstPause, lastPause); a.Verdict != lease.Granted; {
		left := c.timeLeft()
		switch {
		case a.Verdict == lease.Unknown:
			c.locks.Withdraw(c.request, c.request.ID)
			return nil, c.unknownState(a.Err)
		case ctx.Err() != nil || left <= 0:
			return nil, c.notAcquired(a)
		}
		c.reportOnce(a)
		if c.fair {
			return c.lineUp(ctx)
		}
		backoff.Sleep(ctx, min(c.nextPause(a, again.Next()), left))
		a = c.askServer(ctx)
	}
	return c.reportWon(a.Run), nil
}

// The pause between requests for a held lock grows from firstPause to lastPause. A random part of up to half is subtracted, so that waiting processes do not
// send their requests at the same time. Polling is necessary because Redis notifies only processes in the queue.
const firstPause, lastPause = 50 * time.Millisecond, time.Second

func (c *acquisition) timeLeft() time.Duration {
	if c.forever {
		return time.Hour // no limit: the value does not matter, because each call returns it again
	}
	return c.wait - time.Since(c.begun)
}

// askServer repeats the request until its result is known. The request does not overtake processes in the queue, which Redis serves first.
func (c *acquisition) askServer(ctx context.Context) lease.Result {
	if !c.forever {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, max(c.timeLeft(), silenceLimit))
		defer cancel()
	}
	for retry := backoff.New(5*time.Millisecond, redisconn.Timeout); ; {
		a := c.locks.Acquire(ctx, c.request)
		if !a.Unsure() || ctx.Err() != nil {
			return a
		}
		retry.Wait(ctx)
	}
}

// nextPause returns the pause before the next request. pause is the usual pause. If the lease of a holder ends sooner, the next request is sent at about that
// time, because the slot is then free unless the lease was renewed.
func (c *acquisition) nextPause(a lease.Result, pause time.Duration) time.Duration {
	now, known := c.locks.EstimatedTime()
	if !known || a.Until.IsZero() {
		return pause
	}
	out := max(a.Until.Sub(now), 0) + rand.N(firstPause)
	if a.Verdict == lease.Closed { // the lock grants nothing before that time
		return max(out, pause)
	}
	return min(out, pause)
}

func (c *acquisition) lineUp(ctx context.Context) (lease.Run, error) {
	waiting := ctx
	if !c.forever {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeoutCause(ctx, c.timeLeft(), errWaited)
		defer cancel()
	}
	held, err := c.locks.WaitConfirmed(waiting, c.request, c.id) // confirmed, so that the lease has its full length
	switch {
	case err == nil:
		return c.reportWon(held), nil
	case !errors.Is(err, errWaited) || errors.Is(err, lease.ErrUnknown): // the holder is not requested, because Redis would not answer either
		return nil, c.unknownState(err)
	}
	c.request.Abstain = true // the request does not acquire the lock, and only asks for the holder
	a := c.askServer(ctx)
	if a.Verdict == lease.Unknown {
		return nil, c.unknownState(a.Err)
	}
	return nil, c.notAcquired(a)
}

func (c *acquisition) reportOnce(a lease.Result) {
	if !c.reported {
		c.reported = true
		c.say("waiting for %s: %s", c.lockTitle(), c.refusalReason(a))
	}
}

func (c *acquisition) reportWon(held lease.Run) lease.Run {
	if c.reported {
		c.say("%s: acquired after %v", c.lockTitle(), c.timeWaited())
	}
	return held
}

func (c *acquisition) timeWaited() time.Duration {
	return time.Since(c.begun).Round(10 * time.Millisecond)
}

// refusalReason returns why the lock was not granted. Its times are by the clock of Redis.
func (c *acquisition) refusalReason(a lease.Result) string {
	switch {
	case a.Verdict == lease.Closed:
		return fmt.Sprintf("Redis has lost its data of this lock; it stays closed until %s, since a holder may still be alive", console.Stamp(a.Until))
	case a.Until.IsZero():
		return "it was in use when asked for, and has no holder now: try again, or use --wait"
	case c.slots > 1:
		return fmt.Sprintf("all %d slots are held, or meant for those in line; the lease that ends first, at %s unless it is renewed, is held by %s", c.slots, console.Stamp(a.Until), holderName(a.Holder))
	}
	return fmt.Sprintf("held by %s until %s, unless it is renewed", holderName(a.Holder), console.Stamp(a.Until))
}

func (c *acquisition) notAcquired(a lease.Result) error {
	after := ""
	if c.wait > 0 {
		after = fmt.Sprintf(" after %v", c.timeWaited())
	}
	return exitError{c.busyCode, fmt.Errorf("%s: not acquired%s: %s", c.lockTitle(), after, c.refusalReason(a))}
}

func (c *acquisition) unknownState(err error) error {
	switch {
	case errors.Is(err, lease.ErrLimit):
		return usageError("%s is in use with another number of slots than %d: all its users must give the same number (which is forgotten after 10 minutes without a user)",
			c.lockTitle(), c.slots)
	case errors.Is(err, lease.ErrUnknown):
		return unavailableError(fmt.Sprintf("ask %s for %s", c.at, c.lockTitle()), election.Plain(err))
	}
	return election.Plain(err)
}
