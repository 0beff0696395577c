package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/background"
	"github.com/cronclave/cronclave/internal/lease/clock"
	"github.com/cronclave/cronclave/internal/lease/observed"
	"github.com/cronclave/cronclave/internal/lease/script"
	"github.com/cronclave/cronclave/internal/lease/transport"
)

// A Config is the configuration of a store on one master.
type Config struct {
	Redis         transport.Client
	Prefix        string
	Owner         string
	Timeout       time.Duration // the timeout of a round trip
	AckedReplicas int           // the number of replicas that must acknowledge a write
	AckTimeout    time.Duration
	Idle          time.Duration // the time after which an unused lock expires
	Clock         func() time.Duration
	OnForbidden   func(channel string, err error)

	Work      *background.Group
	Observed  *observed.Cache
	HeldToken func(id string) lease.Token // returns the token of the client's lease with this id; 0 if it holds none
	AskToStop func(id, reason string)     // asks the holder of the client's lease with this id to stop
	Contended func(lock, holder string)   // reports that a waiting caller's lock has another holder
}

// A sender sends calls to the Redis servers.
type sender struct {
	cfg          Config
	scripts      script.Single
	servers      *servers
	batcher      batcher // for single calls
	acknowledged batcher // for single calls that replicas must acknowledge
	deadlines    deadlines
}

// unackedError returns the error for a write that too few replicas have acknowledged, so that a failover may undo it.
func (c *sender) unackedError() error {
	return fmt.Errorf("%w: not acknowledged by %d replicas within %v", lease.ErrUnknown, c.cfg.AckedReplicas, c.cfg.AckTimeout)
}

// ServerTime returns an estimate of Redis's time. It makes a call only if there is no estimate yet.
func (c *sender) ServerTime(ctx context.Context) (time.Time, error) {
	if t, ok := c.now(); ok {
		return t, nil
	}
	s, err := c.servers.holderOf(ctx, c.cfg.Prefix)
	if err == nil {
		err = c.learnTime(ctx, s)
	}
	t, _ := c.now()
	return t, transport.Unknown(err)
}

func (c *sender) now() (t time.Time, known bool) {
	micros, known := c.Estimate(c.cfg.Clock())
	return clock.FromMicros(micros), known
}

// Estimate returns an estimate of Redis's time at a local instant.
func (c *sender) Estimate(local time.Duration) (micros int64, known bool) {
	return c.servers.estimateAt(local)
}

// Margin returns the maximum error of the estimate.
func (c *sender) Margin(local time.Duration) time.Duration { return c.servers.marginAt(local) }

// learnTime makes sure that there is an estimate of a server's clock, which is needed to bound the execution of requests.
func (c *sender) learnTime(ctx context.Context, s server) (err error) {
	defer transport.Shield(&err)
	if _, known := s.clock.At(0); known {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	sent := c.cfg.Clock()
	t, err := s.redis.Time(ctx).Result()
	if err != nil {
		c.servers.reloadState(ctx)
		return fmt.Errorf("read the server's clock: %w", transport.Unknown(err))
	}
	s.clock.Observe(t.UnixMicro(), sent, c.cfg.Clock())
	return nil
}

// key returns the first key of a lock. The other keys begin with it, and have its hash tag.
func (c *sender) key(lock string) string { return script.Key(c.cfg.Prefix, lock) }

// keys returns the keys of a lock and a lease id.
func (c *sender) keys(lock, id string) []string { return script.Keys(c.key(lock), id) }

// newCall returns a call of a script, with the observed state of the lock.
func (c *sender) newCall(s *script.Script, lock, id string, permanent bool, args ...any) call {
	keys, idle := c.keys(lock, id), time.Duration(0)
	if !permanent {
		keys, idle = append(keys, keys[0]+":queue", keys[0]+":patience"), c.cfg.Idle // permanent locks have no queue
	}
	return c.callOn(keys, idle, s, lock, id, args...)
}

// A script reads all rows of a lock and its whole ledger, whose entries have about thirty bytes. Beyond these bounds, the number of slots and the
// bytes of the ledger, a call is heavy.
const manySlots, longLedger = 50, 1500

func (c *sender) callOn(keys []string, idle time.Duration, s *script.Script, lock, id string, args ...any) call {
	know := c.cfg.Observed.Of(lock, c.cfg.Clock, c.cfg.Idle)
	k := call{script: s, lock: lock, keys: keys, id: id, idle: idle.Microseconds(), heavy: len(know.Ledger) > longLedger,
		sync: c.cfg.AckedReplicas > 0 && s != c.scripts.Release && !s.ReadOnly} // a failover that undoes a release does no harm: the lease expires
	k.args = append(script.Common{ID: id, Idle: k.idle, Floor: know.Floor, Longest: know.Longest, Low: know.Low,
		Pause: know.Paused, Ledger: know.Ledger, Sync: k.sync}.Encode(), args...)
	return k
}

// grantChannel returns the channel to which grants are published.
func (c *sender) grantChannel() string { return c.cfg.Prefix + "granted" }

// StepClock shifts the estimate of Redis's clock, as if all earlier replies had shown the shifted time. It is for tests.
func (c *sender) StepClock(by time.Duration) {
	server, local := c.servers.clockFor(""), c.cfg.Clock()
	micros, _ := server.At(local)
	server.Observe(micros+by.Microseconds(), local, local)
}
