package redisconn

import (
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
)

// A Trouble is a class of errors that make Redis unusable.
type Trouble struct {
	// What is a predicate for a sentence that begins with "Redis".
	What string
	// Remedy is advice to the operator; "" if there is none.
	Remedy string
}

var (
	// Unreachable means that Redis does not answer.
	Unreachable = Trouble{What: "can't be reached"}
	// ErrorReply means that Redis answers with an error that belongs to no other class.
	ErrorReply = Trouble{What: "answers with an error"}
	// BadCredentials means that Redis refuses the user or the password.
	BadCredentials = Trouble{"refuses the credentials", "set the right user and password in CRONCLAVE_REDIS, [redis].url or [redis].password_file (the file is read at each connection, the others at the start)"}
	// BadSentinelCredentials means that a Sentinel refuses the user or the password.
	BadSentinelCredentials = Trouble{"can't be found: a Sentinel refuses the credentials", "set the right user and password_file in [redis].sentinel; the user and the password in the URL are those of the master"}
	// Forbidden means that the Redis user lacks permissions. [Rights] returns the rules to grant them.
	Forbidden = Trouble{What: "does not permit its user what is needed"}
)

// TroubleOf classifies an error of a client.
func TroubleOf(err error) Trouble {
	var reply redis.Error
	var login *refusedLogin
	switch {
	case isLoginError(err) && errors.As(err, &login) && login.sentinel:
		return BadSentinelCredentials
	case isLoginError(err):
		return BadCredentials
	case redis.IsPermissionError(err):
		return Forbidden
	case errors.As(err, &reply):
		return ErrorReply
	}
	return Unreachable
}

// isLoginError reports whether Redis has refused the user or the password.
func isLoginError(err error) bool {
	return slices.ContainsFunc([]string{"WRONGPASS", "NOAUTH", "invalid password", "Client sent AUTH"}, // the last two are from Redis before 6
		func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}

// Because returns an error with the trouble, its cause and its remedy.
func (t Trouble) Because(err error) error {
	switch {
	case t == Forbidden:
		return fmt.Errorf("%s (%w)", t.What, err)
	case t.Remedy == "":
		return fmt.Errorf("%s: %w", t.What, err)
	}
	return fmt.Errorf("%s (%w): %s", t.What, err, t.Remedy)
}
