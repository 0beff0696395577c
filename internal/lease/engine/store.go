package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/quorum"
	"github.com/cronclave/cronclave/internal/lease/redis"
)

// openStore returns the store for a configuration. Only this file chooses between one master and a quorum.
func openStore(c *Client) lease.Store {
	cfg := c.cfg
	if len(cfg.Quorum) > 0 {
		return quorum.New(quorum.Config{Nodes: cfg.Quorum, Prefix: cfg.Prefix, Owner: cfg.Owner, Timeout: cfg.Timeout, Idle: cfg.Idle, Clock: cfg.Clock,
			Work: c.work, Observed: c.observed, HeldToken: c.keeper.tokenOf, Contended: cfg.Hooks.reportContention})
	}
	return redis.New(redis.Config{Redis: cfg.Redis, Prefix: cfg.Prefix, Owner: cfg.Owner, Timeout: cfg.Timeout, AckedReplicas: cfg.AckedReplicas,
		AckTimeout: cfg.AckTimeout, Idle: cfg.Idle, Clock: cfg.Clock, OnForbidden: cfg.OnForbidden,
		Work: c.work, Observed: c.observed, HeldToken: c.keeper.tokenOf, AskToStop: c.keeper.askToStop, Contended: cfg.Hooks.reportContention})
}

// checkServers returns an error if the servers of a configuration can't be used.
func checkServers(cfg Config) error {
	switch {
	case len(cfg.Quorum) == 0:
		return redis.Check(cfg.Redis)
	case cfg.Redis != nil:
		return errors.New("locking: set one of Config.Redis and Config.Quorum, not both")
	}
	if err := quorum.Check(cfg.Quorum); err != nil {
		return err
	}
	if cfg.AckedReplicas > 0 {
		return errors.New("locking: Config.AckedReplicas is for Config.Redis; the masters of a quorum have no replicas that count")
	}
	return nil
}

// The optional methods of a store. Only a store on one master has them: see [storeAs].
type (
	// A compacter has a faster Acquire for simple requests. ok is false if the request needs Acquire.
	compacter interface {
		AcquireCompact(ctx context.Context, r lease.Request) (result lease.Result, ok bool)
	}
	// A setLocker grants a row in each of several locks, or in none. If grants is nil, refused is the name of the lock that refused, and refusal its
	// result.
	setLocker interface {
		AcquireSet(ctx context.Context, requests []lease.Request) (grants []lease.Grant, refusal lease.Result, refused string)
	}
	// A fencer stores the greatest token of a resource.
	fencer interface {
		Pass(ctx context.Context, resource string, idle time.Duration, token lease.Token) error
	}
	// An updater changes keys without a lock.
	updater interface {
		Update(ctx context.Context, keys []string, change func(tx *Tx) error) (again bool, err error)
	}
	// A remover removes locks that are no longer used.
	remover interface {
		Remove(ctx context.Context, locks []string, unusedSince time.Time) (removed []bool, err error)
	}
	// An eventPublisher publishes grants, and releases of locks by their names, and calls a function with the events of others.
	eventPublisher interface {
		Publish(ctx context.Context, granted []lease.GrantedRow, released []string) error
		Subscribe(ctx context.Context, f func([]lease.GrantEvent))
	}
)

// The compiler checks these interfaces, because otherwise a changed signature would make storeAs fail at run time.
var _ interface {
	compacter
	setLocker
	fencer
	updater
	remover
	eventPublisher
} = (*redis.Store)(nil)

// storeAs returns the store as a T. If the store does not implement T, the error is [ErrQuorum].
func storeAs[T any](store lease.Store, what string) (T, error) {
	s, ok := store.(T)
	if !ok {
		return s, fmt.Errorf("%s: %w", what, ErrQuorum)
	}
	return s, nil
}
