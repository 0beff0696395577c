package redisconn

import (
	"context"
	"net"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/dial"
)

// access is what all clients of a [Conn] need for their connections.
type access struct {
	dialer *dial.Dialer
	steps  progress // but those to the masters of a quorum
	closed context.Context
	cancel context.CancelFunc
	all    []*secrets
}

// open needs a resolver only in tests.
func (a *access) open(resolver *net.Resolver) {
	a.dialer = dial.New(dial.Config{Resolver: resolver})
	a.closed, a.cancel = context.WithCancel(context.Background())
}

// close ends the connections that are being made.
func (a *access) close() {
	a.cancel()
	a.dialer.Close()
}

// connector makes the connections that need some secrets.
func (a *access) connector(s *secrets) *connector {
	a.all = append(a.all, s)
	return &connector{secrets: s, dial: a.dialer.Dial, steps: &a.steps, closed: a.closed}
}

// Dangers reads the files of [redis] and returns the reasons, a sentence each, for which new connections do not reach Redis or soon will not: a file that can't be read, a
// certificate that ends.
func (c *Conn) Dangers(now time.Time) (found []string) {
	for _, s := range c.access.all {
		for _, danger := range s.dangers(now) {
			if !slices.Contains(found, danger) {
				found = append(found, danger)
			}
		}
	}
	return found
}
