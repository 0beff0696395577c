package locking

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease/engine"
)

// A Config configures a [Client].
type Config struct {
	// Redis is the client of the Redis that keeps the locks: of a single server, of Sentinels or of a Redis Cluster. Its option ContextTimeoutEnabled
	// must be on, because otherwise a call on a hung socket could outlast a lease. On a Redis Cluster, each node is called directly, so hooks of the
	// Cluster client do not see these calls; hooks that its option NewClient adds to each node do. Its option MaxRetries does not affect requests for
	// leases, which this package retries itself. The caller has to close the client.
	Redis redis.UniversalClient
	// Quorum, in place of Redis, has the clients of an odd number of independent masters, at least 3. A lock is held if a majority of the masters has
	// granted it. Each client needs the options described under Redis. Methods that do not work on a quorum return [ErrQuorum].
	Quorum []redis.UniversalClient
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
	// AckTimeout bounds the wait for these acknowledgements. It must be less than Timeout. Defaults to 100ms, or half of Timeout if that is less.
	AckTimeout time.Duration
	// Idle is the time for which Redis keeps an unused lock. Defaults to 10m; the minimum is 1ms, the resolution of expiry in Redis. A lock is kept for
	// at least twice its longest lease, or for that lease plus its [WithDelay] if that is more, because a holder may still exist. Once the lock is
	// forgotten, the server's clock alone makes its tokens grow.
	Idle time.Duration
	// OnForbidden is called when the server's ACL forbids the client to subscribe to a Pub/Sub channel. It is called again for the same channel only if
	// the channel has worked in between. Without the channel, a waiter polls every half second instead of being notified. The client waits for
	// OnForbidden to return, and retries the subscription. May be nil.
	OnForbidden func(channel string, err error)
	// Hooks are called on events of the locks, for metrics.
	Hooks Hooks
	// Clock is a local monotonic clock that also counts while the machine is suspended. Defaults to CLOCK_BOOTTIME on Linux. Only tests with fake time
	// set it.
	Clock func() time.Duration
}

// A Client acquires leases and renews them. It is safe for concurrent use.
type Client engine.Client

// New returns a client and starts the goroutine that renews its leases. [Client.Close] ends this goroutine.
func New(cfg Config) (*Client, error) {
	c, err := engine.New(engine.Config{
		Redis: cfg.Redis, Quorum: cfg.Quorum, Prefix: cfg.Prefix, Owner: cfg.Owner, Timeout: cfg.Timeout,
		AckedReplicas: cfg.AckedReplicas, AckTimeout: cfg.AckTimeout, Idle: cfg.Idle, OnForbidden: cfg.OnForbidden, Hooks: engine.Hooks(cfg.Hooks), Clock: cfg.Clock,
	})
	return (*Client)(c), err
}

// Engine returns the internal client on which this package and package election are built. It lets both packages share connections, leases and
// observed tokens.
func (c *Client) Engine() *engine.Client { return (*engine.Client)(c) }

// Close ends the renewal of all leases, removes waiting callers from their queues, and waits for these callers and for background work to end. The
// contexts of leases that were not released end with [ErrClosed]. On the server these leases expire.
func (c *Client) Close() error { return c.Engine().Close() }

// ServerTime returns an estimate of the server's clock. It calls the server only if no reply has been received yet. On a Redis Cluster or a quorum,
// the estimate is the median of the nodes' clocks.
func (c *Client) ServerTime(ctx context.Context) (time.Time, error) {
	return c.Engine().ServerTime(ctx)
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
