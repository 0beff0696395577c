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
	// ErrNewerFormat means that a newer version wrote the namespace's data, in a format that this version can't read.
	ErrNewerFormat = errors.New("the data in Redis has a newer format")
	// ErrCorrupt means that a value in Redis is not what a replica writes.
	ErrCorrupt = errors.New("foreign or damaged data")
	// ErrInvalid means that a record, a replica or a job of the caller can't be written.
	ErrInvalid = errors.New("invalid")
)

// sortErrors sorts the errors of a pipeline that returned err. damaged has an error for each value that no replica wrote, which names the key and wraps
// ErrCorrupt. The replies to the other commands are valid. failed has all other errors. A missing value is not an error.
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

// allErrors returns all errors of a pipeline, for callers that do not distinguish damage from failure.
func allErrors(ctx context.Context, cmds []redis.Cmder, err error) error {
	damaged, failed := sortErrors(ctx, cmds, err)
	return multierr.Join(failed, damaged)
}

// errorOf returns the error of a command that was sent alone.
func errorOf(ctx context.Context, c redis.Cmder) error {
	return allErrors(ctx, []redis.Cmder{c}, c.Err())
}

// wrapIf adds the name of the operation to an error; nil stays nil.
func wrapIf(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// wholeFailure returns err if it concerns the whole pipeline: a network error, or an error with which Redis refused every command. If Redis refuses the
// connection, no command has an error of its own.
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

// commandError returns the error of a command, with the command's name and key.
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

// isWrongType reports whether Redis refused a command because the key has a value of another type.
func isWrongType(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }

// Unanswered reports whether a call failed because Redis did not answer. The errors of a Redis that is starting, or of a Redis Cluster without a master, do not
// count as answers.
func Unanswered(err error) bool {
	var reply redis.Error
	return err != nil && (!errors.As(err, &reply) ||
		slices.ContainsFunc([]string{"LOADING", "CLUSTERDOWN", "MASTERDOWN"}, func(code string) bool { return strings.HasPrefix(reply.Error(), code+" ") }))
}
