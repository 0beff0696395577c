package main

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	pools "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/cronclave/cronclave/locking"
)

// cronclaveLocks are the locks of this module. It has a token for each grant and renews the lease meanwhile.
type cronclaveLocks struct {
	redis []*redis.Client
	locks *locking.Client
}

func openCronclave(addrs []string) (locker, error) {
	rdb := newRedis(addrs[0])
	locks, err := locking.New(locking.Config{Redis: rdb})
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	return &cronclaveLocks{[]*redis.Client{rdb}, locks}, nil
}

// openCronclaveQuorum is ours on several masters.
func openCronclaveQuorum(addrs []string) (locker, error) {
	c := &cronclaveLocks{}
	var masters []redis.UniversalClient
	for _, addr := range addrs {
		rdb := newRedis(addr)
		c.redis, masters = append(c.redis, rdb), append(masters, rdb)
	}
	var err error
	if c.locks, err = locking.New(locking.Config{Quorum: masters}); err != nil {
		return nil, errors.Join(err, c.closeRedis())
	}
	return c, nil
}

func (c *cronclaveLocks) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	held, ok, err := c.locks.Mutex(name, locking.WithLease(lease)).TryLock(ctx)
	if err == nil && !ok {
		err = errHeld
	}
	if err != nil {
		return nil, err
	}
	return held.Release, nil
}

// cronclaveQueue is ours with waiters in line.
type cronclaveQueue struct{ *cronclaveLocks }

func openCronclaveWaiting(addrs []string) (locker, error) {
	l, err := openCronclave(addrs)
	if err != nil {
		return nil, err
	}
	return cronclaveQueue{l.(*cronclaveLocks)}, nil
}

func (q cronclaveQueue) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	held, err := q.locks.Mutex(name, locking.WithLease(lease)).Lock(ctx)
	if err != nil {
		return nil, err
	}
	return held.Release, nil
}

func (c *cronclaveLocks) close() error { return errors.Join(c.locks.Close(), c.closeRedis()) }

func (c *cronclaveLocks) closeRedis() (err error) {
	for _, rdb := range c.redis {
		err = errors.Join(err, rdb.Close())
	}
	return err
}

// rawLocks are the locks that two commands give: no renewal, no token.
type rawLocks struct{ redis *redis.Client }

var compareAndDelete = redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`)

func openRaw(addrs []string) (locker, error) { return &rawLocks{newRedis(addrs[0])}, nil }

func (r *rawLocks) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	value := rand.Text()
	err := r.redis.SetArgs(ctx, name, value, redis.SetArgs{Mode: "NX", TTL: lease}).Err()
	if errors.Is(err, redis.Nil) {
		err = errHeld
	}
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		n, err := compareAndDelete.Run(ctx, r.redis, []string{name}, value).Int()
		if err == nil && n == 0 {
			err = errLost
		}
		return err
	}, nil
}

func (r *rawLocks) close() error { return r.redis.Close() }

// redisLocks is bsm/redislock.
type redisLocks struct {
	redis   *redis.Client
	client  *redislock.Client
	options *redislock.Options
}

func openRedislock(addrs []string) (locker, error) {
	rdb := newRedis(addrs[0])
	return &redisLocks{redis: rdb, client: redislock.New(rdb)}, nil
}

// openRedislockWaiting waits as its documentation shows.
func openRedislockWaiting(addrs []string) (locker, error) {
	rdb := newRedis(addrs[0])
	retry := &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)}
	return &redisLocks{redis: rdb, client: redislock.New(rdb), options: retry}, nil
}

func (r *redisLocks) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	l, err := r.client.Obtain(ctx, name, lease, r.options)
	if err != nil {
		return nil, err
	}
	return l.Release, nil
}

func (r *redisLocks) close() error { return r.redis.Close() }

// redsyncLocks is go-redsync/redsync.
type redsyncLocks struct {
	clients []*redis.Client
	sync    *redsync.Redsync
	options []redsync.Option
	waits   bool
}

func newRedsync(addrs []string, options ...redsync.Option) *redsyncLocks {
	r := &redsyncLocks{options: append(options, redsync.WithExpiry(lease))}
	var nodes []pools.Pool
	for _, addr := range addrs {
		rdb := newRedis(addr)
		r.clients = append(r.clients, rdb)
		nodes = append(nodes, goredis.NewPool(rdb))
	}
	r.sync = redsync.New(nodes...)
	return r
}

func openRedsync(addrs []string) (locker, error) { return newRedsync(addrs), nil }

func openRedsyncFailFast(addrs []string) (locker, error) {
	return newRedsync(addrs, redsync.WithFailFast(true)), nil
}

// openRedsyncWaiting has the pauses that redsync comes with, and no end of them.
func openRedsyncWaiting(addrs []string) (locker, error) {
	r := newRedsync(addrs, redsync.WithTries(1_000_000))
	r.waits = true
	return r, nil
}

func (r *redsyncLocks) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	m := r.sync.NewMutex(name, r.options...)
	take := m.TryLockContext
	if r.waits {
		take = m.LockContext
	}
	if err := take(ctx); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		ok, err := m.UnlockContext(ctx)
		if err == nil && !ok {
			err = errLost
		}
		return err
	}, nil
}

func (r *redsyncLocks) close() error {
	var errs []error
	for _, c := range r.clients {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// rueidisLocks is rueidislock. It renews the lock meanwhile.
type rueidisLocks struct {
	locker rueidislock.Locker
	waits  bool
}

func newRueidislock(addrs []string) (*rueidisLocks, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: addrs},
		KeyMajority:  1, // one server: more keys would be on the same one
		KeyValidity:  lease, ExtendInterval: lease / 3,
		TryNextAfter:   10 * time.Second, // the time-out of a request, as generous as with the others
		NoLoopTracking: true,
	})
	if err != nil {
		return nil, err
	}
	return &rueidisLocks{locker: l}, nil
}

func openRueidislock(addrs []string) (locker, error) { return newRueidislock(addrs) }

func openRueidislockWaiting(addrs []string) (locker, error) {
	r, err := newRueidislock(addrs)
	if err != nil {
		return nil, err
	}
	r.waits = true
	return r, nil
}

func (r *rueidisLocks) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	take := r.locker.TryWithContext
	if r.waits {
		take = r.locker.WithContext
	}
	held, cancel, err := take(ctx, name)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		lost := held.Err() != nil && ctx.Err() == nil
		cancel()
		if lost {
			return errLost
		}
		return nil
	}, nil
}

func (r *rueidisLocks) close() error {
	r.locker.Close()
	return nil
}
