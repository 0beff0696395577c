package journal

import (
	"fmt"
	"unicode/utf8"
)

// LeaseMargin is how much of a lease was left when its renewal came through; nothing if the lease was lost.
type LeaseMargin struct {
	// Of is the holder: a job, a pool, or the leadership; "" for a version that does not say.
	Of      string `json:"of,omitempty"`
	LeftMS  int64  `json:"left_ms"`
	LeaseMS int64  `json:"lease_ms"` // how long that lease lasts without renewal
}

// The holders of leases: the first two stand before a name.
const (
	MarginOfJob        = "job "
	MarginOfPool       = "pool "
	MarginOfLeadership = "the leadership"
)

// mostOf bounds the name of a holder.
const mostOf = 300

// Lost returns whether the lease was lost.
func (m LeaseMargin) Lost() bool { return m.LeftMS == 0 }

// Low returns whether less than half of the lease was left. A renewal is sent when a third of the lease has passed, so that about two thirds are left. With
// the longest grace a run is stopped when 38 % are left: at half of the lease that is close, and there is still time to act.
func (m LeaseMargin) Low() bool { return 2*m.LeftMS < m.LeaseMS }

// Below returns whether a smaller part of the lease was left than of another: a short lease has less time left, and is no closer to its end for that.
func (m LeaseMargin) Below(other LeaseMargin) bool {
	return float64(m.LeftMS)*float64(other.LeaseMS) < float64(other.LeftMS)*float64(m.LeaseMS)
}

// String is such as "19.7s of 30s".
func (m LeaseMargin) String() string {
	return fmt.Sprintf("%.1fs of %gs", float64(m.LeftMS)/1000, float64(m.LeaseMS)/1000)
}

func (m *LeaseMargin) sound() bool {
	return m == nil || m.LeftMS >= 0 && m.LeftMS <= m.LeaseMS && m.LeaseMS > 0 && m.LeaseMS <= longestLease.Milliseconds() &&
		len(m.Of) <= mostOf && utf8.ValidString(m.Of)
}
