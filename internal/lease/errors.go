package lease

import (
	"errors"
	"strings"
)

var (
	// ErrUnknown means that the server did not answer in time: it may or may not have carried out the
	// request.
	ErrUnknown = errors.New("outcome unknown")
	// ErrRefused comes with ErrUnknown where asking again would change nothing: the server refuses the credentials,
	// does not permit its user a command that is needed, or has something else than a lock under the key.
	ErrRefused = errors.New("refused by the server")
	// ErrLost ends a lease's context when the lease was not renewed in time, or another holds its row.
	ErrLost = errors.New("lease lost")
	// ErrReleased ends a lease's context when it was released.
	ErrReleased = errors.New("lease released")
	// ErrLimit means that the lock is in use with another number of slots.
	ErrLimit = errors.New("lock is in use with another number of slots")
	// ErrClosed is returned by a client that was closed.
	ErrClosed = errors.New("client is closed")
	// ErrQuorum is returned by methods that need one server, where there is a quorum of several.
	ErrQuorum = errors.New("not possible on a quorum")
	// ErrCorrupt means that a key of the lock, or a reply, holds what no client has written: a number that is out of range, another type, or
	// text that is no row. The error of a damaged key names the key and the field. It concerns that lock alone. As long as the key is damaged
	// it comes with [ErrUnknown] and [ErrRefused]: repair or delete the key.
	ErrCorrupt = errors.New("damaged data in Redis")
)

// Refused marks an error as one that asking again would not change: it is [ErrRefused].
func Refused(err error) error { return refused{err} }

type refused struct{ error }

func (r refused) Unwrap() error { return r.error }

func (r refused) Is(target error) bool {
	return target == ErrRefused || target == ErrCorrupt && WrongType(r.error)
}

// WrongType reports whether a key holds something else than a lock. Not every server has the word at the start
// of a script's error.
func WrongType(err error) bool { return strings.Contains(err.Error(), "WRONGTYPE") }
