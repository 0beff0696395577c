// Package engine acquires, renews and releases leases. Packages locking and election are built on it.
package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/quorum"
	"github.com/cronclave/cronclave/internal/lease/redis"
)

// A Config is the configuration of a [Client]. Package locking documents the fields.
type Config struct {
	Redis         redis.Client
	Quorum        []redis.Client
	Prefix        string
	Owner         string
	Timeout       time.Duration
	AckedReplicas int
	AckTimeout    time.Duration
	Idle          time.Duration
	OnForbidden   func(channel string, err error)
	Hooks         Hooks
	Clock         func() time.Duration
}

// A Client acquires leases and renews them. It is safe for concurrent use.
type Client struct {
	cfg      Config
	store    lease.Store
	keeper   *keeper
	observed *lease.ObservedCache
	work     *lease.Background // work that continues after a call has returned; Close waits for it
	givenUp  atomic.Int64      // the number of releases under way in the background
}

// New returns a client and starts its keeper, the goroutine that renews leases; [Client.Close] ends it.
func New(cfg Config) (*Client, error) {
	if err := cfg.checkSettings(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if cfg.AckTimeout >= cfg.Timeout {
		return nil, errors.New("locking: Config.AckTimeout must be less than Config.Timeout, which bounds the whole round trip")
	}
	c := &Client{cfg: cfg, observed: lease.NewObservedCache(), work: lease.NewBackground(cfg.Clock)}
	c.keeper = newKeeper(cfg, c.work)
	c.store = openStore(c)
	c.keeper.store = c.store
	c.work.Go(c.keeper.run)
	return c, nil
}

func (cfg Config) checkSettings() error {
	if err := checkServers(cfg); err != nil {
		return err
	}
	if strings.Contains(cfg.Owner, "\n") {
		return errors.New("locking: Config.Owner contains a line break")
	}
	if cfg.Timeout < 0 {
		return errors.New("locking: Config.Timeout must not be negative")
	}
	if cfg.Idle != 0 && cfg.Idle < time.Millisecond {
		return fmt.Errorf("locking: Config.Idle is %v: it must be at least 1ms", cfg.Idle)
	}
	if cfg.AckedReplicas < 0 || cfg.AckTimeout < 0 {
		return errors.New("locking: Config.AckedReplicas and Config.AckTimeout must not be negative")
	}
	return nil
}

func (cfg Config) withDefaults() Config {
	cfg.Prefix = cmp.Or(cfg.Prefix, "locking:")
	cfg.Owner = cmp.Or(cfg.Owner, rand.Text()[:10])
	cfg.Timeout = cmp.Or(cfg.Timeout, time.Second)
	cfg.Idle = cmp.Or(cfg.Idle, 10*time.Minute)
	cfg.AckTimeout = cmp.Or(cfg.AckTimeout, min(100*time.Millisecond, cfg.Timeout/2))
	if cfg.OnForbidden == nil {
		cfg.OnForbidden = func(string, error) {}
	}
	if cfg.Clock == nil {
		cfg.Clock = lease.BootClock()
	}
	return cfg
}

// Close stops the renewal of all leases. It waits for background work, and for callers that wait for a lock, which leave the queue. Leases that were
// not released end with [ErrClosed], and expire in Redis.
func (c *Client) Close() error {
	c.work.End()
	c.work.Wait()
	return c.store.Close()
}

// ServerTime returns an estimate of Redis's clock. It makes a call only if no reply has been received yet. With a Cluster or a quorum, the estimate
// is the median of the nodes' clocks.
func (c *Client) ServerTime(ctx context.Context) (time.Time, error) {
	return c.store.ServerTime(ctx)
}

// EstimatedTime returns the estimate of Redis's clock without a call. ok is false before the first reply.
func (c *Client) EstimatedTime() (t time.Time, ok bool) {
	micros, ok := c.store.Estimate(c.cfg.Clock())
	return lease.FromMicros(micros), ok
}

// now returns [Client.EstimatedTime]; zero before the first reply.
func (c *Client) now() time.Time {
	if t, ok := c.EstimatedTime(); ok {
		return t
	}
	return time.Time{}
}

// EstimateError returns the maximum error of [Client.EstimatedTime], which depends on the latency of replies; 0 before the first reply.
func (c *Client) EstimateError() time.Duration {
	return c.store.Margin(c.cfg.Clock())
}

// lockKey returns the first key of a lock. The other keys begin with it, and have its hash tag.
func (c *Client) lockKey(lock string) string { return redis.LockKey(c.cfg.Prefix, lock) }

// Hooks report events of a client's locks. See package locking.
type Hooks struct {
	Waited    func(lock string, wait time.Duration)
	Contended func(lock, holder string)
	Renewed   func(lock string, left, length time.Duration)
	Held      func(lock string, held time.Duration)
	Lost      func(lock string, length time.Duration, cause error)
}

func (h Hooks) reportWait(lock string, wait time.Duration) {
	if h.Waited != nil {
		h.Waited(lock, wait)
	}
}

func (h Hooks) reportContention(lock, holder string) {
	if h.Contended != nil {
		h.Contended(lock, holder)
	}
}

func (h Hooks) reportRenewal(l *Lease, left time.Duration) {
	if h.Renewed != nil {
		h.Renewed(l.lockName(), left, l.Length())
	}
}

// reportEnd calls Lost and Held when the lease ends, in a goroutine of their own.
func (h Hooks) reportEnd(l *Lease, clock func() time.Duration) {
	if h.Held == nil && h.Lost == nil {
		return
	}
	began := clock()
	context.AfterFunc(l.ctx, func() {
		if cause := context.Cause(l.ctx); h.Lost != nil && errors.Is(cause, ErrLost) {
			h.Lost(l.lockName(), l.Length(), cause)
		}
		if h.Held != nil {
			h.Held(l.lockName(), max(l.Deadline()-began, 0))
		}
	})
}

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
	// An updater makes one try of an update. again is true if nothing was written and another try may succeed.
	updater interface {
		Update(ctx context.Context, keys []string, change func(tx *Tx) error) (again bool, err error)
	}
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
