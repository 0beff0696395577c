package lease

import (
	"errors"
	"strings"
)

var (
	// ErrUnknown means that the server did not answer in time: it may or may not have carried out the request.
	ErrUnknown = errors.New("outcome unknown")
	// ErrRefused is returned with ErrUnknown if asking again would change nothing: the server refuses the credentials, does not permit its user a
	// command that is needed, or has something other than a lock under the key.
	ErrRefused = errors.New("refused by the server")
	// ErrLost is the cause with which a lease's context ends if the lease was not renewed in time, or another lease has its row.
	ErrLost = errors.New("lease lost")
	// ErrReleased is the cause with which a lease's context ends when the lease was released.
	ErrReleased = errors.New("lease released")
	// ErrLimit means that the lock is in use with another number of slots.
	ErrLimit = errors.New("lock is in use with another number of slots")
	// ErrClosed is returned by a client that was closed.
	ErrClosed = errors.New("client is closed")
	// ErrQuorum is returned by methods that need one server if there is a quorum.
	ErrQuorum = errors.New("not possible on a quorum")
	// ErrCorrupt means that a key of the lock, or a reply, holds data that no client has written: a number out of range, another type, or text that
	// is not a row. The error of a damaged key names the key and the field. It concerns only that lock. As long as the key is damaged, the error
	// comes with [ErrUnknown] and [ErrRefused]: repair or delete the key.
	ErrCorrupt = errors.New("damaged data in Redis")
)

// Refused wraps an error as [ErrRefused], because asking again would not change it.
func Refused(err error) error { return refused{err} }

type refused struct{ error }

func (r refused) Unwrap() error { return r.error }

func (r refused) Is(target error) bool {
	return target == ErrRefused || target == ErrCorrupt && WrongType(r.error)
}

// WrongType reports whether a key holds something other than a lock. Not every server has the word at the start of the error of a script.
func WrongType(err error) bool { return strings.Contains(err.Error(), "WRONGTYPE") }
