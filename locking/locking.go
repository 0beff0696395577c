package locking

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease/engine"
)

// Config says what a [Client] works with.
type Config struct {
	// Redis is where the locks live. Its option ContextTimeoutEnabled must be on: else a hung socket could outlast a
	// lease. It may be one that follows Sentinels. Of a Cluster's client the nodes are asked one by one: hooks on it
	// see nothing of that, but those that its option NewClient adds to each node do. Its option MaxRetries does not
	// matter for leases: this package itself repeats requests for them. The client stays the caller's to close.
	Redis redis.UniversalClient
	// Quorum, in the place of Redis, is an odd number of independent masters, 3 at least, of which a majority has to
	// keep a lock. The rules for Redis hold for each of them. [ErrQuorum] is the error of methods that they can't
	// serve.
	Quorum []redis.UniversalClient
	// Prefix begins every key. Defaults to "locking:".
	Prefix string
	// Owner names the holder to others, for people; it need not be unique. Defaults to a random name.
	Owner string
	// Timeout bounds one round trip to the server. Defaults to 1s.
	Timeout time.Duration
	// AckedReplicas is how many replicas of the server must have a grant or a renewal before it counts, so that a failover
	// loses none. Defaults to 0: the server's word is enough.
	AckedReplicas int
	// AckTimeout is how long the replicas have for that. Defaults to 100ms, or half of Timeout if that is less; it must be less than Timeout.
	AckTimeout time.Duration
	// Idle is how long an unused lock is remembered; Defaults to 10m; at
	// least 1ms, in which Redis counts. Its floor is twice the longest lease that the lock has had, or that lease
	// and its [WithDelay] if they are more: a lock is remembered for that long however short Idle is, since a
	// holder may still be there. After that its tokens grow by the server's clock alone.
	Idle time.Duration
	// OnForbidden is called when the server's ACL keeps the client from a channel of messages, and then only after that channel has worked again. Without it a
	// waiter finds out by asking, half a second later. The client goes on trying, and waits for the function to return. May be nil.
	OnForbidden func(channel string, err error)
	// Hooks report waiting, holding, renewing, losing and contention, for metrics.
	Hooks Hooks
	// Clock is a local clock that nothing steps and that runs on in suspend. Defaults to CLOCK_BOOTTIME on Linux;
	// tests with fake time set it.
	Clock func() time.Duration
}

// Client acquires leases and keeps them renewed. It is safe for concurrent use.
type Client engine.Client

// New returns a client and starts its keeper, the goroutine that renews leases; [Client.Close] ends it.
func New(cfg Config) (*Client, error) {
	c, err := engine.New(engine.Config{
		Redis: cfg.Redis, Quorum: cfg.Quorum, Prefix: cfg.Prefix, Owner: cfg.Owner, Timeout: cfg.Timeout,
		AckedReplicas: cfg.AckedReplicas, AckTimeout: cfg.AckTimeout, Idle: cfg.Idle, OnForbidden: cfg.OnForbidden, Hooks: engine.Hooks(cfg.Hooks), Clock: cfg.Clock,
	})
	return (*Client)(c), err
}

// Engine returns what this package and package election are made of, so that both can share one client: its leases, its connections, and the tokens that
// it has observed.
func (c *Client) Engine() *engine.Client { return (*engine.Client)(c) }

// Close ends the renewal of all leases and waits for background work, and for callers that wait for a lock: they
// leave the queue. Leases that were not released end with [ErrClosed]; on the server they run out by themselves.
func (c *Client) Close() error { return c.Engine().Close() }

// ServerTime estimates the server's clock. It asks the server if no reply has told it yet. With a Cluster it is the
// middle one of its nodes' clocks, as with a quorum.
func (c *Client) ServerTime(ctx context.Context) (time.Time, error) {
	return c.Engine().ServerTime(ctx)
}

// Hooks report events of a client's locks, for metrics; each may be nil. They are called without any lock of
// this package held, and may be called from several goroutines at once. All but Held and Lost are called by
// goroutines that others wait for, and must return at once.
type Hooks struct {
	// Waited reports how long a grant was waited for, from the call of [Mutex.Lock], [Mutex.LockReentrant],
	// [Semaphore.Acquire] or [MultiLock.Lock] on. Of a set it is called for each lock. The goroutine is the caller's,
	// before the call returns.
	Waited func(lock string, wait time.Duration)
	// Contended reports that a requested lock has another holder, or that another waiter is ahead in the queue: once
	// for each call, however often that asks. The holder is the owner of one of the rows, "" where none is known. Of
	// a set it is the lock that was in the way. The goroutine is the caller's.
	Contended func(lock, holder string)
	// Renewed reports how much of the lease was left to its holder when a renewal came through, and the lease's
	// length ([Lease.Length]): of 30s about 20s are left on good days, and a lease near zero was nearly lost. The
	// goroutine is the keeper's of a batch of renewals, which waits.
	Renewed func(lock string, left, length time.Duration)
	// Held reports for how long a lease was held, when it has ended for whatever reason. It has a goroutine of its
	// own.
	Held func(lock string, held time.Duration)
	// Lost reports that a lease of a length was lost, with the cause: it is [ErrLost]. It has a goroutine of its own,
	// that of Held, and comes first.
	Lost func(lock string, length time.Duration, cause error)
}
