// Package redis keeps locks on one Redis master: a standalone server, a master watched by Sentinels, or the Cluster node that has the lock's keys. It
// has the Lua scripts of this store and of package quorum.
//
// Redis runs a script in one atomic step. The header of a script's file in lua lists the keys, the arguments, the replies, and the reason why the
// script must be atomic. The tables in this package list the same arguments in the same order, which a test checks.
package redis

import (
	"errors"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// A Store executes the requests to a lock as scripts on the Redis server that has the lock.
type Store struct {
	*sender
	*publisher
	notifier *notifier
}

// The compiler checks the interfaces, because otherwise a changed signature would make [lease.StoreAs] fail at run time.
var _ interface {
	lease.Compacter
	lease.SetLocker
	lease.Fencer
	lease.Remover
	lease.EventPublisher
} = (*Store)(nil)

// New returns the store.
func New(cfg Config) *Store {
	s := &sender{cfg: cfg, scripts: NewScripts(), servers: newServers(cfg.Redis)}
	p := &publisher{sender: s, subscriber: subscriber{redis: cfg.Redis, timeout: cfg.Timeout, onForbidden: cfg.OnForbidden}}
	return &Store{sender: s, publisher: p, notifier: newNotifier(s, p.subscriber)}
}

// Check returns an error if a Redis client can't be used.
func Check(r Client) error {
	switch {
	case r == nil:
		return errors.New("locking: Config.Redis is missing")
	case !ObeysContext(r):
		return errors.New("locking: set ContextTimeoutEnabled in the options of Config.Redis: without it a hung socket can outlast a lease")
	}
	return nil
}

// Close closes the connections that the store has opened. It does not close Config.Redis.
func (c *Store) Close() error { return c.servers.close() }

// RoundTrips returns the number of round trips that a request needs.
func (c *Store) RoundTrips() int { return 1 }

// RenewAfter returns a third of the time left, so that two renewals may fail before the lease ends.
func (c *Store) RenewAfter(left time.Duration) time.Duration { return left / 3 }

// RecordAttempt does nothing, because a renewal records the attempt.
func (c *Store) RecordAttempt(*lease.HeldRow, int64) error { return nil }
