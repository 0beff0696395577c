package lease

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// A StopRequest asks the holder of a lease to stop its work, see Lease.Stopping. It is the lease with ID, or without an ID a lease that makes room
// for a tick.
type StopRequest struct {
	Lock      string
	Permanent bool // see [Request]
	ID        string
	Reason    string // one line of at most 1,000 bytes without tabs; required
	// Tick and From, which are [Tick.At] and [Tick.NotBefore] of the tick, and Slots choose a lease if the tick is undecided and all slots are held:
	// the oldest lease that was granted before From, or that has adopted an orphan of an earlier tick. One lease at a time is chosen for a tick, for
	// all callers, and again the same as long as it has not ended. A lease that is about to stop anyway, and not for another tick, is chosen first.
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

// A StopAnswer is the answer to a [StopRequest].
type StopAnswer struct {
	ID    string // the lease whose holder is asked to stop; "" if there is none, because it has ended or the tick needs none
	Owner string
	Slot  int
	Err   error // [ErrUnknown]: it may be marked or not; ask again
}
