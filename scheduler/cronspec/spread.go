package cronspec

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// place is a number that depends on its parts alone: the first 8 bytes,
// big-endian, of the SHA-256 of the parts joined by NUL. A cryptographic hash
// because names such as "backup-1", "backup-2" must land far apart, and because
// it can be recomputed anywhere.
func place(parts ...string) uint64 {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return binary.BigEndian.Uint64(sum[:8])
}

// Jitter returns by how much a job's tick is delayed: a whole number of
// milliseconds in [0, max) that depends on the job's name and the tick alone,
// the same on every machine and in every version. The delay never reaches the
// job's next tick: where next is closer than max, it is spread over the time up
// to next instead. A zero next means that there is none.
//
// The delay is limit * h / 2^64, with limit the smaller of max and next - tick,
// and h the first 8 bytes, big-endian, of the SHA-256 of "jitter", the job's
// name and the tick in decimal Unix seconds, joined by NUL.
func Jitter(job string, tick, next time.Time, max time.Duration) time.Duration {
	limit := max
	if !next.IsZero() {
		limit = min(limit, next.Sub(tick))
	}
	if limit <= 0 {
		return 0
	}
	h := place("jitter", job, strconv.FormatInt(tick.Unix(), 10))
	delay, _ := bits.Mul64(uint64(limit), h)
	return time.Duration(delay).Truncate(time.Millisecond)
}
