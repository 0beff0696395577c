// Package lease defines the requests to a lock, the answers, and the state of a lock, for the packages locking and election.
//
// A lock has a number of slots. A lease holds one of them for a limited time, by Redis's clock, and has a fencing token that grows with every grant.
// A request with a [Tick] also enters the grant in the lock's ledger, in the same atomic step. The ledger outlives the lease, so a tick is never
// granted more often than [Tick.PerTick]. A lease with a trigger is a run whose end is recorded: if its holder dies, the run is an orphan until a
// replica records its outcome or recovers it.
package lease

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// A Token is a fencing token: Redis's clock at the grant in microseconds, or one more than the newest token of the lock if that is greater (a hybrid
// logical clock, Kulkarni et al. 2014). A token is below 2^53, so JSON, Lua and shells represent it exactly. A renewal does not change it.
type Token int64

// maxToken is the greatest number below 2^53. Lua, JSON and shells represent integers up to it exactly.
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

// The bounds of values that are read from Redis, because any program may have written them. check.lua has the same bounds.
const (
	MaxNumber   = int64(maxToken)
	MaxTick     = MaxNumber / 1e6
	MaxSlots    = 1000
	MaxAttempts = 1_000_000
	MaxHeard    = 1000 // bytes of a name or a reason in a published message
)

// A stored value that is more than a minute ahead of Redis's clock is corrected or refused: the clock was wrong when the value was written.
const (
	MinuteMicros = 60e6
	DayMicros    = int64(24 * time.Hour / time.Microsecond)
)

// Sound reports whether a number read from Redis is within its bounds.
func Sound(n, most int64) bool { return n >= 0 && n <= most }

// OneLine reports whether a text is valid UTF-8, has at most most bytes, and has no control characters.
func OneLine(s string, most int) bool {
	return len(s) <= most && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}
