package scheduler

// Recoveries: a tick whose run was interrupted runs again, on any replica.
//
// A run is interrupted when its replica dies or drains, or when its lease is lost. It leaves an orphan in the job's lock. Each replica that sees the
// orphan claims its recovery, and one of them is granted it: attempt n+1, with a greater token and a run id of its own. There is no recovery of a run
// that had succeeded, that was canceled or replaced, that was outside the schedule, or whose attempts are used up.

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/cronclave/cronclave/election"
)

// Recover runs a tick again if the holder of its run died, drained or lost its lease, on another replica if there is one. The tick then runs at least
// once instead of at most once. Each attempt has a greater token, a run id of its own, and the trigger "recovery". The zero value is no recovery.
type Recover struct {
	// Max is the maximum number of attempts after the first; at most 100. It shares one counter with the tries of [Retry].
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

// maxRecoveries bounds the orphans of a job that wait for a recovery. Beyond it, the orphans of the oldest ticks are abandoned.
const maxRecoveries = 100

// newestFirst sorts orphans by their ticks. The first maxRecoveries may wait for a recovery.
func newestFirst(orphans []election.Run) {
	slices.SortFunc(orphans, func(x, y election.Run) int { return cmp.Or(y.Tick.Compare(x.Tick), cmp.Compare(x.ID, y.ID)) })
}

// A recoverRules has the settings of a job with Recover that other goroutines than the loop need.
type recoverRules struct {
	Recover
	slots int // with OverlapReplace the slots of the job, which newer ticks take from older ones; otherwise 0
}

func (j *Job) recoverRules() recoverRules {
	if j.Overlap != OverlapReplace {
		return recoverRules{Recover: j.Recover}
	}
	return recoverRules{j.Recover, j.Parallel}
}

// isDisplaced reports whether runs of newer ticks, which would have replaced the run of an orphan, hold all slots. The orphan would wait in vain, since
// each free slot goes to a tick that is newer still.
func (r recoverRules) isDisplaced(orphan election.Run, running []election.Run) bool {
	newer := 0
	for _, run := range running {
		if run.Tick.After(orphan.Tick) {
			newer++
		}
	}
	return r.slots > 0 && newer >= r.slots
}
