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

// A namespace gives access to the keys of one cluster in Redis, with a time limit for each call.
type namespace struct {
	redis   redis.UniversalClient
	prefix  string
	timeout time.Duration
}

// withTimeout returns a context with the time limit of a call.
func (n *namespace) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, n.timeout, fmt.Errorf("no answer from Redis in %v: %w", n.timeout, context.DeadlineExceeded))
}

// key returns a key of the namespace.
func (n *namespace) key(name string) string { return n.prefix + name }

// jobKey returns a key of one job, with its hash tag.
func (n *namespace) jobKey(job, name string) string { return n.prefix + "{" + job + "}:" + name }

// formatNumber returns a number as an argument for Redis.
func formatNumber(n int64) string { return strconv.FormatInt(n, 10) }

// pipelineEach sends one command per item, at most atOnce per round trip. It passes the replies to take, in the order of the items. damaged lists the damaged
// values, including the errors of take. All other values are valid.
func pipelineEach[T any, C redis.Cmder](ctx context.Context, n *namespace, items []T, atOnce int, ask func(redis.Pipeliner, T) C, take func(T, C) error) (damaged, failed error) {
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
