package lease

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// A StopRequest asks the holder of a lease to stop its work: see engine.Run.Stopping. With an ID, it selects the lease with this id. Without an ID,
// it selects a lease to make room for a tick.
type StopRequest struct {
	Lock      string
	Permanent bool // see [Request]
	ID        string
	Reason    string // one line of at most 1,000 bytes without tabs; required
	// Tick is [Tick.At] and From is [Tick.NotBefore] of a tick that needs a slot. If the tick is undecided and all Slots are held, the request selects a
	// lease that is stopping already and does not make room for another tick. If there is none, it selects the oldest lease that was granted before From
	// or has adopted an orphan of an earlier tick. All callers get the same lease until that lease has ended.
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
	ID    string // the lease whose holder is asked to stop; "" if the lease has ended, or the tick needs no room
	Owner string
	Slot  int
	Err   error // after [ErrUnknown] the holder may or may not be asked to stop; ask again
}
