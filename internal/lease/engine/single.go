package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease/observed"
	"github.com/cronclave/cronclave/internal/lease/script"
	"github.com/cronclave/cronclave/internal/lease/transport"
)

// single keeps locks on one master: alone, followed by Sentinels, or the one of a Cluster that has a lock's keys.
type single struct {
	*Client
	scripts      script.Single
	servers      *servers
	seen         *observed.Cache
	batcher      batcher // of single calls
	acknowledged batcher // of those that count only once replicas have them
	deadlines    deadlines
	bell         *bell
}

func newSingle(c *Client, r redis.UniversalClient) *single {
	s := &single{Client: c, scripts: script.ForSingle(), servers: newServers(r), seen: observed.New()}
	s.bell = newNotifier(s)
	return s
}

func (c *single) close() error { return c.servers.close() }

func (c *single) serverTime(ctx context.Context) (time.Time, error) {
	if t, ok := c.EstimatedTime(); ok {
		return t, nil
	}
	s, err := c.servers.holder(ctx, c.cfg.Prefix)
	if err == nil {
		err = c.learnTime(ctx, s)
	}
	t, _ := c.EstimatedTime()
	return t, transport.Unknown(err)
}

func (c *single) estimate(local time.Duration) (micros int64, known bool) {
	return c.servers.estimate(local)
}

func (c *single) margin(local time.Duration) time.Duration { return c.servers.margin(local) }

func (c *single) roundTrips() time.Duration { return 1 }

// renewAfter is a third of the time left, so that two attempts may fail.
func (c *single) renewAfter(left time.Duration) time.Duration { return left / 3 }

// enterAttempt has nothing to do: a renewal carries the attempt.
func (c *single) enterAttempt(*Lease) error { return nil }

func (c *single) renew(ctx context.Context, batch []*Lease) []reply {
	calls := make([]call, len(batch))
	for i, l := range batch {
		calls[i] = c.renewing(l)
	}
	return c.send(ctx, calls)
}

// learnTime makes sure that there is an estimate of a server's clock, by which requests are bounded.
func (c *single) learnTime(ctx context.Context, s server) (err error) {
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

// renewing is the call of a renewal.
func (c *single) renewing(l *Lease) call {
	return c.call(c.scripts.Renew, l.lock, l.id, l.permanent, script.RenewArgs{
		Owner: c.cfg.Owner, Slot: l.slot, Lease: l.length, Trigger: l.trigger, Memo: l.memo, Token: l.token, Tick: l.tick,
		Attempt: l.proposed.Load(), Delay: l.delay, Slots: l.slots, Orphan: l.adopted}.Encode()...)
}
