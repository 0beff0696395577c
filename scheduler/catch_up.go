package scheduler

// CatchUp: the outcome of ticks that no replica could decide before their start deadline, since no replica or no server was there.
//
//	none    they are missed.
//	latest  the newest one runs, unless a later one has come due.
//	all     all of them run, oldest first, one after the other.
//
// None runs that is older than the job's CatchUpWindow. A tick that a replica has seen, and had no place for, is not caught up.

import (
	"fmt"
)

// CatchUp decides the ticks whose StartDeadline has passed because no replica, or no server, was there. A replica that stood still counts as absent.
type CatchUp string

// The policies of catching up. A schedule that a reload or an edit has begun anew has nothing to catch up, nor has a job that is new to the cluster.
const (
	CatchUpNone   CatchUp = "none"   // they are missed. The default
	CatchUpLatest CatchUp = "latest" // the last one is run, unless a later one is due already
	CatchUpAll    CatchUp = "all"    // all are run, oldest first, one after the other; at most the last 1,000
)

func (j *Job) catchUpFault() string {
	switch {
	case j.CatchUp != CatchUpNone && j.CatchUp != CatchUpLatest && j.CatchUp != CatchUpAll:
		return fmt.Sprintf("CatchUp is %q: it must be %q, %q or %q", j.CatchUp, CatchUpNone, CatchUpLatest, CatchUpAll)
	case j.CatchUpWindow < 0:
		return fmt.Sprintf("CatchUpWindow is %v: it must not be negative", j.CatchUpWindow)
	case j.CatchUp != CatchUpNone && j.PerTick > 1:
		return fmt.Sprintf("CatchUp is %q: it must be %q where PerTick is more than 1", j.CatchUp, CatchUpNone)
	}
	return ""
}
