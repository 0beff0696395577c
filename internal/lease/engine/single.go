package engine

import (
	"errors"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/script"
	"github.com/cronclave/cronclave/internal/lease/transport"
)

// single answers requests with scripts on the server of a lock.
type single struct {
	*sender
	*publisher
	notifier *notifier
}

// newSingle returns the store.
func newSingle(cfg singleConfig) *single {
	s := &sender{cfg: cfg, scripts: script.ForSingle(), servers: newServers(cfg.Redis)}
	p := &publisher{sender: s, subscriber: subscriber{redis: cfg.Redis, timeout: cfg.Timeout, onForbidden: cfg.OnForbidden}}
	return &single{sender: s, publisher: p, notifier: newNotifier(s, p.subscriber)}
}

// checkSingle returns an error if a client can't be used.
func checkSingle(r transport.Client) error {
	switch {
	case r == nil:
		return errors.New("locking: Config.Redis is missing")
	case !transport.ObeysContext(r):
		return errors.New("locking: set ContextTimeoutEnabled in the options of Config.Redis: without it a hung socket can outlast a lease")
	}
	return nil
}

// Close closes what the store has opened itself. The client of Redis stays its maker's.
func (c *single) Close() error { return c.servers.close() }

// RoundTrips of a request.
func (c *single) RoundTrips() int { return 1 }

// RenewAfter is a third of the time left, so that two attempts may fail.
func (c *single) RenewAfter(left time.Duration) time.Duration { return left / 3 }

// RecordAttempt has nothing to do: a renewal carries the attempt.
func (c *single) RecordAttempt(*lease.HeldRow, int64) error { return nil }
