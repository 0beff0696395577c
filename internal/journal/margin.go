package journal

import (
	"fmt"
	"unicode/utf8"
)

// A LeaseMargin is the time that was left of a lease when it was renewed; 0 if the lease was lost.
type LeaseMargin struct {
	// Of names the holder: a job, a pool, or the leadership; "" in entries of older versions.
	Of      string `json:"of,omitempty"`
	LeftMS  int64  `json:"left_ms"`
	LeaseMS int64  `json:"lease_ms"` // length of the lease
}

// The values of LeaseMargin.Of. The name of the job or pool follows the first two.
const (
	MarginOfJob        = "job "
	MarginOfPool       = "pool "
	MarginOfLeadership = "the leadership"
)

// mostOf is the maximum length of the name of a holder, in bytes.
const mostOf = 300

// Lost reports whether the lease was lost.
func (m LeaseMargin) Lost() bool { return m.LeftMS == 0 }

// Low reports whether less than half of the lease was left. A renewal is sent after a third of the lease, so about two thirds are normal. With the longest
// grace, a run is stopped when 38 % are left. Half of the lease is a warning before that point.
func (m LeaseMargin) Low() bool { return 2*m.LeftMS < m.LeaseMS }

// Below reports whether m is a smaller fraction of its lease than other. Fractions are compared because a short lease has less time left without being closer
// to its end.
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
