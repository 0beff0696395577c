package engine

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// shield turns a panic of the Redis client into an error, which leaves the outcome unknown as a broken connection does: a reply that is none makes that client panic,
// which has closed the connection by then. It is deferred.
func shield(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: the Redis client can't read the reply: %v", ErrUnknown, p)
	}
}

// execPipe executes the queued commands. Each command has its own error; of one that was not answered since the
// client has panicked there is neither reply nor error.
func execPipe(ctx context.Context, pipe redis.Pipeliner) (err error) {
	defer shield(&err)
	_, err = pipe.Exec(ctx)
	return err //nolint:wrapcheck // the commands'
}

// process executes one command, which has the error.
func process(ctx context.Context, client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}, cmd redis.Cmder) (err error) {
	defer shield(&err)
	return client.Process(ctx, cmd) //nolint:wrapcheck // the command's
}
