package script

import (
	"strings"
	"time"
)

// The names of the scripts' keys, as in the headers of the scripts.
var (
	lockKeys = []string{"lock", "ledger", "orphans", "tombstone"}
	lineKeys = []string{"queue", "patience"}
	nodeKeys = []string{"member", "lock", "tombstone", "index"}
)

// Key returns the first key of a lock. It is the prefix of the other keys, which therefore have the same hash tag.
func Key(prefix, lock string) string {
	if strings.Contains(lock, "{") {
		return prefix + lock
	}
	return prefix + "{" + lock + "}"
}

// Keys returns the keys for a lock and a lease id. lock is the first key of the lock.
func Keys(lock, id string) []string {
	return []string{lock, lock + ":ledger", lock + ":orphans", Tombstone(lock, id)}
}

// LineKeys returns the keys of the lock's queue.
func LineKeys(lock string) []string { return []string{lock + ":queue", lock + ":patience"} }

// Tombstone returns the key that records that a lease id was released.
func Tombstone(lock, id string) string { return lock + ":dead:" + id }

// TombstoneLife returns the time, in microseconds, for which a tombstone is kept, because requests that were sent before the release may still
// arrive. timeout is the maximum duration of a round trip.
func TombstoneLife(timeout time.Duration) int64 { return (2*timeout + time.Second).Microseconds() }

// NodeKeys returns the keys for a lock and a lease id on a node of a quorum. A script that writes a register also needs [IndexKey].
func NodeKeys(prefix, lock, id string) []string {
	return []string{MemberKey(prefix), lock, Tombstone(lock, id)}
}

// MemberKey returns the key of a node's marker.
func MemberKey(prefix string) string { return prefix + "quorum" }

// IndexKey returns the key of a node's set of locks that have a register.
func IndexKey(prefix string) string { return prefix + "quorum:locks" }
