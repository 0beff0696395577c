package single

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

// Config is what a store on one master is made of.
type Config struct {
	Redis         transport.Client
	Prefix        string
	Owner         string
	Timeout       time.Duration // of a round trip
	AckedReplicas int           // that must have a change before it counts
	AckTimeout    time.Duration
	Idle          time.Duration // for which an unused lock is remembered
	Clock         func() time.Duration
	OnForbidden   func(channel string, err error)

	Work      *background.Group
	Observed  *observed.Cache
	HeldToken func(id string) lease.Token // that of the client's lease of this id; 0 if it holds none
	AskToStop func(id, reason string)     // asks the holder of the client's lease of this id
	Contended func(lock, holder string)   // reports that a lock that is waited for has another holder
}

// sender makes requests to the servers.
type sender struct {
	cfg          Config
	scripts      script.Single
	servers      *servers
	batcher      batcher // of single calls
	acknowledged batcher // of those that count only once replicas have them
	deadlines    deadlines
}

// unacked is the error of a request that was done, and that a failover may undo.
func (c *sender) unacked() error {
	return fmt.Errorf("%w: not acknowledged by %d replicas within %v", lease.ErrUnknown, c.cfg.AckedReplicas, c.cfg.AckTimeout)
}

// ServerTime is the server's clock.
func (c *sender) ServerTime(ctx context.Context) (time.Time, error) {
	if t, ok := c.now(); ok {
		return t, nil
	}
	s, err := c.servers.holder(ctx, c.cfg.Prefix)
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

// Estimate is the server's clock at a local instant.
func (c *sender) Estimate(local time.Duration) (micros int64, known bool) {
	return c.servers.estimate(local)
}

// Margin is how far that may be off.
func (c *sender) Margin(local time.Duration) time.Duration { return c.servers.margin(local) }

// learnTime makes sure that there is an estimate of a server's clock, by which requests are bounded.
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
		c.servers.suspect(ctx)
		return fmt.Errorf("read the server's clock: %w", transport.Unknown(err))
	}
	s.clock.Observe(t.UnixMicro(), sent, c.cfg.Clock())
	return nil
}

// key is the first of a lock's keys; it begins the others, and its hash tag is theirs.
func (c *sender) key(lock string) string { return script.Key(c.cfg.Prefix, lock) }

// keys are those of a lock, and of a lease id.
func (c *sender) keys(lock, id string) []string { return script.Keys(c.key(lock), id) }

// call prepares one execution: it carries the state that this client has observed.
func (c *sender) call(s *script.Script, lock, id string, permanent bool, args ...any) call {
	keys, idle := c.keys(lock, id), time.Duration(0)
	if !permanent {
		keys, idle = append(keys, keys[0]+":queue", keys[0]+":patience"), c.cfg.Idle // no caller waits for a permanent lock
	}
	return c.callOn(keys, idle, s, lock, id, args...)
}

// A script reads all rows of a lock, and all entries of its ledger, each of some thirty bytes.
const manySlots, longLedger = 50, 1500

func (c *sender) callOn(keys []string, idle time.Duration, s *script.Script, lock, id string, args ...any) call {
	know := c.cfg.Observed.Of(lock, c.cfg.Clock, c.cfg.Idle)
	k := call{script: s, lock: lock, keys: keys, id: id, idle: idle.Microseconds(), heavy: len(know.Ledger) > longLedger,
		sync: c.cfg.AckedReplicas > 0 && s != c.scripts.Release && !s.ReadOnly} // a release that a failover undoes does no harm: the lease runs out
	k.args = append(script.Common{ID: id, Idle: k.idle, Floor: know.Floor, Longest: know.Longest, Low: know.Low,
		Pause: know.Paused, Ledger: know.Ledger, Sync: k.sync}.Encode(), args...)
	return k
}

// channel is where grants are published.
func (c *sender) channel() string { return c.cfg.Prefix + "granted" }

// StepClock has the client learn that the server's clock was set: as if every reply before had shown that. Tests use it.
func (c *sender) StepClock(by time.Duration) {
	server, local := c.servers.clock(""), c.cfg.Clock()
	micros, _ := server.At(local)
	server.Observe(micros+by.Microseconds(), local, local)
}
