// Package locking holds leases on Redis: mutexes, semaphores, sets of locks, and fences, with a token that grows with every grant.
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
// A lock has K slots, numbered from 0. A lease is a hold on one slot for a limited time, by the server's clock. A [Client] renews its leases until
// they are released, each after a third of its length (on a quorum after 30s at most). It is safe for concurrent use, and one is enough for a
// process: requests of concurrent callers share round trips.
//
// # Which call
//
//   - [Mutex.Lock] and [Semaphore.Acquire] wait in line, first come, first served. A release hands the slot to the first waiter and notifies only
//     that one. Waiters that die are dropped when they have not asked for some seconds.
//   - [Mutex.TryLock] and [Semaphore.TryAcquire] do not wait, and do not pass waiters. "Held by another" is a result, not an error. If the server
//     is away, they try for [Config.Timeout].
//   - [Mutex.LockReentrant] is for functions that lock by themselves and are also called while the lock is held: the context carries the lease.
//   - [Client.MultiLock] locks several locks, all or none, and holds nothing while it waits. Their names share a hash tag.
//   - [Client.Update] changes keys of the same Redis without a lock, and tries again if another client was faster.
//   - [Fence] and [Gate] are for resources that can't compare tokens themselves.
//   - [Name] makes the names of fine-grained locks, one for each thing. A caller that takes several locks one by one takes the smaller name first,
//     everywhere, so that no cycle of waiters arises.
//
// # When the answer is not known
//
// A request without an answer may have been granted. The error is then [ErrUnknown]. The calls above ask again with the same lease id until their
// context ends (so give a deadline to those that wait), or until [Config.Timeout] has passed if they do not wait. A grant that the server may have
// made is then given back in the background. [ErrRefused] is returned with it at once if the server does not accept the user or the key, because
// asking again would change nothing. A [Lease.Release] without an answer goes on in the background, too.
//
// # What is promised
//
//   - By the server's clock there are never more leases than slots.
//   - Of two grants of one lock the later has the greater token: across expiry, a crash of the holder, a restart and FLUSHALL, once the server's clock
//     is past the last token's time. A [Token] is the server's time in microseconds, or one more than the newest, and below 2^53.
//   - [Lease.Context] ends before the lease does, by a local clock that nothing steps and that goes on while the machine sleeps, counted from before
//     the request was sent. context.Cause returns the reason. [Lease.Endangered] warns when a third is left.
//   - A waiter that was canceled never holds a slot.
//   - Clocks of clients don't matter: no request contains one.
//
// # What is not
//
//   - A process that stands still can't notice that its lease has ended. Then only the token protects, if the resource refuses smaller ones: the
//     shortest way is a comparison in the statement that writes. [WithDelay] keeps a slot shut for a while after its lease ended without a release,
//     for writes of such a holder that are still on their way.
//   - One master must serve at a time. A failover that loses writes may let two clients hold a slot for up to a lease, unless [Config.AckedReplicas]
//     makes replicas acknowledge each grant.
//   - After Redis has forgotten (FLUSHALL, a restart without its data), exclusivity holds if a client had observed the lock before. That client
//     reminds the server, which closes the lock for one lease, so that living holders can put their slots back.
//   - A lease that was waited for may have only one second until [Lease.Confirmed].
//   - If the server's ACL forbids the channels that begin with [Config.Prefix], waiters notice a grant only when they ask, half a second later
//     ([Config.OnForbidden]).
//
// # A quorum of independent masters
//
// With [Config.Quorum] a lock is held if a majority of an odd number of masters has the same row. A minority may be down, hang, be cut off or forget,
// at no cost. Tokens grow, and a node that has forgotten does not vote until no lease that it may have voted for is left. It needs Redis 7. On a
// quorum, callers wait by asking again, so waiting is not fair. [Client.MultiLock], [Client.Update] and [Fence] need one server and return
// [ErrQuorum]. If the requests for two slots of a semaphore overlapped, the one that was served last may have the smaller token.
//
// # Keys, memory, and the user that Redis has to allow
//
// All keys begin with [Config.Prefix], and the keys of one lock share a hash tag, its name. An unused lock is forgotten after [Config.Idle], and not
// before twice its longest lease; until then it takes some 450 bytes. This user may do all that a client with the prefix "shop:" needs, also on a
// Cluster, on a quorum, and with [Config.AckedReplicas]:
//
//	ACL SETUSER shop on >secret ~shop:* &shop:* +hello +ping +time +info +wait +eval +evalsha +script|load
//	    +get +set +del +exists +pexpire +persist +pttl +hget +hset +hdel +hmget +hgetall +hlen +hvals +hexists +hincrby
//	    +sadd +smembers +zadd +zrem +zrange +zrangebyscore +zscore +zrank +zcount
//	    +publish +subscribe +spublish +ssubscribe +watch +unwatch +multi +exec +asking +cluster|slots
//
// [Client.Update] also needs the rights of the commands that it is to write.
//
// # Metrics
//
// [Hooks] report how long callers waited and held, how much of a lease was left when its renewal came, which leases were lost, and which holders
// callers waited for. The package depends on no metrics library.
package locking
