package main

import (
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// unavailable ends a command that Redis has let down while it did something. What Redis has refused is told as what it is.
func unavailable(doing string, err error) error {
	if t := troubleOf(err); t == locked || t == forbidden {
		return exitError{exitUnavailable, fmt.Errorf("%s: redis %w", doing, t.because(err))}
	}
	return exitError{exitUnavailable, fmt.Errorf("%s: %w", doing, err)}
}

// trouble is why a Redis can't be used, as in "Redis is away", and what to do about it: "" where only waiting helps, or nobody knows.
type trouble struct{ what, remedy string }

var (
	unreachable = trouble{what: "can't be reached"}
	angry       = trouble{what: "answers with an error"}
	locked      = trouble{"refuses the credentials", "set the right user and password in CRONCLAVE_REDIS, [redis].url or [redis].password_file (a replica reads them when it starts)"}
	forbidden   = trouble{what: "does not permit its user what is needed"} // sayRights has the remedy
)

func troubleOf(err error) trouble {
	var reply redis.Error
	switch {
	case redis.IsAuthError(err), redis.HasErrorPrefix(err, "invalid password"), redis.HasErrorPrefix(err, "Client sent AUTH"): // the latter two before Redis 6
		return locked
	case redis.IsPermissionError(err):
		return forbidden
	case errors.As(err, &reply):
		return angry
	}
	return unreachable
}

// because puts the trouble, its cause and its remedy into one error.
func (t trouble) because(err error) error {
	switch {
	case t == forbidden:
		return fmt.Errorf("%s (%w)", t.what, err)
	case t.remedy == "":
		return fmt.Errorf("%s: %w", t.what, err)
	}
	return fmt.Errorf("%s (%w): %s", t.what, err, t.remedy)
}
