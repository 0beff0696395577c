package journal

import (
	"fmt"
	"time"
)

// The bounds of the values that replicas write: a value beyond them is damage, and reported as ErrCorrupt.
const (
	mostSlots    = 1000
	mostAttempts = 1_000_000
	mostToken    = 1<<53 - 1
	mostRunning  = 1_000_000
	longestRun   = 100 * 365 * 24 * time.Hour
	// mostListed bounds the entries that are read of a list that all replicas share.
	mostListed = 100_000
)

// sound returns whether a time can be shown, and written as JSON again.
func sound(t time.Time) bool {
	year := t.UTC().Year()
	return t.IsZero() || year >= 1 && year <= 9999
}

// fault returns the fault of a record that was read; "" if there is none.
func (r *Record) fault() string {
	switch {
	case !sound(r.Tick) || !sound(r.Started) || !sound(r.Finished):
		return "a time beyond the calendar"
	case r.Slot != nil && (*r.Slot < 0 || *r.Slot >= mostSlots):
		return fmt.Sprintf("slot %d", *r.Slot)
	case r.Attempt < 0 || r.Attempt > mostAttempts || r.Token < 0 || r.Token > mostToken:
		return fmt.Sprintf("attempt %d, token %d", r.Attempt, r.Token)
	case r.DurationMS != nil && (*r.DurationMS < 0 || *r.DurationMS > longestRun.Milliseconds()):
		return fmt.Sprintf("a duration of %d ms", *r.DurationMS)
	}
	for _, s := range []string{r.Trigger, r.Replica, r.Outcome, r.Reason, r.Signal} {
		if len(s) > MaxText {
			return fmt.Sprintf("a text of %d bytes", len(s))
		}
	}
	return ""
}

// scored returns whether a score can be that of a record.
func scored(score float64) bool { return score >= 0 && score < 2*runningScore }

func (r *Replica) fault() string {
	switch {
	case !sound(r.Started) || !sound(r.Seen):
		return "a time beyond the calendar"
	case r.Running < 0 || r.Running > mostRunning:
		return fmt.Sprintf("%d runs", r.Running)
	}
	return ""
}

func (i *JobInfo) fault() string {
	switch {
	case !sound(i.Seen) || !sound(i.StartsAt) || !sound(i.ExpiresAt):
		return "a time beyond the calendar"
	case i.Parallel < 0 || i.Parallel > mostSlots || i.PerTick < 0 || i.PerTick > mostSlots:
		return fmt.Sprintf("parallel %d, per_tick %d", i.Parallel, i.PerTick)
	}
	return ""
}

// fault is for a request, which may not wait for longer than any.
func (r *Request) fault() string {
	if life := r.Expires.Sub(r.Created); !sound(r.Tick) || !sound(r.Created) || !sound(r.Expires) || life <= 0 || life > MaxRequestLife {
		return fmt.Sprintf("it waits from %v to %v", r.Created, r.Expires)
	}
	return ""
}

// fault is for an answer, of which nothing is a number.
func (a *Answer) fault() string { return "" }

// described is a value that is kept as JSON under a name.
type described interface{ fault() string }
