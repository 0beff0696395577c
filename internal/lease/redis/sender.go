package redis

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// A Config is the configuration of a store on one master.
type Config struct {
	Redis         Client
	Prefix        string
	Owner         string
	Timeout       time.Duration // the timeout of a round trip
	AckedReplicas int           // the number of Redis replicas that must acknowledge a write
	AckTimeout    time.Duration
	Idle          time.Duration // the time after which Redis deletes an unused lock
	Clock         func() time.Duration
	OnForbidden   func(channel string, err error)

	Work      *lease.Background
	Observed  *lease.ObservedCache
	HeldToken func(id string) lease.Token // returns the token of the client's lease with this id; 0 if it holds none
	AskToStop func(id, reason string)     // asks the holder of the client's lease with this id to stop
	Contended func(lock, holder string)   // reports that a waiting caller's lock has another holder
}

// A sender sends calls to the servers, and learns the states of locks and the time from the replies.
type sender struct {
	cfg          Config
	scripts      Scripts
	servers      *servers
	batcher      batcher // for single calls
	acknowledged batcher // for single calls that Redis replicas must acknowledge
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
	return t, Unknown(err)
}

func (c *sender) now() (t time.Time, known bool) {
	micros, known := c.Estimate(c.cfg.Clock())
	return lease.FromMicros(micros), known
}

// Estimate returns an estimate of Redis's time at a local instant.
func (c *sender) Estimate(local time.Duration) (micros int64, known bool) {
	return c.servers.estimateAt(local)
}

// Margin returns the maximum error of the estimate.
func (c *sender) Margin(local time.Duration) time.Duration { return c.servers.marginAt(local) }

// learnTime asks a server for its time if there is no estimate of its clock yet: each call needs an instant after which Redis refuses it.
func (c *sender) learnTime(ctx context.Context, s server) (err error) {
	defer Shield(&err)
	if _, known := s.clock.At(0); known {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	sent := c.cfg.Clock()
	t, err := s.redis.Time(ctx).Result()
	if err != nil {
		c.servers.reloadState(ctx)
		return fmt.Errorf("read the server's clock: %w", Unknown(err))
	}
	s.clock.Observe(t.UnixMicro(), sent, c.cfg.Clock())
	return nil
}

// StepClock shifts the estimate of Redis's clock, as if Redis's clock were ahead by this time. It is for tests.
func (c *sender) StepClock(by time.Duration) {
	server, local := c.servers.clockFor(""), c.cfg.Clock()
	micros, _ := server.At(local)
	server.Observe(micros+by.Microseconds(), local, local)
}

// key returns the first key of a lock. The other keys begin with it, and have its hash tag.
func (c *sender) key(lock string) string { return LockKey(c.cfg.Prefix, lock) }

func (c *sender) keys(lock, id string) []string { return LockKeys(c.key(lock), id) }

// newCall returns a call of a script, with the state of the lock that this client has observed.
func (c *sender) newCall(s *Script, lock, id string, permanent bool, args ...any) call {
	keys, idle := c.keys(lock, id), time.Duration(0)
	if !permanent {
		keys, idle = append(keys, LineKeys(keys[0])...), c.cfg.Idle // permanent locks have no queue
	}
	return c.callOn(keys, idle, s, lock, id, args...)
}

// A call is heavy if it requests a lock with more than manySlots slots, or one whose ledger has more than longLedger bytes: the script reads all rows
// and the whole ledger. A ledger entry has about thirty bytes.
const manySlots, longLedger = 50, 1500

func (c *sender) callOn(keys []string, idle time.Duration, s *Script, lock, id string, args ...any) call {
	know := c.cfg.Observed.Of(lock, c.cfg.Clock, c.cfg.Idle)
	k := call{script: s, lock: lock, keys: keys, id: id, idle: idle.Microseconds(), heavy: len(know.Ledger) > longLedger,
		sync: c.cfg.AckedReplicas > 0 && s != c.scripts.Release && !s.ReadOnly} // a failover that undoes a release does no harm: the lease expires
	k.args = append(commonParams.encode(&know, id, k.idle, flag(k.sync)), args...)
	return k
}

func (c *sender) grantChannel() string { return c.cfg.Prefix + "granted" }

// learnReply records the lock's state from a reply, unless a failover may undo this state. Otherwise this client would report the undone state to the
// new master, for example a grant. The new master would then count the tick as decided, although no run of the tick began.
func (c *sender) learnReply(k call, r reply) {
	if len(k.parts) > 0 {
		c.learnSet(k, r)
		return
	}
	if r.err != nil || !r.acked || r.verdict == "late" || r.verdict == "dead" || r.now == 0 { // a late or dead request has changed nothing, and a reply without Redis's time has no state
		return
	}
	news := lease.Observed{Compact: r.compact || r.form != nil, Floor: r.floor, Longest: r.longest, Low: r.low, Ledger: r.ledger, Paused: r.paused, Seen: r.sent, Permanent: k.idle == 0}
	c.cfg.Observed.Learn(k.lock, news, c.cfg.Idle, r.now, r.inUse())
}

// learnSet records the states of the locks of a set. acquire_set.lua documents the order of the replies.
func (c *sender) learnSet(k call, r reply) {
	parts := r.parts
	if r.verdict == "refused" && len(parts) > 0 && r.place >= 1 && r.place <= len(k.parts) {
		refusal := parts[0]
		refusal.acked = r.acked
		c.learnReply(k.parts[r.place-1], refusal)
		parts = parts[1:]
	}
	for i := range min(len(parts), len(k.parts)) {
		parts[i].acked = r.acked
		c.learnReply(k.parts[i], parts[i])
	}
}

// A deadlines bounds calls by the timeout of a round trip. Calls whose context can't be canceled share a timer if they begin at about the same time,
// so a call may time out early by a sixteenth of the timeout. A timer for each call would be 2 % of the cost of an uncontended call. The zero value
// is ready for use.
type deadlines struct {
	mu     sync.Mutex
	shared context.Context
	end    context.CancelFunc // the cancel function of shared; never called, because calls may still use shared
	renew  time.Time          // the time from which new calls need a new shared context, because too little of its timeout is left
}

func (d *deadlines) boundContext(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if _, bounded := ctx.Deadline(); bounded || ctx.Done() != nil {
		return context.WithTimeout(ctx, timeout)
	}
	return sharing{d.sharedContext(timeout), ctx}, func() {}
}

func (d *deadlines) sharedContext(timeout time.Duration) context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := time.Now(); d.shared == nil || !now.Before(d.renew) {
		d.shared, d.end = context.WithTimeout(context.Background(), timeout)
		d.renew = now.Add(timeout / 16)
	}
	return d.shared
}

// A sharing is a context with the deadline of the shared context and the values of a caller's context.
type sharing struct {
	context.Context
	own context.Context
}

func (s sharing) Value(key any) any { return s.own.Value(key) }
