package scheduler

// Pool: jobs share slots across the cluster.
//
// A run takes a slot of its pool after its tick was granted, and before its work begins, first come, first served. It holds the slot
// through all its tries. While it waits it keeps its slot of the job. A tick that gets no slot until its start deadline is missed (pool).

import (
	"context"
	"fmt"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler/internal/agenda"
)

// Pool is a semaphore that jobs share across the cluster, first come, first served. A run that was granted its tick waits for a slot until the tick's
// StartDeadline, and holds it until it is over, tries and all. The zero value is none.
type Pool struct {
	// Name is [A-Za-z0-9][A-Za-z0-9_-]{0,127}.
	Name string
	// Slots is how many of them there are, from 1 to 1000. Jobs of one pool say the same.
	Slots int
}

// Pools have the slots of pools. [election.Elector] is one.
type Pools interface {
	// AcquirePool waits for a slot until ctx ends, TryAcquirePool does not.
	AcquirePool(ctx context.Context, entry election.Entry) (*election.Term, error)
	TryAcquirePool(ctx context.Context, entry election.Entry) (term *election.Term, ok bool, err error)
}

func (p Pool) fault() string {
	switch {
	case p == Pool{}:
		return ""
	case !jobName.MatchString(p.Name):
		return fmt.Sprintf("Pool.Name is %q: a name is made of letters, digits, _ and -", p.Name)
	case p.Slots < 1 || p.Slots > 1000:
		return fmt.Sprintf("Pool.Slots is %d: it must be from 1 to 1000", p.Slots)
	}
	return ""
}

// entry asks for a slot of the job's pool for a run, for as long as its own.
func (j *Job) entry(runID string) election.Entry {
	return election.Entry{Pool: j.Pool.Name, Slots: j.Pool.Slots, Lease: j.Lease, Run: runID}
}

// poolMargin is how long before the next tick comes due a run gives its pool up whose deadline lasts until then: else the next one would find the
// job's slot held, and be skipped.
const poolMargin = 50 * time.Millisecond

// poolWait is how long a run waits for its pool that has no deadline of its own.
func (j *Job) poolWait() time.Duration { return orDefault(j.StartDeadline, agenda.LongestAuto) }
