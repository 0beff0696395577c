package cluster

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
)

// commands counts the commands of a client that it is for, and has them fail if it has an error.
type commands struct {
	counted func(args []any) bool
	n       atomic.Int64
	failing error
}

// count counts the commands of a cluster's client from now on.
func (c *cluster) count(t *testing.T, counted func(args []any) bool) *commands {
	t.Helper()
	h := &commands{counted: counted}
	c.conn.AddHook(h)
	return h
}

func (h *commands) add(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		if h.counted(cmd.Args()) {
			h.n.Add(1)
		}
	}
}

func (h *commands) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (h *commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if h.add(cmd); h.failing != nil && h.counted(cmd.Args()) {
			cmd.SetErr(h.failing)
			return h.failing
		}
		return next(ctx, cmd)
	}
}

func (h *commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.add(cmds...)
		return next(ctx, cmds)
	}
}
