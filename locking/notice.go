package locking

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Notice says that a tick was granted, to those who were about to ask for it; or that a row was released, to those who wait for one.
type Notice struct {
	Lock  string
	Tick  time.Time // zero if a row was released; what follows is, too
	Owner string
	Until time.Time // by the server's clock: the lease ends then unless it is renewed, or has ended and was given back, or left an orphan
}

// granted is a [Notice] on the wire, with all that a reply would have told a witness. Instants and lengths are microseconds,
// ticks seconds since 1970. A message has a line for each, with tabs between the fields: a form that is cheap to
// read, since thousands of ticks may be granted at once.
type granted struct {
	lock, owner, ledger      string
	tick, until              int64
	now, floor, longest, low int64
	permanent                bool
}

func (g granted) append(b []byte) []byte {
	if strings.ContainsAny(g.lock+g.owner, "\t\n") {
		return b // such names are rare, and a notice is no more than a convenience
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
	return g, g.sound()
}

// longestHeard bounds names that a message tells, in bytes.
const longestHeard = 1000

// longestLedger bounds what a message tells of a ledger, in bytes: a thousand entries.
const longestLedger = 1 << 18

// sound tells whether a message says what a client says: its numbers are within their bounds, and its texts have the form of a ledger and a pause.
func (g granted) sound() bool {
	pause, ledger := cutPause(g.ledger)
	return g.tick <= maxTick && g.until <= maxNumber && g.now <= maxNumber && g.floor <= maxNumber && g.low <= maxTick &&
		g.longest <= MaxLease.Microseconds() && len(g.owner) <= longestHeard && len(g.lock) <= longestHeard && len(g.ledger) <= longestLedger &&
		(pause == "" || readPause(pause).sound()) && ledgerText.MatchString(ledger)
}

// ledgerText is a ledger as the scripts have it: "tick prev state how;...".
var ledgerText = regexp.MustCompile(`^(?:\d{1,10} \d{1,10} (?:part|done|open) [^;\n\t]*(?:;|$))*$`)

// believable tells whether a message can be true now: nothing in it is ahead of the server's clock by more than a minute, but for the end of a lease. A word from
// the future would outlive every true one.
func (g granted) believable(now int64) bool {
	bound := now + glitch
	pause, _ := cutPause(g.ledger)
	return g.now <= bound && g.floor <= bound && g.low*1e6 <= bound && g.tick*1e6 <= bound && g.until <= bound+MaxLease.Microseconds() &&
		(pause == "" || readPause(pause).changed <= bound)
}

// released is the word before the name of a lock of which a row was.
const released = "released\t"

const maxNotices = 1000 // in one message

func (c *Client) channel() string { return c.cfg.Prefix + "granted" }

// notice is what there is to tell of a lease: its grant, or that it was given back, or that its run was left to an heir.
func (l *Lease) notice() granted {
	g := l.granted
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.givenBack:
		g.until = g.now
	case l.leftAt > 0:
		g.until = l.leftAt
	}
	return g
}

// Tell publishes the grants of leases with a tick to all clients that [Client.Hear], so that they need not ask, and the releases of others, so that those
// who wait need not ask often. A notice that gets lost costs a request, or a pause, and nothing else; no answer is waited for longer than [Config.Timeout]. On a
// quorum nothing is told.
func (c *Client) Tell(ctx context.Context, leases, ended []*Lease) error {
	if c.quorum != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	pipe := c.cfg.Redis.Pipeline()
	for part := range slices.Chunk(leases, maxNotices) {
		var message []byte
		for _, l := range part {
			message = l.notice().append(message)
		}
		pipe.Publish(ctx, c.channel(), message)
	}
	for part := range slices.Chunk(ended, maxNotices) {
		var message []byte
		for _, l := range part {
			message = append(append(append(message, released...), l.lock...), '\n')
		}
		pipe.Publish(ctx, c.channel(), message)
	}
	if err := execPipe(ctx, pipe); err != nil {
		return fmt.Errorf("tell of grants: %w", err)
	}
	return nil
}

// Hear calls f with notices, and remembers what they tell as this client's own witness, until ctx ends; what [Client.Stop] has told reaches
// the client's leases at once meanwhile. While the server is
// away, or forbids it (see [Config.OnForbidden]), it tries again and again, with growing pauses. f is called from one goroutine.
func (c *Client) Hear(ctx context.Context, f func([]Notice)) {
	if c.quorum != nil {
		<-ctx.Done()
		return
	}
	c.subscribe(ctx, channel{name: c.channel()}, listener{hear: func(message string) { f(c.overhear(message)) }})
}

// overhear takes in a message. What can't be read, and what can't be true, is none of ours; nor is what is beyond the lines that a client sends at once. Anybody who
// may publish can write it: so it only adds to what is known of locks that this client uses.
func (c *Client) overhear(message string) []Notice {
	local := c.cfg.Clock()
	micros, known := c.servers.estimate(local)
	notices := make([]Notice, 0, min(strings.Count(message, "\n"), maxNotices))
	lines := 0
	for line := range strings.Lines(message) {
		if lines++; lines > maxNotices {
			break
		}
		line = strings.TrimSuffix(line, "\n")
		if id, reason, ok := parseStop(line); ok {
			c.keeper.askToStop(id, reason)
			continue
		}
		if lock, ok := strings.CutPrefix(line, released); ok {
			if len(lock) <= longestHeard {
				notices = append(notices, Notice{Lock: lock})
			}
			continue
		}
		g, ok := parseGranted(line)
		if !ok || known && !g.believable(micros) {
			continue
		}
		if g.until > 0 { // else it tells of a pause
			notices = append(notices, Notice{Lock: g.lock, Tick: fromMicros(g.tick * 1e6), Owner: g.owner, Until: fromMicros(g.until)})
		}
		if !known {
			continue
		}
		age := max(time.Duration(micros-g.now)*time.Microsecond, 0)
		paused, ledger := cutPause(g.ledger)
		c.seen.overhear(g.lock, knowledge{floor: g.floor, longest: g.longest, low: g.low, ledger: ledger, paused: paused, seen: local - age}, c.cfg.Idle, g.now)
	}
	return notices
}
