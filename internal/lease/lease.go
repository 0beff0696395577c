// Package lease is the engine below the packages locking and election: the requests to a lock, its answers, and its state.
//
// A lock has a number of slots. A lease is a hold on one of them for a limited time, by the server's clock, with a fencing token that grows with
// every grant. With a [Tick] the grant is also entered in the lock's ledger, in the same atomic step: no tick of a schedule is granted more often
// than it may be, however short its lease was. A lease with a trigger is a run that is accounted for: if its holder dies, it is an orphan until a
// replica has recorded its outcome, or recovers it.
package lease

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// A Token is a fencing token: the server's clock in microseconds when the lease was granted, or one more than the newest token of the lock if that is
// greater (a hybrid logical clock, Kulkarni et al. 2014). It is below 2^53, so JSON, Lua and shells carry it exactly. A renewal keeps it.
type Token int64

// maxToken is the greatest number below 2^53. Lua, JSON and shells count exactly up to it.
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

// The bounds of values read from Redis, which any program may have written. check.lua has the same.
const (
	MaxNumber   = int64(maxToken)
	MaxTick     = MaxNumber / 1e6
	MaxSlots    = 1000
	MaxAttempts = 1_000_000
	MaxHeard    = 1000 // bytes of a name or a reason in a published message
)

// The clock of a server may be ahead for a moment: a value that is ahead of it by more than a minute is corrected or refused.
const (
	MinuteMicros = 60e6
	DayMicros    = int64(24 * time.Hour / time.Microsecond)
)

// Sound reports whether a number read from Redis is within its bounds.
func Sound(n, most int64) bool { return n >= 0 && n <= most }

// OneLine reports whether a text may be shown: valid, short, and without control characters.
func OneLine(s string, most int) bool {
	return len(s) <= most && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}
