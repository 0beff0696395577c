package transport

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
)

// Unknown marks an error as one that leaves the outcome unknown.
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

// IsReply reports whether an error is a server's answer, and not one of the network.
func IsReply(err error) bool { return redis.HasErrorPrefix(err, "") }

// isLoginError reports whether a server has refused the user or the password, also where that error is wrapped.
func isLoginError(err error) bool {
	return redis.HasErrorPrefix(err, "WRONGPASS") || redis.HasErrorPrefix(err, "NOAUTH")
}

// damage is how a script names what it has found, as the servers pass it on: with words of their own before and after.
var damage = regexp.MustCompile(`CORRUPT (.*?)(?:\s+script: [0-9a-f]{40}.*)?$`)

// damagedReply is the error of a script that has found something damaged; nil if it is another error.
func damagedReply(err error) error {
	if m := damage.FindStringSubmatch(err.Error()); m != nil {
		return damaged{fmt.Errorf("%w: %s; repair or delete that key", lease.ErrCorrupt, strings.TrimSpace(m[1])), err}
	}
	return nil
}

// damaged is an error reply that means damage.
type damaged struct {
	error
	reply error
}

// Unwrap has both.
func (d damaged) Unwrap() []error { return []error{d.error, d.reply} }
