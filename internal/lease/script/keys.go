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

// Key is the first key of a lock; it begins the others, and its hash tag is theirs.
func Key(prefix, lock string) string {
	if strings.Contains(lock, "{") {
		return prefix + lock
	}
	return prefix + "{" + lock + "}"
}

// Keys are those of a lock, and of a lease id.
func Keys(lock, id string) []string {
	return []string{lock, lock + ":ledger", lock + ":orphans", Tombstone(lock, id)}
}

// LineKeys are those of the lock's queue.
func LineKeys(lock string) []string { return []string{lock + ":queue", lock + ":patience"} }

// Tombstone is where the server keeps that a lease id was released.
func Tombstone(lock, id string) string { return lock + ":dead:" + id }

// TombstoneLife is for how long requests that were sent before a release may still arrive, in microseconds, where a round trip takes this long at most.
func TombstoneLife(timeout time.Duration) int64 { return (2*timeout + time.Second).Microseconds() }

// NodeKeys are those of a lock, and of a lease id, on a node of a quorum; the last one, the index, is for a script that writes a register.
func NodeKeys(prefix, lock, id string) []string {
	return []string{MemberKey(prefix), lock, Tombstone(lock, id)}
}

// MemberKey is where a node of a quorum keeps whether it votes.
func MemberKey(prefix string) string { return prefix + "quorum" }

// IndexKey is where a node keeps which locks have a register.
func IndexKey(prefix string) string { return prefix + "quorum:locks" }
