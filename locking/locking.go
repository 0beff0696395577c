package locking

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease/engine"
)

// A Config configures a [Client].
type Config struct {
	// Redis has the locks. Its option ContextTimeoutEnabled must be on, because otherwise a hung socket could outlast a lease. It may be a client
	// that follows Sentinels. The nodes of a Cluster are called one by one: hooks on the Cluster client do not see these calls, but hooks that its
	// option NewClient adds to each node do. Its option MaxRetries does not matter for leases, because this package itself repeats requests for them.
	// The caller has to close the client.
	Redis redis.UniversalClient
	// Quorum, in place of Redis, has an odd number of independent masters, at least 3. A majority has to keep a lock. The rules for Redis hold for
	// each of them. Methods that need one server return [ErrQuorum].
	Quorum []redis.UniversalClient
	// Prefix begins every key. Defaults to "locking:".
	Prefix string
	// Owner is the name of the holder for other clients, for people. It need not be unique. Defaults to a random name.
	Owner string
	// Timeout bounds one round trip to the server. Defaults to 1s.
	Timeout time.Duration
	// AckedReplicas is the number of replicas that must have a grant or a renewal before it counts, so that a failover loses none. Defaults to 0: the
	// server's word is enough.
	AckedReplicas int
	// AckTimeout is the time that the replicas have for that. Defaults to 100ms, or half of Timeout if that is less. It must be less than Timeout.
	AckTimeout time.Duration
	// Idle is the time for which an unused lock is remembered. Defaults to 10m; at least 1ms, because Redis counts in milliseconds. A lock is
	// remembered for at least twice its longest lease, or that lease plus its [WithDelay] if that is more, because a holder may still be there. After
	// that its tokens grow by the server's clock alone.
	Idle time.Duration
	// OnForbidden is called when the server's ACL keeps the client from a channel of messages, and again only after that channel has worked in
	// between. Without the channel a waiter notices a grant only when it asks, half a second later. The client goes on trying, and waits for the
	// function to return. May be nil.
	OnForbidden func(channel string, err error)
	// Hooks report waiting, holding, renewing, losing and contention, for metrics.
	Hooks Hooks
	// Clock is a local clock that nothing steps and that goes on while the machine sleeps. Defaults to CLOCK_BOOTTIME on Linux; tests with fake time
	// set it.
	Clock func() time.Duration
}

// A Client acquires leases and keeps them renewed. It is safe for concurrent use.
type Client engine.Client

// New returns a client and starts its keeper, the goroutine that renews leases; [Client.Close] ends it.
func New(cfg Config) (*Client, error) {
	c, err := engine.New(engine.Config{
		Redis: cfg.Redis, Quorum: cfg.Quorum, Prefix: cfg.Prefix, Owner: cfg.Owner, Timeout: cfg.Timeout,
		AckedReplicas: cfg.AckedReplicas, AckTimeout: cfg.AckTimeout, Idle: cfg.Idle, OnForbidden: cfg.OnForbidden, Hooks: engine.Hooks(cfg.Hooks), Clock: cfg.Clock,
	})
	return (*Client)(c), err
}

// Engine returns the engine of this package and package election, so that both can share one client: its leases, its connections, and the tokens that
// it has observed.
func (c *Client) Engine() *engine.Client { return (*engine.Client)(c) }

// Close ends the renewal of all leases and waits for background work, and for callers that wait for a lock: they leave the queue. Leases that were
// not released end with [ErrClosed]; on the server they run out by themselves.
func (c *Client) Close() error { return c.Engine().Close() }

// ServerTime returns an estimate of the server's clock. It asks the server only if no reply has been received yet. With a Cluster or a quorum it is
// the median of the nodes' clocks.
func (c *Client) ServerTime(ctx context.Context) (time.Time, error) {
	return c.Engine().ServerTime(ctx)
}

// Hooks report events of a client's locks, for metrics; each may be nil. They are called without any lock of this package held, and several
// goroutines may call them at once. Other goroutines wait for all of them except Held and Lost, so these must return at once.
type Hooks struct {
	// Waited reports the time from the call of [Mutex.Lock], [Mutex.LockReentrant], [Semaphore.Acquire] or [MultiLock.Lock] to the grant. For a set
	// it is called once per lock. It runs in the caller's goroutine, before the call returns.
	Waited func(lock string, wait time.Duration)
	// Contended reports that a requested lock has another holder, or that another waiter is ahead in the queue: once per call, however often the call
	// asks. holder is the owner of one of the rows, "" if none is known. For a set, lock is the one that was in the way. It runs in the caller's
	// goroutine.
	Contended func(lock, holder string)
	// Renewed reports the time that was left to the holder when a renewal came through, and the lease's length ([Lease.Length]). Of 30s, about 20s
	// are usually left; a lease near zero was nearly lost. It runs in the keeper's goroutine for a batch of renewals, which waits.
	Renewed func(lock string, left, length time.Duration)
	// Held reports the time for which a lease was held, after it has ended for whatever reason. It runs in a goroutine of its own.
	Held func(lock string, held time.Duration)
	// Lost reports that a lease was lost, with its length and the cause, which is [ErrLost]. It runs in the goroutine of Held, before Held.
	Lost func(lock string, length time.Duration, cause error)
}
