package transport

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
)

// Unknown wraps an error as [lease.ErrUnknown]. If a repeated request would get the same error reply, the result is also [lease.ErrRefused].
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

// IsReply reports whether an error is an error reply of Redis, not a network error.
func IsReply(err error) bool { return redis.HasErrorPrefix(err, "") }

// isLoginError reports whether Redis has refused the user or the password. The error may be wrapped.
func isLoginError(err error) bool {
	return redis.HasErrorPrefix(err, "WRONGPASS") || redis.HasErrorPrefix(err, "NOAUTH")
}

// damage matches the description of damaged data in a script's error. Redis adds other text before and after it.
var damage = regexp.MustCompile(`CORRUPT (.*?)(?:\s+script: [0-9a-f]{40}.*)?$`)

// damagedReply returns an error with [lease.ErrCorrupt] if a script has found damaged data, and nil for any other error.
func damagedReply(err error) error {
	if m := damage.FindStringSubmatch(err.Error()); m != nil {
		return damaged{fmt.Errorf("%w: %s; repair or delete that key", lease.ErrCorrupt, strings.TrimSpace(m[1])), err}
	}
	return nil
}

// A damaged is an error reply about damaged data.
type damaged struct {
	error
	reply error
}

// Unwrap returns both errors.
func (d damaged) Unwrap() []error { return []error{d.error, d.reply} }
