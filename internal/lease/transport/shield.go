package transport

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
)

// Shield turns a panic of go-redis into [lease.ErrUnknown]. go-redis panics on some malformed replies, after it has closed the connection. Shield
// must be deferred.
func Shield(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: the Redis client can't read the reply: %v", lease.ErrUnknown, p)
	}
}

// Exec executes the queued commands. Each command has its own error. After a panic of go-redis, some commands have no reply and no error.
func Exec(ctx context.Context, pipe redis.Pipeliner) (err error) {
	defer Shield(&err)
	_, err = pipe.Exec(ctx)
	return err //nolint:wrapcheck // the commands'
}

// Process executes one command. It also returns the error of the command.
func Process(ctx context.Context, client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}, cmd redis.Cmder) (err error) {
	defer Shield(&err)
	return client.Process(ctx, cmd) //nolint:wrapcheck // the command's
}

// Once is a command that go-redis does not retry, regardless of its options. A retry would hide that the outcome of the first request is unknown, and
// that Redis may still execute it later.
type Once struct{ *redis.Cmd }

// NoRetry tells go-redis not to retry the command.
func (Once) NoRetry() bool { return true }
