package lease

import (
	"strconv"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/lease/clock"
)

// ParseRow reads "id\nowner\nlease\ntoken\ntick\nattempt\ntrigger\nmemo", as the scripts write it.
func ParseRow(s string) (Row, bool) {
	part := strings.SplitN(s, "\n", 8)
	if len(part) < 8 {
		return Row{}, false
	}
	return Row{
		ID: part[0], Owner: part[1], Length: time.Duration(ParseNumber(part[2])) * time.Microsecond, Token: Token(ParseNumber(part[3])),
		Tick: clock.FromMicros(ParseNumber(part[4]) * 1e6), Attempt: int(ParseNumber(part[5])), Trigger: part[6], Memo: part[7],
	}, true
}

// ParseNumber reads what a script wrote.
func ParseNumber(s string) int64 { n, _ := strconv.ParseInt(s, 10, 64); return n }

// States of an entry in a lock's ledger, as state.lua has them.
const (
	TickDecided  = "done" // as its outcome says
	TickPart     = "part" // granted in some slots, and open to others
	TickReopened = "open" // given back before its start: to all slots, or only to some
)

// OutcomeGranted is the outcome of a tick that was granted.
const OutcomeGranted = "granted"
