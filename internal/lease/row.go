package lease

import (
	"strconv"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/lease/clock"
)

// ParseRow parses a row in the format of the scripts: "id\nowner\nlease\ntoken\ntick\nattempt\ntrigger\nmemo".
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

// ParseNumber parses a number that a script wrote. It returns 0 for any other text.
func ParseNumber(s string) int64 { n, _ := strconv.ParseInt(s, 10, 64); return n }

// The states of a tick in a lock's ledger, as in state.lua.
const (
	TickDecided  = "done" // decided; the outcome has the result
	TickPart     = "part" // granted in some slots, open to other slots
	TickReopened = "open" // given back because its run never started: open to all slots, or only to some
)

// OutcomeGranted is the outcome of a tick that was granted.
const OutcomeGranted = "granted"
