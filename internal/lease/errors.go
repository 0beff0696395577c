package lease

import (
	"errors"
	"strings"
)

var (
	// ErrUnknown means that Redis did not answer in time. Redis may or may not have carried out the request.
	ErrUnknown = errors.New("outcome unknown")
	// ErrRefused comes with ErrUnknown if a repeated request would fail as well: Redis rejects the credentials, its ACL forbids a command that is
	// needed, or the key holds something other than a lock.
	ErrRefused = errors.New("refused by the server")
	// ErrLost is the cause of a lease's context if the lease was not renewed in time, or if another lease has its row.
	ErrLost = errors.New("lease lost")
	// ErrReleased is the cause of a lease's context after the lease was released.
	ErrReleased = errors.New("lease released")
	// ErrLimit means that the lock is in use with another number of slots.
	ErrLimit = errors.New("lock is in use with another number of slots")
	// ErrClosed is returned by a client that was closed.
	ErrClosed = errors.New("client is closed")
	// ErrQuorum is returned by methods that need a single Redis master if the client uses a quorum.
	ErrQuorum = errors.New("not possible on a quorum")
	// ErrCorrupt means that a key of the lock, or a reply, holds data that no client has written: a number out of range, another type, or text that is
	// not a row. The error names the damaged key and field. Other locks still work. The error comes with [ErrUnknown] and [ErrRefused] until the key is
	// repaired or deleted.
	ErrCorrupt = errors.New("damaged data in Redis")
)

// Refused wraps an error as [ErrRefused], which means that a repeated request would fail as well.
func Refused(err error) error { return refused{err} }

type refused struct{ error }

func (r refused) Unwrap() error { return r.error }

func (r refused) Is(target error) bool {
	return target == ErrRefused || target == ErrCorrupt && WrongType(r.error)
}

// WrongType reports whether an error means that a key holds something other than a lock. Some Redis versions put other text before WRONGTYPE in the
// error of a script.
func WrongType(err error) bool { return strings.Contains(err.Error(), "WRONGTYPE") }
