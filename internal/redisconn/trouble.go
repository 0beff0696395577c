package redisconn

import (
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
)

// Trouble is a class of errors: why a Redis can't be used.
type Trouble struct {
	// What ends a sentence that begins with the word "Redis".
	What string
	// Remedy is an advice to the operator; "" where only waiting helps, or no remedy is known.
	Remedy string
}

var (
	// Unreachable is a Redis that does not answer.
	Unreachable = Trouble{What: "can't be reached"}
	// ErrorReply is a Redis that answers with an error of no other class.
	ErrorReply = Trouble{What: "answers with an error"}
	// BadCredentials is a Redis that refuses the user or the password.
	BadCredentials = Trouble{"refuses the credentials", "set the right user and password in CRONCLAVE_REDIS, [redis].url or [redis].password_file (the file is read at each connection, the others at the start)"}
	// BadSentinelCredentials is a Sentinel that refuses the user or the password.
	BadSentinelCredentials = Trouble{"can't be found: a Sentinel refuses the credentials", "set the right user and password_file in [redis].sentinel; the user and the password in the URL are those of the master"}
	// Forbidden is a Redis whose user lacks rights. [Rights] has the remedy.
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

// isLoginError reports whether a server has refused the user or the password.
func isLoginError(err error) bool {
	return slices.ContainsFunc([]string{"WRONGPASS", "NOAUTH", "invalid password", "Client sent AUTH"}, // the latter two before Redis 6
		func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}

// Because puts the trouble, its cause and its remedy into one error.
func (t Trouble) Because(err error) error {
	switch {
	case t == Forbidden:
		return fmt.Errorf("%s (%w)", t.What, err)
	case t.Remedy == "":
		return fmt.Errorf("%s: %w", t.What, err)
	}
	return fmt.Errorf("%s (%w): %s", t.What, err, t.Remedy)
}
