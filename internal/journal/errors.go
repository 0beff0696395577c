package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/multierr"
)

// Errors that callers may distinguish with errors.Is.
var (
	// ErrNewerFormat says that a newer version wrote the namespace's data, in a
	// layout that this one does not know.
	ErrNewerFormat = errors.New("the data in Redis has a newer format")
	// ErrCorrupt says that something in Redis is not what a replica writes.
	ErrCorrupt = errors.New("foreign or damaged data")
	// ErrInvalid says that a caller's record, replica or job can't be written.
	ErrInvalid = errors.New("invalid")
)

// sortErrors looks through a pipeline that gave err. Damaged lists keys with values that no replica wrote, each wrapping ErrCorrupt: the other
// commands' replies are good. Failed is anything else. A missing value is no failure.
func sortErrors(ctx context.Context, cmds []redis.Cmder, err error) (damaged, failed error) {
	if err == nil {
		return nil, nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return nil, fmt.Errorf("%w (%w)", cause, err)
	}
	if whole := wholeFailure(cmds, err); whole != nil {
		return nil, whole
	}
	seen := map[string]bool{}
	var corrupt, others multierr.List
	for _, c := range cmds {
		if c.Err() == nil || errors.Is(c.Err(), redis.Nil) {
			continue
		}
		e := commandError(c)
		switch {
		case seen[e.Error()]:
		case errors.Is(e, ErrCorrupt):
			corrupt.Add(e)
		default:
			others.Add(e)
		}
		seen[e.Error()] = true
	}
	return corrupt.Err(), others.Err()
}

// allErrors is for callers that make no difference between damage and failure.
func allErrors(ctx context.Context, cmds []redis.Cmder, err error) error {
	damaged, failed := sortErrors(ctx, cmds, err)
	return multierr.Join(failed, damaged)
}

// errorOf is the error of a command that was sent alone.
func errorOf(ctx context.Context, c redis.Cmder) error {
	return allErrors(ctx, []redis.Cmder{c}, c.Err())
}

// wrapIf puts the name of an operation before its error, if there is one.
func wrapIf(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// wholeFailure is err if it comes from the network, or every command was refused
// for one reason, which then is told once. Where the server refuses the connection
// itself, no command has an error of its own.
func wholeFailure(cmds []redis.Cmder, err error) error {
	var reply redis.Error
	if !errors.As(err, &reply) || !slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Err() != nil }) {
		return err
	}
	for _, c := range cmds {
		if c.Err() == nil || c.Err().Error() != err.Error() || isWrongType(err) || errors.Is(err, redis.Nil) {
			return nil
		}
	}
	return err
}

// commandError says which command failed at which key.
func commandError(c redis.Cmder) error {
	name := strings.ToUpper(c.Name())
	if args := c.Args(); len(args) > 1 {
		name = fmt.Sprintf("%s %v", name, args[1])
	}
	if isWrongType(c.Err()) {
		return fmt.Errorf("%s: %w: %w", name, ErrCorrupt, c.Err())
	}
	return fmt.Errorf("%s: %w", name, c.Err())
}

// isWrongType returns whether a key holds a type that no replica writes there.
func isWrongType(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }

// Unanswered reports whether a call failed because Redis did not answer. A server that is starting, or that has no master, replies, but not to the call.
func Unanswered(err error) bool {
	var reply redis.Error
	return err != nil && (!errors.As(err, &reply) ||
		slices.ContainsFunc([]string{"LOADING", "CLUSTERDOWN", "MASTERDOWN"}, func(code string) bool { return strings.HasPrefix(reply.Error(), code+" ") }))
}
