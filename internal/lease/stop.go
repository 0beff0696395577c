package lease

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// StopRequest asks the holder of a lease to stop its work, see Lease.Stopping: the one of ID, or, without an ID, one that is to make room for a tick.
type StopRequest struct {
	Lock      string
	Permanent bool // as in [Request]
	ID        string
	Reason    string // one line of at most 1,000 bytes without tabs; required
	// Tick and From, as in [Tick.At] and [Tick.NotBefore], and Slots: if the tick is undecided and all slots are
	// held, the lease is the oldest of those that were granted before From, or that have adopted an orphan of an
	// earlier tick. One lease is chosen for a tick at a time, for all callers and however often they ask: if it has
	// not ended by then, the same again. One that is about to stop anyway, and not for another tick, is as good.
	Tick, From time.Time
	Slots      int
}

// Validate returns an error if the request can't be valid.
func (r StopRequest) Validate() error {
	switch {
	case r.Reason == "" || !OneLine(r.Reason, MaxHeard):
		return fmt.Errorf("reason %.100q: it must be one line of at most %d bytes, without tabs", r.Reason, MaxHeard)
	case strings.ContainsAny(r.ID, "\t\n"):
		return fmt.Errorf("lease id %q: it has a tab or a line break", r.ID)
	case r.ID == "" && (r.Tick.Unix() <= 0 || r.Slots < 1):
		return errors.New("neither a lease id, nor a tick and the number of slots")
	}
	return nil
}

// StopAnswer is the answer to a [StopRequest].
type StopAnswer struct {
	ID    string // the lease whose holder is told to stop; "" if there is none: it has ended, or the tick needs none
	Owner string
	Slot  int
	Err   error // [ErrUnknown]: it may be marked, or not; ask again
}
