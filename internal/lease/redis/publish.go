package redis

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// A publisher publishes events to other clients, and receives their events.
type publisher struct {
	*sender
	subscriber
}

// Publish publishes the grants of rows, and the releases of the locks in ended.
func (c *publisher) Publish(ctx context.Context, rows []lease.GrantedRow, ended []string) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	pipe := c.cfg.Redis.Pipeline()
	for part := range slices.Chunk(rows, maxEvents) {
		var message []byte
		for _, row := range part {
			message = c.eventOf(row).appendLine(message)
		}
		pipe.Publish(ctx, c.grantChannel(), message)
	}
	for part := range slices.Chunk(ended, maxEvents) {
		var message []byte
		for _, lock := range part {
			message = append(append(append(message, released...), lock...), '\n')
		}
		pipe.Publish(ctx, c.grantChannel(), message)
	}
	return Exec(ctx, pipe)
}

func (c *publisher) eventOf(row lease.GrantedRow) granted {
	r, g := &row.Row.Request, &row.Row.Grant
	return granted{lock: r.Lock, owner: c.cfg.Owner, ledger: g.Known.Ledger, tick: g.Tick, until: row.Until,
		now: g.Now, floor: g.Known.Floor, longest: g.Known.Longest, low: g.Known.Low, permanent: r.Permanent}
}

// Subscribe calls f with events of other clients until ctx ends.
func (c *publisher) Subscribe(ctx context.Context, f func([]lease.GrantEvent)) {
	c.subscribeTo(ctx, channel{name: c.grantChannel()}, listener{receive: func(message string) { f(c.learnEvents(message)) }})
}

// learnEvents decodes a message, records the state of its locks, and returns its events. Any Redis user with the right to publish can forge a
// message. learnEvents therefore ignores lines that are invalid or implausible, and lines beyond maxEvents. It updates only locks that this client
// uses.
func (c *publisher) learnEvents(message string) []lease.GrantEvent {
	local := c.cfg.Clock()
	micros, known := c.servers.estimateAt(local)
	events := make([]lease.GrantEvent, 0, min(strings.Count(message, "\n"), maxEvents))
	lines := 0
	for line := range strings.Lines(message) {
		if lines++; lines > maxEvents {
			break
		}
		line = strings.TrimSuffix(line, "\n")
		if id, reason, ok := parseStop(line); ok {
			c.cfg.AskToStop(id, reason)
			continue
		}
		if lock, ok := strings.CutPrefix(line, released); ok {
			if len(lock) <= lease.MaxHeard {
				events = append(events, lease.GrantEvent{Lock: lock})
			}
			continue
		}
		g, ok := parseGranted(line)
		if !ok || known && !g.isBelievable(micros) {
			continue
		}
		if g.until > 0 { // a line without until announces a pause
			events = append(events, lease.GrantEvent{Lock: g.lock, Tick: lease.FromMicros(g.tick * 1e6), Owner: g.owner, Until: lease.FromMicros(g.until)})
		}
		if !known {
			continue
		}
		age := max(time.Duration(micros-g.now)*time.Microsecond, 0)
		paused, ledger := lease.CutPause(g.ledger)
		c.cfg.Observed.LearnPublished(g.lock, lease.Observed{Floor: g.floor, Longest: g.longest, Low: g.low, Ledger: ledger, Paused: paused, Seen: local - age}, c.cfg.Idle, g.now)
	}
	return events
}

// A granted is a [lease.GrantEvent] in a published message, with the state of the lock that the publishing client has got in a reply. Instants and
// durations are in microseconds, ticks in seconds since 1970. A message has one line per event, with tabs between the fields. This format is cheap to
// parse, because thousands of ticks may be granted at once.
type granted struct {
	lock, owner, ledger      string
	tick, until              int64
	now, floor, longest, low int64
	permanent                bool
}

func (g granted) appendLine(b []byte) []byte {
	if strings.ContainsAny(g.lock+g.owner, "\t\n") {
		return b // such a name would break the format; a lost event does no harm
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

// parseStop parses a message of lua/stop.lua.
func parseStop(line string) (id, reason string, ok bool) {
	rest, ok := strings.CutPrefix(line, "stop\t")
	if !ok {
		return "", "", false
	}
	id, reason, ok = strings.Cut(rest, "\t")
	return id, reason, ok && id != "" && reason != "" && lease.OneLine(reason, lease.MaxHeard)
}

// longestLedger is the maximum length of the ledger in a message, in bytes. It is enough for a thousand entries.
const longestLedger = 1 << 18

// isSound reports whether the numbers of a message are within their bounds, and its texts have the format of a ledger and a pause.
func (g granted) isSound() bool {
	pause, ledger := lease.CutPause(g.ledger)
	return g.tick <= lease.MaxTick && g.until <= lease.MaxNumber && g.now <= lease.MaxNumber && g.floor <= lease.MaxNumber && g.low <= lease.MaxTick &&
		g.longest <= lease.MaxLease.Microseconds() && len(g.owner) <= lease.MaxHeard && len(g.lock) <= lease.MaxHeard && len(g.ledger) <= longestLedger &&
		(pause == "" || lease.ReadPause(pause).Sound()) && ledgerText.MatchString(ledger)
}

// ledgerText matches a ledger as the scripts write it: "tick prev state how;...".
var ledgerText = regexp.MustCompile(`^(?:\d{1,10} \d{1,10} (?:part|done|open) [^;\n\t]*(?:;|$))*$`)

// isBelievable reports whether the instants in a message are at most a minute ahead of Redis's clock. The end of a lease may be later, by
// [lease.MaxLease]. A message from the future would override all true messages.
func (g granted) isBelievable(now int64) bool {
	bound := now + lease.MinuteMicros
	pause, _ := lease.CutPause(g.ledger)
	return g.now <= bound && g.floor <= bound && g.low*1e6 <= bound && g.tick*1e6 <= bound && g.until <= bound+lease.MaxLease.Microseconds() &&
		(pause == "" || lease.ReadPause(pause).Changed <= bound)
}

// released is the prefix of a line that announces a release. The name of the lock follows.
const released = "released\t"

const maxEvents = 1000 // the maximum number of events in one message
