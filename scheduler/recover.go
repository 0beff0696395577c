package scheduler

// Recover: a tick whose run was interrupted runs again, on any replica.
//
// A run is interrupted when its replica dies or drains, or when its lease is lost. It leaves an orphan in the job's lock. Each
// replica that sees the orphan claims its recovery, and one is granted it: attempt n+1, with a greater token and a run id of its own.
// There is no recovery of a run that had succeeded, that was canceled or replaced, that was outside the schedule, or whose attempts are used up.

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/cronclave/cronclave/election"
)

// Recover has a tick run again, on another replica if there is one, when its holder died, was drained while running it, or lost its lease: at least once
// instead of at most once. Each attempt has a greater token, a run id of its own, and the trigger "recovery". The zero value is none.
type Recover struct {
	// Max is how many attempts there are at most beyond the first; 100 at most. They are one counter with those of [Retry].
	Max int
}

func (r Recover) fault(perTick int) string {
	switch {
	case r.Max < 0 || r.Max > 100:
		return fmt.Sprintf("Recover.Max is %d: it must be from 0 to 100", r.Max)
	case r.Max > 0 && perTick > 1:
		return fmt.Sprintf("Recover needs PerTick 1, and it is %d: a recovery would not know whose share of the tick it has", perTick)
	}
	return ""
}

// allows returns whether a tick may have one more attempt after one that was interrupted. No other replica waits for a run outside the schedule.
func (r Recover) allows(tick time.Time, attempt int) bool { return attempt <= r.Max && !tick.IsZero() }

// maxRecoveries bounds the orphans of a job that wait for a recovery: of more, those of the oldest ticks are abandoned.
const maxRecoveries = 100

// newestFirst puts orphans in the order in which they may wait for a recovery.
func newestFirst(orphans []election.Run) {
	slices.SortFunc(orphans, func(x, y election.Run) int { return cmp.Or(y.Tick.Compare(x.Tick), cmp.Compare(x.ID, y.ID)) })
}

// recoverRules are the settings of a job with Recover that other goroutines than the loop need.
type recoverRules struct {
	Recover
	slots int // which newer ticks take from older ones, where they replace them; else 0
}

func (j *Job) recoverRules() recoverRules {
	if j.Overlap != OverlapReplace {
		return recoverRules{Recover: j.Recover}
	}
	return recoverRules{j.Recover, j.Parallel}
}

// displaced returns whether runs of newer ticks have all slots, which would have replaced an orphan's: it would wait for one in vain, as each goes to a tick that
// is newer still.
func (r recoverRules) displaced(orphan election.Run, running []election.Run) bool {
	newer := 0
	for _, run := range running {
		if run.Tick.After(orphan.Tick) {
			newer++
		}
	}
	return r.slots > 0 && newer >= r.slots
}
