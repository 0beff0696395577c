// Package locking provides distributed locks on Redis: mutexes, semaphores, sets of locks, and fences. Every lock is a lease with a fencing token
// that grows with every grant.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
//	client, err := locking.New(locking.Config{Redis: rdb, Prefix: "shop:"})
//	...
//	defer client.Close()
//	lease, err := client.Mutex("orders").Lock(ctx) // waits in line until ctx ends
//	...
//	defer lease.Release(ctx)
//	return work(lease.Context(), lease.Token()) // the context ends before the lease does
//
// A lock has one or more slots, numbered from 0. A lease is a hold on one slot for a limited time, by the clock of the Redis server. "The server" is
// always this Redis server. A [Client] renews each lease whenever a third of its length has passed (on a quorum, at least every 30s), until the lease
// is released. A Client is safe for concurrent use, and a process needs only one: requests of concurrent callers share round trips.
//
// # Which call
//
//   - [Mutex.Lock] and [Semaphore.Acquire] wait in line, first come, first served. A release hands the slot to the first waiter and notifies only
//     that waiter. A waiter whose process died is dropped from the queue after some seconds.
//   - [Mutex.TryLock] and [Semaphore.TryAcquire] do not wait, and do not overtake callers that wait. If another client holds the lock, they return
//     false and no error. If the server does not answer, they retry for [Config.Timeout].
//   - [Mutex.LockReentrant] is for functions that take the lock and are also called by code that holds it already. The context carries the lease.
//   - [Client.MultiLock] takes several locks, all or none, and holds none while it waits. The names of the locks must share a hash tag.
//   - [Client.Update] changes keys of the same Redis without a lock, and retries if another client changed them first.
//   - [Fence] and [Gate] are for resources that can't compare tokens themselves.
//   - [Name] builds the names of fine-grained locks, such as one lock for each order. To prevent deadlocks, a caller that takes several locks one by
//     one must always take the smaller name first.
//
// # When the outcome is unknown
//
// If the server does not answer a request, the lock may or may not have been granted. The calls above retry with the same lease id. Calls that wait
// retry until their context ends, so give it a deadline. The other calls retry until [Config.Timeout] has passed. Then they return [ErrUnknown], and
// the client releases in the background what the server may have granted. If the server rejects the user or the key, retrying is useless: the call
// returns at once, with an error that is both ErrUnknown and [ErrRefused]. If the server does not answer a [Lease.Release], the client retries the
// release in the background, too.
//
// # What is promised
//
//   - By the server's clock, a lock never has more leases than slots.
//   - Of two grants of one lock, the later has the greater token. This holds after an expiry and after a crash of the holder. It also holds after a
//     restart of Redis and after FLUSHALL, once the server's clock is past the time of the last token. A [Token] is the server's time in
//     microseconds, or the newest token plus one if that is greater. It is below 2^53.
//   - [Lease.Context] ends before the lease does. The client counts the lease from before it sent the request, by a local monotonic clock that also
//     counts while the machine is suspended. context.Cause returns the reason for the end. [Lease.Endangered] warns when a third of the lease is left.
//   - A waiter whose context has ended never gets a slot.
//   - The wall clocks of clients do not matter, because no request contains a client's time.
//
// # What is not promised
//
//   - A paused process can't notice that its lease has ended. Then only the token protects the resource, and only if the resource refuses smaller
//     tokens. The simplest check is a comparison of tokens in the statement that writes. [WithDelay] keeps a slot closed for a while after its lease
//     ended without a release, so that late writes of a paused holder arrive before the next holder begins.
//   - Only one Redis master may serve at a time. After a failover that loses writes, two clients may hold one slot for up to the length of a lease,
//     unless [Config.AckedReplicas] makes replicas acknowledge each grant.
//   - After Redis lost its data (FLUSHALL, a restart without persistence), a lock stays exclusive only if the next request for it comes from a client
//     that has used the lock before. Such a request contains the newest token that the client has seen. The server thereby detects the loss, and closes
//     the lock for the length of one lease, so that living holders can restore their leases. If a new client comes first, a second client may hold the
//     lock.
//   - After a wait, a new lease may have a length of only one second until [Lease.Confirmed] is closed.
//   - If the server's ACL forbids the channels that begin with [Config.Prefix], waiters poll every half second instead of being notified of a grant:
//     see [Config.OnForbidden].
//
// # A quorum of independent masters
//
// With [Config.Quorum], a lock is held if a majority of an odd number of masters has granted it to the same lease. A minority may be down, hang, be
// cut off or lose its data without any effect. Tokens grow as on one server. A master that lost its data does not vote until every lease for which it
// may have voted has ended. A quorum needs Redis 7. On a quorum, waiting callers poll, so waiting is not fair. [Client.MultiLock], [Client.Update]
// and [Fence] need one server and return [ErrQuorum]. If two requests for slots of a semaphore overlap in time, the later grant may have the smaller
// token.
//
// # Keys, memory, and ACL
//
// All keys begin with [Config.Prefix]. The keys of one lock share a hash tag, which is the name of the lock. Redis forgets an unused lock after
// [Config.Idle], but not before twice its longest lease. Until then the lock takes about 450 bytes. This ACL user has all rights that a client with
// the prefix "shop:" needs, also on a Redis Cluster, on a quorum, and with [Config.AckedReplicas]:
//
//	ACL SETUSER shop on >secret ~shop:* &shop:* +hello +ping +time +info +wait +eval +evalsha +script|load
//	    +get +set +del +exists +pexpire +persist +pttl +hget +hset +hdel +hmget +hgetall +hlen +hvals +hexists +hincrby
//	    +sadd +smembers +zadd +zrem +zrange +zrangebyscore +zscore +zrank +zcount
//	    +publish +subscribe +spublish +ssubscribe +watch +unwatch +multi +exec +asking +cluster|slots
//
// For [Client.Update], the user also needs the rights for the commands that the update queues.
//
// # Metrics
//
// [Hooks] report the time for which callers waited for a lock and held it, the time left at each renewal, lost leases, and the holders that callers
// waited for. The package depends on no metrics library.
package locking

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/quorum"
	"github.com/cronclave/cronclave/internal/lease/redis"
)

// A Config configures a [Client].
type Config struct {
	// Redis is the client for the Redis that keeps the locks: a single server, a master behind Sentinels, or a Redis Cluster. The client's option
	// ContextTimeoutEnabled must be on, because otherwise a call on a hung socket could outlast a lease. On a Redis Cluster, this package calls each node
	// directly. Hooks of the Cluster client do not see these calls, but hooks that the option NewClient adds to each node do. The option MaxRetries does
	// not affect requests for leases, which this package retries itself. The caller must close the client.
	Redis goredis.UniversalClient
	// Quorum, in place of Redis, has the clients of an odd number of independent masters, at least 3. A lock is held if a majority of the masters has
	// granted it. Each client needs the options described under Redis. Methods that do not work on a quorum return [ErrQuorum].
	Quorum []goredis.UniversalClient
	// Prefix is the prefix of every key. Defaults to "locking:".
	Prefix string
	// Owner is the name of this client that other clients see as the holder of its leases. It is for display only, and need not be unique. Defaults to a
	// random name.
	Owner string
	// Timeout bounds one round trip to the server. Defaults to 1s.
	Timeout time.Duration
	// AckedReplicas is the number of Redis replicas that must acknowledge a grant or a renewal before it counts, so that a failover does not lose it.
	// Defaults to 0: the acknowledgement of the master is enough.
	AckedReplicas int
	// AckTimeout bounds the wait for the acknowledgements that AckedReplicas requires. It must be less than Timeout. Defaults to 100ms, or half of
	// Timeout if that is less.
	AckTimeout time.Duration
	// Idle is the time for which Redis keeps an unused lock. Defaults to 10m; the minimum is 1ms, the resolution of expiry in Redis. A lock is kept for
	// at least twice its longest lease, or for that lease plus its [WithDelay] if that is more, because a holder may still exist. Once the lock is
	// forgotten, the server's clock alone makes its tokens grow.
	Idle time.Duration
	// OnForbidden is called when the server's ACL forbids the client to subscribe to a Pub/Sub channel. It is called again for the same channel only
	// after a subscription to the channel has succeeded. Without the channel, a waiter polls every half second instead of being notified. The client waits for
	// OnForbidden to return, and retries the subscription. May be nil.
	OnForbidden func(channel string, err error)
	// Hooks are called on events of the locks, for metrics.
	Hooks Hooks
	// Clock is a local monotonic clock that also counts while the machine is suspended. Defaults to CLOCK_BOOTTIME on Linux. Only tests with fake time
	// set it.
	Clock func() time.Duration
}

// A Client acquires leases and renews them. It is safe for concurrent use.
type Client struct {
	cfg      Config
	store    lease.Store
	keeper   *keeper
	observed *lease.ObservedCache
	work     *lease.Background // work that continues after a call has returned; Close waits for it
	requests *lease.Client
}

// New returns a client and starts the goroutine that renews its leases. [Client.Close] ends this goroutine.
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
	c.requests = lease.NewClient(lease.ClientConfig{Store: c.store, Timeout: cfg.Timeout, Clock: cfg.Clock, Work: c.work, Observed: c.observed,
		Hold:      func(r lease.Request, g lease.Grant) lease.Run { return run{c.hold(&r, &g)} },
		Contended: cfg.Hooks.reportContention, Waited: cfg.Hooks.reportWait})
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

// Engine returns the internal client on which package election is built, so that both packages share connections, leases and observed tokens.
func (c *Client) Engine() *lease.Client { return c.requests }

// Close ends the renewal of all leases, removes waiting callers from their queues, and waits for these callers and for background work to end. The
// contexts of leases that were not released end with [ErrClosed]. On the server these leases expire.
func (c *Client) Close() error {
	c.work.End()
	c.work.Wait()
	return c.store.Close()
}

// ServerTime returns an estimate of the server's clock. It calls the server only if no reply has been received yet. On a Redis Cluster or a quorum,
// the estimate is the median of the nodes' clocks.
func (c *Client) ServerTime(ctx context.Context) (time.Time, error) {
	return c.store.ServerTime(ctx)
}

// estimatedTime returns the estimate of the server's clock; zero before the first reply.
func (c *Client) estimatedTime() time.Time {
	if t, ok := c.requests.EstimatedTime(); ok {
		return t
	}
	return time.Time{}
}

// lockKey returns the first key of a lock. The other keys begin with it, and have its hash tag.
func (c *Client) lockKey(lock string) string { return redis.LockKey(c.cfg.Prefix, lock) }

// hold makes the lease of a granted request, and begins to renew it.
func (c *Client) hold(r *lease.Request, g *lease.Grant) *Lease {
	return c.keeper.add(newLease(c, r, g))
}

// Hooks are functions that a client calls on events of its locks, for metrics. Each may be nil. Hooks may call methods of this package, because no
// internal mutex is held during the call. They must be safe for concurrent use. Waited, Contended and Renewed must return at once, because other
// goroutines wait for them.
type Hooks struct {
	// Waited reports the time from the call of [Mutex.Lock], [Mutex.LockReentrant], [Semaphore.Acquire] or [MultiLock.Lock] to the grant. For a
	// MultiLock it is called once per lock. It runs in the caller's goroutine, before the locking method returns.
	Waited func(lock string, wait time.Duration)
	// Contended reports that another client holds a requested lock, or waits for it ahead of the caller. It is called at most once per call of a locking
	// method, however often that method polls. holder is the owner of one of the slots, or "" if no owner is known. For a MultiLock, lock is the lock
	// that is not available. It runs in the caller's goroutine.
	Contended func(lock, holder string)
	// Renewed reports the time that was left of a lease when its renewal succeeded, and the lease's length ([Lease.Length]). Usually two thirds are
	// left. A value near zero means that the lease was nearly lost. It runs in the goroutine that renews leases, which waits for it.
	Renewed func(lock string, left, length time.Duration)
	// Held reports the time for which a lease was held, after the end of the lease for any reason. It runs in a goroutine of its own.
	Held func(lock string, held time.Duration)
	// Lost reports that a lease was lost, with its length and the cause, which is [ErrLost]. It runs in the same goroutine as Held, before Held.
	Lost func(lock string, length time.Duration, cause error)
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
