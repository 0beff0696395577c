package redisconn

import (
	"context"
	"net"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/dial"
)

// access has the state that all clients of a [Conn] share to open connections.
type access struct {
	dialer *dial.Dialer
	steps  progress // connections in progress, except to the masters of a quorum
	closed context.Context
	cancel context.CancelFunc
	all    []*secrets
}

// openDialer prepares a dialer. Only tests pass a resolver.
func (a *access) openDialer(resolver *net.Resolver) {
	a.dialer = dial.New(dial.Config{Resolver: resolver})
	a.closed, a.cancel = context.WithCancel(context.Background())
}

// close cancels the connections in progress.
func (a *access) close() {
	a.cancel()
	a.dialer.Close()
}

// newConnector returns a connector to servers that accept the given secrets.
func (a *access) newConnector(s *secrets) *connector {
	a.all = append(a.all, s)
	return &connector{secrets: s, dial: a.dialer.Dial, steps: &a.steps, closed: a.closed}
}

// Dangers reads the files of [redis] again. It returns a sentence for each reason why new connections to Redis fail or soon will: a file that can't
// be read, or a certificate that expires.
func (c *Conn) Dangers(now time.Time) (found []string) {
	for _, s := range c.access.all {
		for _, danger := range s.fileDangers(now) {
			if !slices.Contains(found, danger) {
				found = append(found, danger)
			}
		}
	}
	return found
}
