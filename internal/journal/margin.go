package journal

import (
	"fmt"
	"unicode/utf8"
)

// LeaseMargin is the part of a lease that was left when it was renewed; nothing if the lease was lost.
type LeaseMargin struct {
	// Of is the holder: a job, a pool, or the leadership; "" in entries of older versions.
	Of      string `json:"of,omitempty"`
	LeftMS  int64  `json:"left_ms"`
	LeaseMS int64  `json:"lease_ms"` // lease length
}

// The holders of leases. A name follows the first two.
const (
	MarginOfJob        = "job "
	MarginOfPool       = "pool "
	MarginOfLeadership = "the leadership"
)

// mostOf is the maximum length of the name of a holder, in bytes.
const mostOf = 300

// Lost reports whether the lease was lost.
func (m LeaseMargin) Lost() bool { return m.LeftMS == 0 }

// Low reports whether less than half of the lease was left. A renewal is sent when a third of the lease has passed, so about two thirds are normal. With the
// longest grace a run is stopped when 38 % are left: half of the lease is close to that, and still leaves time to act.
func (m LeaseMargin) Low() bool { return 2*m.LeftMS < m.LeaseMS }

// Below reports whether a smaller fraction of the lease was left than of another. Fractions are compared because a short lease has less time left without
// being closer to its end.
func (m LeaseMargin) Below(other LeaseMargin) bool {
	return float64(m.LeftMS)*float64(other.LeaseMS) < float64(other.LeftMS)*float64(m.LeaseMS)
}

// String returns a text such as "19.7s of 30s".
func (m LeaseMargin) String() string {
	return fmt.Sprintf("%.1fs of %gs", float64(m.LeftMS)/1000, float64(m.LeaseMS)/1000)
}

func (m *LeaseMargin) isSound() bool {
	return m == nil || m.LeftMS >= 0 && m.LeftMS <= m.LeaseMS && m.LeaseMS > 0 && m.LeaseMS <= longestLease.Milliseconds() &&
		len(m.Of) <= mostOf && utf8.ValidString(m.Of)
}
