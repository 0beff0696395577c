package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/command"
	"github.com/cronclave/cronclave/internal/resp"
)

// hearing notes that a server has answered.
type hearing struct{ heard *atomic.Bool }

// DialHook changes nothing.
func (hearing) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook looks at single commands.
func (h hearing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		h.note(err)
		return err
	}
}

// ProcessPipelineHook looks at many.
func (h hearing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		h.note(err)
		return err
	}
}

func (h hearing) note(err error) {
	var reply redis.Error
	if err == nil || errors.As(err, &reply) {
		h.heard.Store(true)
	}
}

// redisHook makes the errors of a client complete, and discreet.
//
// Complete: where a new connection is refused (NOAUTH, WRONGPASS) the client tells it of a pipeline as a whole, and leaves the
// pipeline's commands without an error, as if they had been done.
//
// Discreet: a server, or a proxy, that does not know AUTH or HELLO repeats what it was sent, the password, or the beginning of it.
//
// Guarded: a reply that is none breaks the connection, and not the process: package resp finds it before the client reads it, and what the client panics at all the
// same is an error.
type redisHook struct{ password string }

// DialHook guards connections.
func (redisHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return resp.Guard(conn), nil
	}
}

// recovered turns a panic of the client, which has closed the connection by then, into the error of a broken one.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %v", resp.ErrMalformed, p)
	}
}

// ProcessHook looks at single commands. AUTH and HELLO are.
func (h redisHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) (err error) {
		defer recovered(&err)
		return h.hide(next(ctx, cmd))
	}
}

// ProcessPipelineHook looks at many.
func (redisHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := guarded(ctx, next, cmds)
		if err == nil || slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Err() != nil }) {
			return err
		}
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
		return err
	}
}

// guarded executes a pipeline. Where the client panics, what was answered before is not told either: nothing is known of what follows.
func guarded(ctx context.Context, next redis.ProcessPipelineHook, cmds []redis.Cmder) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
	}()
	defer recovered(&err)
	err = next(ctx, cmds)
	returned = true
	return err
}

// hide returns the error itself if there is nothing to hide.
func (h redisHook) hide(err error) error {
	var reply redis.Error
	if h.password == "" || !errors.As(err, &reply) {
		return err
	}
	text, _, repeats := strings.Cut(err.Error(), ", with args beginning with")
	if !repeats && !strings.Contains(text, h.password) {
		return err
	}
	return maskedReply{err, strings.ReplaceAll(text, h.password, command.Mask)}
}

// maskedReply is an error reply with another text.
type maskedReply struct {
	cause error
	text  string
}

func (m maskedReply) Error() string { return m.text }

// Unwrap lets the client see that it is a reply.
func (m maskedReply) Unwrap() error { return m.cause }
