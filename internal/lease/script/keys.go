package script

import (
	"strings"
	"time"
)

// The keys of the scripts, by the names in their headers.
var (
	lockKeys = []string{"lock", "ledger", "orphans", "tombstone"}
	lineKeys = []string{"queue", "patience"}
	nodeKeys = []string{"member", "lock", "tombstone", "index"}
)

// Key returns the first key of a lock. The other keys begin with it, and have its hash tag.
func Key(prefix, lock string) string {
	if strings.Contains(lock, "{") {
		return prefix + lock
	}
	return prefix + "{" + lock + "}"
}

// Keys returns the keys of a lock and a lease id. lock is its first key.
func Keys(lock, id string) []string {
	return []string{lock, lock + ":ledger", lock + ":orphans", Tombstone(lock, id)}
}

// LineKeys returns the keys of the lock's queue.
func LineKeys(lock string) []string { return []string{lock + ":queue", lock + ":patience"} }

// Tombstone returns the key in which the server records that a lease id was released.
func Tombstone(lock, id string) string { return lock + ":dead:" + id }

// TombstoneLife returns the time, in microseconds, for which requests that were sent before a release may still arrive. timeout is the maximum
// duration of a round trip.
func TombstoneLife(timeout time.Duration) int64 { return (2*timeout + time.Second).Microseconds() }

// NodeKeys returns the keys of a lock and a lease id on a node of a quorum. A script that writes a register needs the index as a further key.
func NodeKeys(prefix, lock, id string) []string {
	return []string{MemberKey(prefix), lock, Tombstone(lock, id)}
}

// MemberKey returns the key of a node's marker.
func MemberKey(prefix string) string { return prefix + "quorum" }

// IndexKey returns the key in which a node keeps the locks that have a register.
func IndexKey(prefix string) string { return prefix + "quorum:locks" }
