package lease

import (
	"errors"
	"fmt"
)

// ErrStale means that a resource has already seen a greater token, so the caller no longer holds the lease.
var ErrStale = errors.New("stale fencing token")

// ErrAhead means that a token is ahead of Redis's clock by more than a minute.
var ErrAhead = errors.New("fencing token ahead of the server's clock")

// A StaleError has the token that was refused, and the greatest token that the resource has seen.
type StaleError struct {
	Resource string // "" for a gate
	Token    Token  // the refused token
	Newest   Token  // the greatest token so far
}

func (e *StaleError) Error() string {
	of := ""
	if e.Resource != "" {
		of = fmt.Sprintf(" of %q", e.Resource)
	}
	return fmt.Sprintf("%v%s: %d, after %d", ErrStale, of, e.Token, e.Newest)
}

// Unwrap returns [ErrStale].
func (e *StaleError) Unwrap() error { return ErrStale }
