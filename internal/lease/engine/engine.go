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
	"github.com/cronclave/cronclave/internal/lease/background"
	"github.com/cronclave/cronclave/internal/lease/clock"
	"github.com/cronclave/cronclave/internal/lease/observed"
	"github.com/cronclave/cronclave/internal/lease/script"
	"github.com/cronclave/cronclave/internal/lease/transport"
)

// A Config is the configuration of a [Client]. Package locking documents the fields.
type Config struct {
	Redis         transport.Client
	Quorum        []transport.Client
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
	observed *observed.Cache
	work     *background.Group // work that continues after a call has returned; Close waits for it
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
	c := &Client{cfg: cfg, observed: observed.New(), work: background.New(cfg.Clock)}
	c.keeper = newKeeper(cfg, c.work)
	c.store = openStore(c)
	c.keeper.store = c.store
	c.work.Go(c.keeper.run)
	return c, nil
}

// checkSettings returns an error for an invalid configuration.
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

// withDefaults returns the configuration with defaults for the settings that are not set.
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
		cfg.Clock = clock.Boot()
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
	return clock.FromMicros(micros), ok
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
func (c *Client) lockKey(lock string) string { return script.Key(c.cfg.Prefix, lock) }
