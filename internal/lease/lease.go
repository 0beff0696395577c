// Package lease defines the requests to a lock, their results, and the state of a lock, for the packages locking and election.
//
// A lock has a number of slots. A lease holds one slot for a limited time, by Redis's clock, and has a fencing token that grows with every grant.
// Redis stores the lease as the row of its slot. If the request has a [Tick], Redis records the grant in the lock's ledger, in the same atomic step.
// The ledger outlives the lease, so a tick is never granted more often than [Tick.PerTick]. A lease with a trigger is a run, whose end is recorded:
// if the holder dies, the run is an orphan until a replica records its outcome or recovers it.
package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cronclave/cronclave/internal/backoff"
)

// A Token is a fencing token. It is Redis's clock at the grant in microseconds, or one more than the newest token of the lock if that is greater (a
// hybrid logical clock, Kulkarni et al. 2014). A token is below 2^53, so JSON, Lua and shells represent it exactly. A renewal does not change it.
type Token int64

const maxToken Token = 1<<53 - 1

// CheckToken returns an error for a number that no lease can have as its token.
func CheckToken(t Token) error {
	if t < 1 || t > maxToken {
		return fmt.Errorf("token %d: it must be from 1 to %d", t, maxToken)
	}
	return nil
}

// MaxLease is the maximum length of a lease without renewal.
const MaxLease = 24 * time.Hour

// Values that are read from Redis are checked against these bounds, because any program may have written them. check.lua has the same bounds.
const (
	MaxNumber   = int64(maxToken)
	MaxTick     = MaxNumber / 1e6
	MaxSlots    = 1000
	MaxAttempts = 1_000_000
	MaxHeard    = 1000 // the maximum length of a name or a reason in a published message, in bytes
)

// MaxFollowers is the maximum number of followers of a lock: see [InspectRequest.Follower]. chain.lua has the same bound, and room for so many names of
// maxFollowerName bytes.
const (
	MaxFollowers    = 4000
	maxFollowerName = 256
)

// MinuteMicros and DayMicros are a minute and a day in microseconds. A stored instant more than a minute ahead of Redis's clock, or a token more than
// a day ahead, was written while the clock was wrong. Such a value is corrected or refused.
const (
	MinuteMicros = 60e6
	DayMicros    = int64(24 * time.Hour / time.Microsecond)
)

// Sound reports whether n is from 0 to most.
func Sound(n, most int64) bool { return n >= 0 && n <= most }

// OneLine reports whether a text is valid UTF-8 without control characters, and not longer than most bytes.
func OneLine(s string, most int) bool {
	return len(s) <= most && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

var (
	// ErrUnknown means that Redis did not answer in time. Redis may or may not have carried out the request.
	ErrUnknown = errors.New("outcome unknown")
	// ErrRefused comes with ErrUnknown if a repeated request would fail as well: Redis rejects the credentials, its ACL forbids a required command, or
	// the key holds something other than a lock.
	ErrRefused = errors.New("refused by the server")
	// ErrLost is the cause with which a lease's context ends if the lease was not renewed in time, or if its slot was granted to another lease.
	ErrLost = errors.New("lease lost")
	// ErrReleased is the cause with which a lease's context ends when the lease is released.
	ErrReleased = errors.New("lease released")
	// ErrLimit means that the lock is in use with another number of slots.
	ErrLimit = errors.New("lock is in use with another number of slots")
	// ErrTooManyFollowers means that a lock has [MaxFollowers] followers, and the request would add one.
	ErrTooManyFollowers = fmt.Errorf("more than %d locks would follow it", MaxFollowers)
	// ErrClosed is returned by a client that was closed.
	ErrClosed = errors.New("client is closed")
	// ErrQuorum is returned by a client of a quorum for methods that need a single Redis master.
	ErrQuorum = errors.New("not possible on a quorum")
	// ErrCorrupt means that a key of the lock, or a reply, holds data that no client writes: a number out of range, a wrong type, or text that is not the
	// entry of a lease. Other locks still work. For a key, the error names the key and its field, and is also [ErrUnknown] and [ErrRefused], until the key
	// is repaired or deleted.
	ErrCorrupt = errors.New("damaged data in Redis")
)

// Refused wraps an error as [ErrRefused], which means that a repeated request would fail as well.
func Refused(err error) error { return refused{err} }

type refused struct{ error }

func (r refused) Unwrap() error { return r.error }

func (r refused) Is(target error) bool {
	return target == ErrRefused || target == ErrCorrupt && WrongType(r.error)
}

// WrongType reports whether an error means that a key holds something other than a lock. Some Redis versions put other text before WRONGTYPE in the
// error of a script.
func WrongType(err error) bool { return strings.Contains(err.Error(), "WRONGTYPE") }

// KeyParts has the suffixes of a lock's keys. A key is the name of the lock, a colon, and a suffix.
var KeyParts = []string{"ledger", "orphans", "queue", "patience", "dead", "fence"}

// CheckName returns an error for a name whose keys would be on different nodes of a Cluster, or would be keys of another lock.
func CheckName(name string) error {
	if name == "" {
		return errors.New("the name is empty")
	}
	if !strings.ContainsAny(name, "{}") {
		return nil
	}
	start, end := strings.IndexByte(name, '{'), strings.IndexByte(name, '}')
	if strings.Count(name, "{") != 1 || strings.Count(name, "}") != 1 || end <= start+1 {
		return errors.New("a name may have one hash tag in braces, as in {orders}:archive")
	}
	after := name[end+1:]
	last := after[strings.LastIndexByte(after, ':')+1:]
	if len(last) < len(after) && slices.Contains(KeyParts, last) {
		return fmt.Errorf("a name with a hash tag can't end with :%s: another key of that tag does", last)
	}
	if strings.Contains(after, ":dead:") {
		return errors.New("a name with a hash tag can't contain :dead: behind it: other keys of that tag do")
	}
	return nil
}

// QuoteNames returns the names for an error message: at most five, quoted, and the number of the others.
func QuoteNames(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	var all []string
	for i, name := range names {
		if i == 5 {
			all = append(all, fmt.Sprintf("%d more", len(names)-i))
			break
		}
		all = append(all, strconv.Quote(name))
	}
	return strings.Join(all, ", ")
}

// ParseRow parses a row in the format of the scripts: "id\nowner\nlease\ntoken\ntick\nattempt\ntrigger\nmemo".
func ParseRow(s string) (Row, bool) {
	part := strings.SplitN(s, "\n", 8)
	if len(part) < 8 {
		return Row{}, false
	}
	return Row{
		ID: part[0], Holder: part[1], Length: time.Duration(ParseNumber(part[2])) * time.Microsecond, Token: Token(ParseNumber(part[3])),
		Tick: FromMicros(ParseNumber(part[4]) * 1e6), Attempt: int(ParseNumber(part[5])), Trigger: part[6], Memo: part[7],
	}, true
}

// ParseNumber parses a number that a script wrote. It returns 0 for any other text.
func ParseNumber(s string) int64 { n, _ := strconv.ParseInt(s, 10, 64); return n }

// The states of a tick in a lock's ledger, as in state.lua.
const (
	TickDecided  = "done" // granted as often as allowed, or settled
	TickPart     = "part" // granted in some slots, open to other slots
	TickReopened = "open" // given back because its run never started: open to all slots, or only to some
)

// OutcomeGranted is the outcome of a tick that was granted.
const OutcomeGranted = "granted"

// ShortestPause is the shortest pause between two requests of a call that polls.
const ShortestPause = 10 * time.Millisecond

// NewRetry returns the backoff for requests whose outcome is unknown. timeout is the timeout of a round trip.
func NewRetry(timeout time.Duration) *backoff.Backoff {
	return backoff.New(5*time.Millisecond, timeout)
}

// RetryAfter returns the time until a waiting client repeats its request. This is pause, or less if the lease that blocks the client ends earlier, at
// runsOut. now is Redis's clock. now and runsOut are zero if unknown.
func RetryAfter(pause time.Duration, runsOut, now time.Time) time.Duration {
	if now.IsZero() || runsOut.IsZero() {
		return pause
	}
	return min(pause, max(runsOut.Sub(now), 0)+ShortestPause/2+rand.N(ShortestPause))
}

// WaitError returns the error of a wait whose context has ended. fault is the error of the last request, or nil if that request had a known outcome.
func WaitError(ctx context.Context, fault error) error {
	if fault != nil {
		return fmt.Errorf("%w (%w)", fault, context.Cause(ctx))
	}
	return context.Cause(ctx)
}
