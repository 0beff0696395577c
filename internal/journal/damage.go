package journal

import (
	"encoding/json"
	"fmt"
	"time"
)

// The limits of the values that replicas write. A value beyond its limit is damage, and is reported as ErrCorrupt.
const (
	mostSlots    = 1000
	mostAttempts = 1_000_000
	mostToken    = 1<<53 - 1
	mostRunning  = 1_000_000
	longestLease = 24 * time.Hour
	longestRun   = 100 * 365 * 24 * time.Hour
	// mostListed is the maximum number of entries that are read from a list that all replicas share.
	mostListed = 100_000
)

// isSound reports whether a time can be shown, and written as JSON.
func isSound(t time.Time) bool {
	year := t.UTC().Year()
	return t.IsZero() || year >= 1 && year <= 9999
}

// described is a value that Redis stores as JSON under a name.
type described interface{ findFault() string }

// decodeEntry decodes text into v. name points to the field of v that has the name of the entry. It must equal want.
func decodeEntry(text string, v described, name *string, want string) error {
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if *name != want {
		return fmt.Errorf("%w: the entry there is of %.40q", ErrCorrupt, *name)
	}
	if fault := v.findFault(); fault != "" {
		return fmt.Errorf("%w: %s", ErrCorrupt, fault)
	}
	return nil
}
