package journal

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
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
