package transport

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
)

// Shield turns a panic of the Redis client into an error that leaves the outcome unknown, like a broken connection. That client panics if a reply is
// malformed, after it has closed the connection. Shield must be deferred.
func Shield(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: the Redis client can't read the reply: %v", lease.ErrUnknown, p)
	}
}

// Exec executes the queued commands. Each command has its own error. A command that was not answered because the client panicked has neither a reply
// nor an error.
func Exec(ctx context.Context, pipe redis.Pipeliner) (err error) {
	defer Shield(&err)
	_, err = pipe.Exec(ctx)
	return err //nolint:wrapcheck // the commands'
}

// Process executes one command, which has the error.
func Process(ctx context.Context, client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}, cmd redis.Cmder) (err error) {
	defer Shield(&err)
	return client.Process(ctx, cmd) //nolint:wrapcheck // the command's
}

// Once is a command that go-redis does not repeat, whatever its options are. A repetition would hide that the outcome was unknown once, and that a
// first request may still be on its way.
type Once struct{ *redis.Cmd }

// NoRetry keeps go-redis from repeating the command.
func (Once) NoRetry() bool { return true }
