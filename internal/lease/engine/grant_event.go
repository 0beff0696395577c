package engine

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/clock"
	"github.com/cronclave/cronclave/internal/lease/observed"
	"github.com/cronclave/cronclave/internal/lease/transport"
)

// GrantEvent says that a tick was granted, to clients that were about to ask for it; or that a row was released, to
// clients that wait for one.
type GrantEvent struct {
	Lock  string
	Tick  time.Time // zero if a row was released; so are the fields below
	Owner string
	Until time.Time // by the server's clock: the lease ends then unless it is renewed, or has ended and was given back, or left an orphan
}

// granted is a [GrantEvent] on the wire, with all that a reply says of the lock. Instants and lengths are microseconds,
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
		return b // such names are rare, and an event is no more than a convenience
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

// longestLedger bounds the ledger in a message, in bytes: a thousand entries.
const longestLedger = 1 << 18

// sound reports whether a message could be a client's: its numbers are within their bounds, and its texts have
// the form of a ledger and a pause.
func (g granted) sound() bool {
	pause, ledger := lease.CutPause(g.ledger)
	return g.tick <= lease.MaxTick && g.until <= lease.MaxNumber && g.now <= lease.MaxNumber && g.floor <= lease.MaxNumber && g.low <= lease.MaxTick &&
		g.longest <= MaxLease.Microseconds() && len(g.owner) <= lease.MaxHeard && len(g.lock) <= lease.MaxHeard && len(g.ledger) <= longestLedger &&
		(pause == "" || lease.ReadPause(pause).Sound()) && ledgerText.MatchString(ledger)
}

// ledgerText is a ledger as the scripts have it: "tick prev state how;...".
var ledgerText = regexp.MustCompile(`^(?:\d{1,10} \d{1,10} (?:part|done|open) [^;\n\t]*(?:;|$))*$`)

// believable reports whether a message can be true now: nothing in it is ahead of the server's clock by more
// than a minute, but for the end of a lease. A message from the future would outlive every true one.
func (g granted) believable(now int64) bool {
	bound := now + lease.MinuteMicros
	pause, _ := lease.CutPause(g.ledger)
	return g.now <= bound && g.floor <= bound && g.low*1e6 <= bound && g.tick*1e6 <= bound && g.until <= bound+MaxLease.Microseconds() &&
		(pause == "" || lease.ReadPause(pause).Changed <= bound)
}

// released is the word before the name of a lock of which a row was.
const released = "released\t"

const maxEvents = 1000 // in one message

func (c *single) channel() string { return c.cfg.Prefix + "granted" }

// event returns the message about a lease: its grant, or that it was given back, or that its run was left to a
// recovery.
func (l *Lease) event() granted {
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

// Publish publishes the grants of leases with a tick to all clients that [Client.Subscribe], so that they need not ask,
// and the releases of others, so that waiters need not ask often. An event that gets lost costs a request, or a
// pause, and nothing else; no answer is waited for longer than [Config.Timeout]. On a quorum nothing is
// published.
func (c *Client) Publish(ctx context.Context, leases, ended []*Lease) error {
	return c.store.publish(ctx, leases, ended)
}

func (c *single) publish(ctx context.Context, leases, ended []*Lease) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	pipe := c.cfg.Redis.Pipeline()
	for part := range slices.Chunk(leases, maxEvents) {
		var message []byte
		for _, l := range part {
			message = l.event().append(message)
		}
		pipe.Publish(ctx, c.channel(), message)
	}
	for part := range slices.Chunk(ended, maxEvents) {
		var message []byte
		for _, l := range part {
			message = append(append(append(message, released...), l.lock...), '\n')
		}
		pipe.Publish(ctx, c.channel(), message)
	}
	if err := transport.Exec(ctx, pipe); err != nil {
		return fmt.Errorf("tell of grants: %w", err)
	}
	return nil
}

// Subscribe calls f with events, and keeps their content as this client's observed state, until ctx ends. Messages
// of [Client.Stop] reach the client's leases at once meanwhile. While the server is away, or forbids it (see
// [Config.OnForbidden]), it tries again and again, with growing pauses. f is called from one goroutine.
func (c *Client) Subscribe(ctx context.Context, f func([]GrantEvent)) {
	c.store.hear(ctx, f)
}

func (c *single) hear(ctx context.Context, f func([]GrantEvent)) {
	c.subscribe(ctx, channel{name: c.channel()}, listener{hear: func(message string) { f(c.overhear(message)) }})
}

// overhear takes in a message. A message that can't be read, or can't be true, is not from a client and is
// ignored; so are lines beyond the number that a client sends at once. Any user that may publish can write one,
// so a message only adds to the observed state of locks that this client uses.
func (c *single) overhear(message string) []GrantEvent {
	local := c.cfg.Clock()
	micros, known := c.servers.estimate(local)
	events := make([]GrantEvent, 0, min(strings.Count(message, "\n"), maxEvents))
	lines := 0
	for line := range strings.Lines(message) {
		if lines++; lines > maxEvents {
			break
		}
		line = strings.TrimSuffix(line, "\n")
		if id, reason, ok := parseStop(line); ok {
			c.keeper.askToStop(id, reason)
			continue
		}
		if lock, ok := strings.CutPrefix(line, released); ok {
			if len(lock) <= lease.MaxHeard {
				events = append(events, GrantEvent{Lock: lock})
			}
			continue
		}
		g, ok := parseGranted(line)
		if !ok || known && !g.believable(micros) {
			continue
		}
		if g.until > 0 { // else it is about a pause
			events = append(events, GrantEvent{Lock: g.lock, Tick: clock.FromMicros(g.tick * 1e6), Owner: g.owner, Until: clock.FromMicros(g.until)})
		}
		if !known {
			continue
		}
		age := max(time.Duration(micros-g.now)*time.Microsecond, 0)
		paused, ledger := lease.CutPause(g.ledger)
		c.seen.LearnPublished(g.lock, observed.State{Floor: g.floor, Longest: g.longest, Low: g.low, Ledger: ledger, Paused: paused, Seen: local - age}, c.cfg.Idle, g.now)
	}
	return events
}
