package journal

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/multierr"
)

// namespace is the part of Redis that a cluster has: its keys, and how long a call may take there.
type namespace struct {
	redis   redis.UniversalClient
	prefix  string
	timeout time.Duration
}

// within limits a call.
func (n *namespace) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, n.timeout, fmt.Errorf("no answer from Redis in %v: %w", n.timeout, context.DeadlineExceeded))
}

// key of the namespace.
func (n *namespace) key(name string) string { return n.prefix + name }

// jobKey is a key of one job, under its hash tag.
func (n *namespace) jobKey(job, name string) string { return n.prefix + "{" + job + "}:" + name }

// number is how Redis takes one as an argument.
func number(n int64) string { return strconv.FormatInt(n, 10) }

// each asks for one thing of each item, of so many at once in one round trip, and passes the answers on in the order of the items. Damaged values are
// reported beside the good ones, and so is the damage that take finds.
func each[T any, C redis.Cmder](ctx context.Context, n *namespace, items []T, atOnce int, ask func(redis.Pipeliner, T) C, take func(T, C) error) (damaged, failed error) {
	var corrupt multierr.List
	for part := range slices.Chunk(items, atOnce) {
		answers := make([]C, len(part))
		cmds, err := n.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, item := range part {
				answers[i] = ask(p, item)
			}
			return nil
		})
		more, err := sortErrors(ctx, cmds, err)
		if err != nil {
			return nil, err
		}
		corrupt.Add(more)
		for i, item := range part {
			corrupt.Add(take(item, answers[i]))
		}
	}
	return corrupt.Err(), nil
}
