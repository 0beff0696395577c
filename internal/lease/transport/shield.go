package transport

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
)

// Shield turns a panic of the Redis client into an error, which leaves the outcome unknown as a broken connection does: a reply that is none makes that client panic,
// which has closed the connection by then. It is deferred.
func Shield(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: the Redis client can't read the reply: %v", lease.ErrUnknown, p)
	}
}

// Exec executes the queued commands. Each command has its own error; of one that was not answered since the
// client has panicked there is neither reply nor error.
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

// Once is a command that the client of go-redis does not repeat, whatever its options say: that the outcome was unknown once would be hidden, and so
// would a first request that is still on its way.
type Once struct{ *redis.Cmd }

// NoRetry makes it so.
func (Once) NoRetry() bool { return true }
