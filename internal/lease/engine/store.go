package engine

import (
	"context"
	"fmt"
	"time"
)

// store is where locks are kept: on one master, or on a quorum of independent ones. It answers; leases, their
// renewal and background work belong to the client.
type store interface {
	// acquire answers the requests at the places todo, which are valid.
	acquire(ctx context.Context, asked []Request, answers []Answer, todo []int)
	// wait asks for a row until it is granted or ctx ends.
	wait(ctx context.Context, r Request) (*Lease, error)
	// release asks until the lease is over for the servers, or ctx ends; the verdict is "released" or "gone".
	release(ctx context.Context, r releaseCall) (verdict string, err error)
	// releaseSoon is release for two time-outs at most, from the instant begun on, which was a moment ago.
	releaseSoon(ctx context.Context, r releaseCall, begun time.Duration) (verdict string, err error)
	// renew asks once for each lease, and returns a reply for each.
	renew(ctx context.Context, batch []*Lease) []reply
	// renewAfter is the time until the next renewal of a lease that has so much left.
	renewAfter(left time.Duration) time.Duration
	// enterAttempt has the store know the attempt that a lease proposes, where a renewal alone would not.
	enterAttempt(l *Lease) error
	// markSucceeded has the store know that the work of a lease has ended well.
	markSucceeded(ctx context.Context, l *Lease, followed bool) error

	// inspect, stop and pause answer the requests at the places valid.
	inspect(ctx context.Context, locks []InspectRequest, states []State, valid []int)
	stop(ctx context.Context, requests []StopRequest, answers []StopAnswer, valid []int)
	pause(ctx context.Context, requests []PauseRequest, answers []PauseAnswer, valid []int)
	// deleteOrphans forgets orphans whose outcome was recorded.
	deleteOrphans(ctx context.Context, lock string, ids []string) error

	// publish announces grants and releases; hear calls f with the announcements of others until ctx ends.
	publish(ctx context.Context, granted, released []*Lease) error
	hear(ctx context.Context, f func([]GrantEvent))

	// serverTime asks for the servers' clock, if no reply has told it yet; estimate and margin make no call.
	serverTime(ctx context.Context) (time.Time, error)
	estimate(local time.Duration) (micros int64, known bool)
	margin(local time.Duration) time.Duration
	// roundTrips is how many a request needs.
	roundTrips() time.Duration

	close() error
}

// Only one master can serve the methods below. A store without them is a quorum: see [only].
type (
	// compacter has a short form for a lock of which there is little to say; ok is false if the request is one for acquire.
	compacter interface {
		acquireCompact(ctx context.Context, r Request) (a Answer, ok bool)
	}
	// setLocker grants a row of each of several locks, or of none.
	setLocker interface {
		ask(ctx context.Context, requests []Request) ([]*Lease, refusal)
	}
	// fencer remembers the greatest token of a resource.
	fencer interface {
		pass(ctx context.Context, resource string, idle time.Duration, token Token) error
	}
	// updater changes keys without a lock.
	updater interface {
		update(ctx context.Context, keys []string, change func(tx *Tx) error) (again bool, err error)
	}
	// remover removes locks that are not used any more.
	remover interface {
		remove(ctx context.Context, locks []string, unusedSince time.Time) (removed []bool, err error)
	}
)

// only is the store as one that can do more than others; else the error is [ErrQuorum].
func only[T any](c *Client, what string) (T, error) {
	s, ok := c.store.(T)
	if !ok {
		return s, fmt.Errorf("%s: %w", what, ErrQuorum)
	}
	return s, nil
}

// ticket is what a store keeps with a grant and gets back with the release, unless the lease was renewed in between: nil, or of the store's own
// type.
type ticket any

// narrow is the ticket of a lease for which no more than a majority of a quorum was asked.
type narrow struct{}

// ticket is that of a grant.
func (r reply) ticket() ticket {
	switch {
	case r.fold != nil:
		return r.fold
	case r.narrow:
		return narrow{}
	}
	return nil
}
