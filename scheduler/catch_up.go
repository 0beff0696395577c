package scheduler

import (
	"fmt"
	"time"
)

// A CatchUp decides the ticks whose StartDeadline passed because no replica or no server was there. A replica that stood still counts as absent. A
// tick that a replica saw, and had no place for, is not caught up.
type CatchUp struct {
	// Policy defaults to CatchUpNone.
	Policy CatchUpPolicy
	// Window is the maximum age of a tick that is caught up. Defaults to 24h.
	Window time.Duration
}

// A CatchUpPolicy selects the late ticks that still run.
type CatchUpPolicy string

// The catch-up policies. A job that is new to the cluster, or whose schedule was changed, has nothing to catch up.
const (
	CatchUpNone   CatchUpPolicy = "none"   // all are missed; the default
	CatchUpLatest CatchUpPolicy = "latest" // only the newest runs, unless a later tick is due already
	CatchUpAll    CatchUpPolicy = "all"    // all run, oldest first, one after the other; at most the last 1,000
)

func (c CatchUp) withDefaults() CatchUp {
	return CatchUp{orDefault(c.Policy, CatchUpNone), orDefault(c.Window, 24*time.Hour)}
}

func (c CatchUp) findFault(perTick int) string {
	switch {
	case c.Policy != CatchUpNone && c.Policy != CatchUpLatest && c.Policy != CatchUpAll:
		return fmt.Sprintf("CatchUp is %q: it must be %q, %q or %q", c.Policy, CatchUpNone, CatchUpLatest, CatchUpAll)
	case c.Window < 0:
		return fmt.Sprintf("CatchUp.Window is %v: it must not be negative", c.Window)
	case c.Policy != CatchUpNone && perTick > 1:
		return fmt.Sprintf("CatchUp is %q: it must be %q where PerTick is more than 1", c.Policy, CatchUpNone)
	}
	return ""
}
