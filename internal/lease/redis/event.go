package redis

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/cronclave/cronclave/internal/lease"
)

// A granted is a [lease.GrantEvent] in a published message, with the state of the lock from the reply. Instants and durations are in microseconds,
// ticks in seconds since 1970. A message has one line per event, with tabs between the fields. This format is cheap to parse, because thousands of
// ticks may be granted at once.
type granted struct {
	lock, owner, ledger      string
	tick, until              int64
	now, floor, longest, low int64
	permanent                bool
}

func (g granted) appendLine(b []byte) []byte {
	if strings.ContainsAny(g.lock+g.owner, "\t\n") {
		return b // such names are rare, and a lost event does no harm
	}
	b = append(b, g.lock...)
	for _, n := range []int64{g.tick, g.until, g.now, g.floor, g.longest, g.low} {
		b = strconv.AppendInt(append(b, '\t'), n, 10)
	}
	b = append(strconv.AppendBool(append(b, '\t'), g.permanent), '\t')
	return append(append(append(append(b, g.owner...), '\t'), g.ledger...), '\n')
}

func parseGranted(line string) (g granted, ok bool) {
	var fields [10]string
	for i := range fields {
		var more bool
		if fields[i], line, more = strings.Cut(line, "\t"); more != (i < len(fields)-1) {
			return g, false
		}
	}
	if fields[0] == "" {
		return g, false
	}
	for i, n := range []*int64{&g.tick, &g.until, &g.now, &g.floor, &g.longest, &g.low} {
		var err error
		if *n, err = strconv.ParseInt(fields[i+1], 10, 64); err != nil || *n < 0 {
			return g, false
		}
	}
	g.lock, g.permanent, g.owner, g.ledger = fields[0], fields[7] == "true", fields[8], fields[9]
	return g, g.isSound()
}

// longestLedger bounds the ledger in a message, in bytes. It is enough for a thousand entries.
const longestLedger = 1 << 18

// isSound reports whether the numbers of a message are within their bounds, and its texts are a valid ledger and pause.
func (g granted) isSound() bool {
	pause, ledger := lease.CutPause(g.ledger)
	return g.tick <= lease.MaxTick && g.until <= lease.MaxNumber && g.now <= lease.MaxNumber && g.floor <= lease.MaxNumber && g.low <= lease.MaxTick &&
		g.longest <= lease.MaxLease.Microseconds() && len(g.owner) <= lease.MaxHeard && len(g.lock) <= lease.MaxHeard && len(g.ledger) <= longestLedger &&
		(pause == "" || lease.ReadPause(pause).Sound()) && ledgerText.MatchString(ledger)
}

// ledgerText matches a ledger as the scripts write it: "tick prev state how;...".
var ledgerText = regexp.MustCompile(`^(?:\d{1,10} \d{1,10} (?:part|done|open) [^;\n\t]*(?:;|$))*$`)

// isBelievable reports whether all instants in a message, except the end of a lease, are at most a minute ahead of Redis's clock. A message from the
// future would override all true messages.
func (g granted) isBelievable(now int64) bool {
	bound := now + lease.MinuteMicros
	pause, _ := lease.CutPause(g.ledger)
	return g.now <= bound && g.floor <= bound && g.low*1e6 <= bound && g.tick*1e6 <= bound && g.until <= bound+lease.MaxLease.Microseconds() &&
		(pause == "" || lease.ReadPause(pause).Changed <= bound)
}

// released is the prefix of a line about a released row. The name of the lock follows.
const released = "released\t"

const maxEvents = 1000 // in one message
