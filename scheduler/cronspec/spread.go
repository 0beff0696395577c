package cronspec

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// hashPlace returns a number that depends only on its parts: the first 8 bytes, big-endian, of the SHA-256 of the parts joined by NUL. The hash is
// cryptographic so that names such as "backup-1" and "backup-2" land far apart, and so that it can be recomputed anywhere.
func hashPlace(parts ...string) uint64 {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return binary.BigEndian.Uint64(sum[:8])
}

// Jitter returns the delay of a job's tick: a whole number of milliseconds in [0, max) that depends only on the job's name and the tick, the same on
// every machine and in every version. The delay never reaches the job's next tick: if next is closer than max, it is spread over the time up to next
// instead. A zero next means that there is none.
//
// The delay is limit * h / 2^64. limit is the smaller of max and next - tick. h is the first 8 bytes, big-endian, of the SHA-256 of "jitter", the
// job's name and the tick in decimal Unix seconds, joined by NUL.
func Jitter(job string, tick, next time.Time, max time.Duration) time.Duration {
	limit := max
	if !next.IsZero() {
		limit = min(limit, next.Sub(tick))
	}
	if limit <= 0 {
		return 0
	}
	h := hashPlace("jitter", job, strconv.FormatInt(tick.Unix(), 10))
	delay, _ := bits.Mul64(uint64(limit), h)
	return time.Duration(delay).Truncate(time.Millisecond)
}
