package scheduler

// Pools: jobs share slots across the cluster.
//
// A run takes a slot of its pool after its tick was granted and before its work begins, first come, first served. It holds the slot through all its
// tries. While it waits, it keeps its slot of the job. If it gets no slot before the start deadline of its tick, the tick is missed (pool).

import (
	"context"
	"fmt"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler/internal/agenda"
)

// A Pool is a semaphore that jobs share across the cluster, first come, first served. A run waits for a slot of the pool until the StartDeadline of
// its tick, and holds the slot until the run ends, through all its tries. The zero value means no pool.
type Pool struct {
	// Name matches [A-Za-z0-9][A-Za-z0-9_-]{0,127}.
	Name string
	// Slots is the number of slots, from 1 to 1000. All jobs of a pool must have the same number.
	Slots int
}

// Pools grants the slots of pools. [election.Elector] implements it.
type Pools interface {
	// AcquirePool waits for a slot until ctx ends. TryAcquirePool does not wait.
	AcquirePool(ctx context.Context, entry election.Entry) (*election.Term, error)
	TryAcquirePool(ctx context.Context, entry election.Entry) (term *election.Term, ok bool, err error)
}

func (p Pool) findFault() string {
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

// poolEntry returns the request of a run for a slot of the job's pool, with the lease length of the job.
func (j *Job) poolEntry(runID string) election.Entry {
	return election.Entry{Pool: j.Pool.Name, Slots: j.Pool.Slots, Lease: j.Lease, Run: runID}
}

// poolMargin is the time before the next tick at which a run stops waiting for its pool, if its start deadline is the next tick. If it waited longer,
// the next tick would find the slot of the job held and be skipped.
const poolMargin = 50 * time.Millisecond

// poolWait returns the maximum wait for the pool of a run without a start deadline.
func (j *Job) poolWait() time.Duration { return orDefault(j.StartDeadline, agenda.LongestAuto) }
