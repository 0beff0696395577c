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
