package replica

import (
	"sync"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
)

// marginWindow is the time for which a registration shows a margin. A user who looks once a minute sees every low margin, and a slow minute is soon forgotten.
// The window moves in steps of [cluster.RegisterEvery].
const marginWindow = time.Minute

// margins holds the margins of the leases that were recently renewed or lost. Its zero value is ready for use. It is safe for concurrent use.
type margins struct {
	mu    sync.Mutex
	began time.Time // start of step 0
	steps [marginWindow / cluster.RegisterEvery]struct {
		number int64 // number of the step; a smaller number than expected is from an earlier window
		least  *journal.LeaseMargin
	}
}

// noteRenewed records the renewal of a lease. It must not block, because the watchdog waits for it.
func (m *margins) noteRenewed(lock string, left, length time.Duration) {
	m.noteMargin(journal.LeaseMargin{Of: holderOf(lock), LeftMS: max(min(left, length).Milliseconds(), 1), LeaseMS: length.Milliseconds()})
}

// noteLost records the loss of a lease, as a margin of 0.
func (m *margins) noteLost(lock string, length time.Duration, _ error) {
	m.noteMargin(journal.LeaseMargin{Of: holderOf(lock), LeaseMS: length.Milliseconds()})
}

// holderOf names the holder of a lock's lease for display. It returns "" for other locks, such as the lock of a trigger request, which is held only until the
// run has a lease of its own.
func holderOf(lock string) string {
	if job, ok := election.JobOf(lock); ok {
		return journal.MarginOfJob + job
	}
	if pool, ok := election.PoolOf(lock); ok {
		return journal.MarginOfPool + pool
	}
	if _, ok := election.LeadershipOf(lock); ok {
		return journal.MarginOfLeadership
	}
	return ""
}

// noteMargin records a margin. It ignores margins without a holder.
func (m *margins) noteMargin(now journal.LeaseMargin) {
	if now.Of == "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	number := m.currentStep()
	step := &m.steps[number%int64(len(m.steps))]
	if step.least == nil || step.number != number || now.Below(*step.least) {
		step.number, step.least = number, &now
	}
}

// leastMargin returns the margin in the window that is the smallest fraction of its lease; nil if no lease was renewed or lost.
func (m *margins) leastMargin() (least *journal.LeaseMargin) {
	m.mu.Lock()
	defer m.mu.Unlock()
	oldest := m.currentStep() - int64(len(m.steps)) + 1
	for _, step := range m.steps {
		if step.least != nil && step.number >= oldest && (least == nil || step.least.Below(*least)) {
			least = step.least
		}
	}
	return least
}

// currentStep returns the number of the current step. The caller holds mu.
func (m *margins) currentStep() int64 {
	now := time.Now() // compared by the monotonic clock, which is never set
	if m.began.IsZero() {
		m.began = now
	}
	return int64(now.Sub(m.began) / cluster.RegisterEvery)
}
