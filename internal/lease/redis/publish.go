package redis

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/clock"
	"github.com/cronclave/cronclave/internal/lease/observed"
	"github.com/cronclave/cronclave/internal/lease/transport"
)

// A publisher publishes events to other clients, and receives their events.
type publisher struct {
	*sender
	subscriber
}

// Publish publishes the grants in rows, and releases of the locks in ended.
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
	return transport.Exec(ctx, pipe)
}

// eventOf returns the event about a row.
func (c *publisher) eventOf(row lease.GrantedRow) granted {
	r, g := &row.Row.Request, &row.Row.Grant
	return granted{lock: r.Lock, owner: c.cfg.Owner, ledger: g.Known.Ledger, tick: g.Tick, until: row.Until,
		now: g.Now, floor: g.Known.Floor, longest: g.Known.Longest, low: g.Known.Low, permanent: r.Permanent}
}

// Subscribe calls f with events of other clients until ctx ends.
func (c *publisher) Subscribe(ctx context.Context, f func([]lease.GrantEvent)) {
	c.subscribeTo(ctx, channel{name: c.grantChannel()}, listener{receive: func(message string) { f(c.learnEvents(message)) }})
}

// learnEvents decodes a message, records the state of the locks, and returns the events. Any Redis user with the right to publish can forge a
// message. learnEvents therefore ignores lines that are invalid or implausible, and lines beyond maxEvents, and updates only locks that this client
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
		if g.until > 0 { // without until, the line announces a pause
			events = append(events, lease.GrantEvent{Lock: g.lock, Tick: clock.FromMicros(g.tick * 1e6), Owner: g.owner, Until: clock.FromMicros(g.until)})
		}
		if !known {
			continue
		}
		age := max(time.Duration(micros-g.now)*time.Microsecond, 0)
		paused, ledger := lease.CutPause(g.ledger)
		c.cfg.Observed.LearnPublished(g.lock, observed.State{Floor: g.floor, Longest: g.longest, Low: g.low, Ledger: ledger, Paused: paused, Seen: local - age}, c.cfg.Idle, g.now)
	}
	return events
}
