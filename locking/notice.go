package locking

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Notice says that a tick was granted, to those who were about to ask for it.
type Notice struct {
	Lock  string
	Tick  time.Time
	Owner string
	Until time.Time // by the server's clock: the lease ends then unless it is renewed
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
	return g, true
}

const maxNotices = 1000 // in one message

func (c *Client) channel() string { return c.cfg.Prefix + "granted" }

// Tell publishes the grants of leases with a tick to all clients that [Client.Hear], so that they need not ask. A notice that
// gets lost costs them a request, and nothing else; no answer is waited for longer than [Config.Timeout]. On a quorum nothing is told.
func (c *Client) Tell(ctx context.Context, leases []*Lease) error {
	if c.quorum != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	pipe := c.cfg.Redis.Pipeline()
	for part := range slices.Chunk(leases, maxNotices) {
		var message []byte
		for _, l := range part {
			message = l.granted.append(message)
		}
		pipe.Publish(ctx, c.channel(), message)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("tell of grants: %w", err)
	}
	return nil
}

// Hear calls f with notices, and remembers what they tell as this client's own witness, until ctx ends. While the server is
// away, or forbids it (see [Config.OnForbidden]), it tries again and again, with growing pauses. f is called from one goroutine.
func (c *Client) Hear(ctx context.Context, f func([]Notice)) {
	if c.quorum != nil {
		<-ctx.Done()
		return
	}
	c.subscribe(ctx, channel{name: c.channel()}, listener{hear: func(message string) { f(c.overhear(message)) }})
}

// overhear takes in a message. What can't be read is none of ours.
func (c *Client) overhear(message string) []Notice {
	local := c.cfg.Clock()
	micros, known := c.servers.estimate(local)
	notices := make([]Notice, 0, strings.Count(message, "\n"))
	for line := range strings.Lines(message) {
		g, ok := parseGranted(strings.TrimSuffix(line, "\n"))
		if !ok {
			continue
		}
		notices = append(notices, Notice{Lock: g.lock, Tick: fromMicros(g.tick * 1e6), Owner: g.owner, Until: fromMicros(g.until)})
		if !known {
			continue // nor has this client asked for anything yet
		}
		age := max(time.Duration(micros-g.now)*time.Microsecond, 0)
		c.seen.learn(g.lock, knowledge{floor: g.floor, longest: g.longest, low: g.low, ledger: g.ledger, seen: local - age, permanent: g.permanent},
			c.cfg.Idle, g.now, true)
	}
	return notices
}
