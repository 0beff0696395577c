package classics

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redlock takes the same key on a majority of independent nodes within its time to live: "Distributed locks with
// Redis" in the documentation of Redis (Sanfilippo 2014).
//
// Its faults (Kleppmann 2016, "How to do distributed locking"): it gives no token, so a holder that stood still past its time
// changes the resource beside its successor; and a node that restarts without its memory votes twice.
type Redlock struct {
	Nodes []Node
	TTL   time.Duration
	Clock Clock
}

// Node is one of the masters; nil is one that this client does not reach.
type Node interface {
	redis.Cmdable
	redis.Scripter
}

// Acquire returns whether it took the lock, and for how long.
func (l Redlock) Acquire(ctx context.Context, key, id string) (valid time.Duration, ok bool) {
	began := l.Clock()
	votes := 0
	for _, n := range l.Nodes {
		if n == nil {
			continue
		}
		if won, err := setNX(ctx, n, key, id, l.TTL); err == nil && won { // a node that fails counts as a no
			votes++
		}
	}
	drift := l.TTL/100 + 2*time.Millisecond
	valid = l.TTL - l.Clock().Sub(began) - drift
	if votes > len(l.Nodes)/2 && valid > 0 {
		return valid, true
	}
	l.Release(ctx, key, id)
	return 0, false
}

// Release gives the key back on all nodes, and returns whether any still had it.
func (l Redlock) Release(ctx context.Context, key, id string) bool {
	had := false
	for _, n := range l.Nodes {
		if n == nil {
			continue
		}
		if done, err := deleteOwn(ctx, n, key, id); err == nil && done {
			had = true
		}
	}
	return had
}
