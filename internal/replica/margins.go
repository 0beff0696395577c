package replica

import (
	"sync"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/operator"
)

// marginWindow is for how long a registration shows a margin: each of its renewals is seen by people who look once a minute, and a slow minute that is over
// is forgotten. The window moves in steps, by [operator.RegisterEvery].
const marginWindow = time.Minute

// margins are those of the leases that were renewed or lost lately. The zero value is ready for use, by several goroutines.
type margins struct {
	mu    sync.Mutex
	began time.Time // of the first step
	steps [marginWindow / operator.RegisterEvery]struct {
		number int64 // counted from began; the entry is of an earlier window if it is not the expected one
		least  *journal.LeaseMargin
	}
}

// renewed takes in the renewal of a lease. It returns at once, since the keeper waits for it.
func (m *margins) renewed(lock string, left, length time.Duration) {
	m.note(journal.LeaseMargin{Of: holderOf(lock), LeftMS: max(min(left, length).Milliseconds(), 1), LeaseMS: length.Milliseconds()})
}

// lost takes in the loss of a lease: nothing was left of it.
func (m *margins) lost(lock string, length time.Duration, _ error) {
	m.note(journal.LeaseMargin{Of: holderOf(lock), LeaseMS: length.Milliseconds()})
}

// holderOf names the holder of the lease of a lock for people; "" for another lock. That of a trigger request is one: it is held for the moment until its run
// begins, which has a lease of its own.
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

// note takes in a margin, unless its holder has no name.
func (m *margins) note(now journal.LeaseMargin) {
	if now.Of == "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	number := m.step()
	step := &m.steps[number%int64(len(m.steps))]
	if step.least == nil || step.number != number || now.Below(*step.least) {
		step.number, step.least = number, &now
	}
}

// least is the margin within the window of which the smallest part of the lease was left; nil if no lease was renewed or lost.
func (m *margins) least() (least *journal.LeaseMargin) {
	m.mu.Lock()
	defer m.mu.Unlock()
	oldest := m.step() - int64(len(m.steps)) + 1
	for _, step := range m.steps {
		if step.least != nil && step.number >= oldest && (least == nil || step.least.Below(*least)) {
			least = step.least
		}
	}
	return least
}

// step is the number of the present step. mu is held.
func (m *margins) step() int64 {
	now := time.Now() // its monotonic part counts: nothing steps it
	if m.began.IsZero() {
		m.began = now
	}
	return int64(now.Sub(m.began) / operator.RegisterEvery)
}
