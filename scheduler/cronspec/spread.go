package cronspec

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// hashPlace returns a hash of its parts: the first 8 bytes, big-endian, of the SHA-256 of the parts joined by NUL. SHA-256 spreads similar names such
// as "backup-1" and "backup-2" evenly, and is available in every language.
func hashPlace(parts ...string) uint64 {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return binary.BigEndian.Uint64(sum[:8])
}

// Jitter returns the delay of a job's tick, a whole number of milliseconds from 0 to less than max. It depends only on the arguments, and is the same
// on every machine and in every version. If next, the job's next tick, is nearer than max, the delay is less than the time until next. A zero next
// means that there is no next tick.
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
