package scheduler

// Recoveries: a tick whose run was interrupted runs again, on any replica.
//
// A run is interrupted when its replica dies or drains, or when its lease is lost. It leaves an orphan in the job's lock. Each replica that sees the
// orphan claims the recovery, and one replica wins it. The recovery is attempt n+1, with a greater token and a new run id. A run is not recovered if
// it had succeeded, was canceled or replaced, was outside the schedule, or has used up its attempts.

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/cronclave/cronclave/election"
)

// Recover runs a tick again if the replica of its run died, drained or lost the lease. Any replica may run it. With Recover, a tick runs at least
// once instead of at most once. Each recovery has a greater token, a new run id, and the trigger "recovery". The zero value means no recovery.
type Recover struct {
	// Max is the maximum number of attempts after the first; at most 100. The tries of [Retry] count as attempts, too.
	Max int
}

func (r Recover) findFault(perTick int) string {
	switch {
	case r.Max < 0 || r.Max > 100:
		return fmt.Sprintf("Recover.Max is %d: it must be from 0 to 100", r.Max)
	case r.Max > 0 && perTick > 1:
		return fmt.Sprintf("Recover needs PerTick 1, and it is %d: a recovery would not know whose share of the tick it has", perTick)
	}
	return ""
}

// allowsAttempt reports whether a tick may have one more attempt after an interrupted one. Runs outside the schedule are never recovered.
func (r Recover) allowsAttempt(tick time.Time, attempt int) bool {
	return attempt <= r.Max && !tick.IsZero()
}

// maxRecoveries is the maximum number of orphans of a job that wait for a recovery. If there are more, the orphans of the oldest ticks are abandoned.
const maxRecoveries = 100

// newestFirst sorts orphans by their ticks, the newest first.
func newestFirst(orphans []election.Run) {
	slices.SortFunc(orphans, func(x, y election.Run) int { return cmp.Or(y.Tick.Compare(x.Tick), cmp.Compare(x.ID, y.ID)) })
}

// A recoverRules has the settings of a job with Recover that are also used outside the loop.
type recoverRules struct {
	Recover
	slots int // with OverlapReplace the number of slots of the job; otherwise 0
}

func (j *Job) recoverRules() recoverRules {
	if j.Overlap != OverlapReplace {
		return recoverRules{Recover: j.Recover}
	}
	return recoverRules{j.Recover, j.Parallel}
}

// isDisplaced reports whether runs of newer ticks hold all slots of a job with OverlapReplace. A recovery of the orphan would then never get a slot,
// because each free slot goes to a newer tick.
func (r recoverRules) isDisplaced(orphan election.Run, running []election.Run) bool {
	newer := 0
	for _, run := range running {
		if run.Tick.After(orphan.Tick) {
			newer++
		}
	}
	return r.slots > 0 && newer >= r.slots
}
