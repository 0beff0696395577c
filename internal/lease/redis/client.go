package redis

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
)

// A Client is a client of a Redis server, of a master behind Sentinels, or of a Cluster.
type Client = redis.UniversalClient

// ObeysContext reports whether the calls of a client return when their context ends. Otherwise a call on a hung socket could outlast a lease.
func ObeysContext(c Client) bool {
	switch c := c.(type) {
	case *redis.Client:
		return c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return c.Options().ContextTimeoutEnabled
	}
	return true
}

// Values is a list of values in a reply. The methods return zero for a missing value.
type Values []any

// Number returns the value at an index as a number.
func (v Values) Number(i int) int64 { return Number(v.at(i)) }

// Text returns the value at an index as a text.
func (v Values) Text(i int) string { return Text(v.at(i)) }

// List returns the value at an index as a list.
func (v Values) List(i int) []any { l, _ := v.at(i).([]any); return l }

func (v Values) at(i int) any {
	if i >= len(v) {
		return nil
	}
	return v[i]
}

// Number returns a value as a number; 0 if it is not a number.
func Number(v any) int64 { n, _ := v.(int64); return n }

// Text returns a value as a text; "" if it is not a text.
func Text(v any) string { s, _ := v.(string); return s }

// Shield turns a panic of go-redis into [lease.ErrUnknown]. go-redis panics on some malformed replies, after it has closed the connection. Shield
// must be deferred.
func Shield(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: the Redis client can't read the reply: %v", lease.ErrUnknown, p)
	}
}

// Exec executes the queued commands. Each command has its own error, or none if go-redis panics: then only err is set.
func Exec(ctx context.Context, pipe redis.Pipeliner) (err error) {
	defer Shield(&err)
	_, err = pipe.Exec(ctx)
	return err //nolint:wrapcheck // the error of the commands is complete
}

// Process executes one command, and returns the error of the command or of go-redis.
func Process(ctx context.Context, client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}, cmd redis.Cmder) (err error) {
	defer Shield(&err)
	return client.Process(ctx, cmd) //nolint:wrapcheck // the error of the command is complete
}

// Once is a command that go-redis does not retry, whatever its options. After a retry, the caller would not know that Redis may still execute the
// first request later.
type Once struct{ *redis.Cmd }

// NoRetry keeps go-redis from retrying the command.
func (Once) NoRetry() bool { return true }

// Unknown wraps an error as [lease.ErrUnknown], and also as [lease.ErrRefused] if a repeated request would get the same error.
func Unknown(err error) error {
	if err == nil || errors.Is(err, lease.ErrUnknown) {
		return err
	}
	if IsReply(err) {
		if found := damagedReply(err); found != nil {
			err = lease.Refused(found)
		} else if redis.IsPermissionError(err) || isLoginError(err) || lease.WrongType(err) {
			err = lease.Refused(err)
		}
	}
	return fmt.Errorf("%w: %w", lease.ErrUnknown, err)
}

// IsReply reports whether an error is an error reply of Redis. Network errors are not.
func IsReply(err error) bool { return redis.HasErrorPrefix(err, "") }

// isLoginError reports whether Redis has refused the user or the password. The error may be wrapped.
func isLoginError(err error) bool {
	return redis.HasErrorPrefix(err, "WRONGPASS") || redis.HasErrorPrefix(err, "NOAUTH")
}

// damage matches the description of damaged data in a script's error. Redis adds other text before and after the description.
var damage = regexp.MustCompile(`CORRUPT (.*?)(?:\s+script: [0-9a-f]{40}.*)?$`)

// damagedReply returns an error with [lease.ErrCorrupt] if a script has found damaged data, and nil for any other error.
func damagedReply(err error) error {
	if m := damage.FindStringSubmatch(err.Error()); m != nil {
		return damaged{fmt.Errorf("%w: %s; repair or delete that key", lease.ErrCorrupt, strings.TrimSpace(m[1])), err}
	}
	return nil
}

// A damaged is the error for a script that has found damaged data, with the reply of Redis.
type damaged struct {
	error
	reply error
}

// Unwrap returns the error and the reply.
func (d damaged) Unwrap() []error { return []error{d.error, d.reply} }
