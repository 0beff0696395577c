// Package locking provides distributed locks on Redis: mutexes, semaphores, sets of locks, and fences. Every lock is a lease with a fencing token
// that grows with every grant.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
//	client, err := locking.New(locking.Config{Redis: rdb, Prefix: "shop:"})
//	...
//	defer client.Close()
//	lease, err := client.Mutex("orders").Lock(ctx) // in line, until ctx ends
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
//     that one. A waiter whose process died is dropped from the queue after some seconds.
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
//   - [Lease.Context] ends before the lease does. It measures time from before the request was sent, with a local monotonic clock that also counts
//     while the machine is suspended. context.Cause returns the reason for the end. [Lease.Endangered] warns when a third of the lease is left.
//   - A waiter whose context has ended never gets a slot.
//   - The wall clocks of clients do not matter, because no request contains a client's time.
//
// # What is not
//
//   - A paused process can't notice that its lease has ended. Then only the token protects the resource, and only if the resource refuses smaller
//     tokens. The simplest check is a comparison of tokens in the statement that writes. [WithDelay] keeps a slot closed for a while after its lease
//     ended without a release, so that late writes of a paused holder arrive before the next holder begins.
//   - Only one Redis master may serve at a time. After a failover that loses writes, two clients may hold one slot for up to the length of a lease,
//     unless [Config.AckedReplicas] makes replicas acknowledge each grant.
//   - After Redis lost its data (FLUSHALL, a restart without persistence), a lock stays exclusive only if a client that has seen the lock before uses
//     it again first. With its request, this client sends the newest token that it has seen. The server then closes the lock for the length of one
//     lease, so that living holders can restore their leases.
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
