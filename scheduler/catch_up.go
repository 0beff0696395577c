package scheduler

import (
	"fmt"
	"time"
)

// A CatchUp selects the ticks that still run after their StartDeadline. Only ticks that were late because no replica was up, or Redis did not answer,
// are caught up. A paused replica counts as down. A tick for which the replicas had no free place is not caught up.
type CatchUp struct {
	// Policy selects the ticks. Defaults to CatchUpNone.
	Policy CatchUpPolicy
	// Window is the maximum age of these ticks. Defaults to 24h.
	Window time.Duration
}

// A CatchUpPolicy selects the late ticks that still run.
type CatchUpPolicy string

// The catch-up policies. A job that is new to the cluster, or whose schedule was changed, has nothing to catch up.
const (
	CatchUpNone   CatchUpPolicy = "none"   // all late ticks are missed; the default
	CatchUpLatest CatchUpPolicy = "latest" // only the newest late tick runs, unless a later tick is already due
	CatchUpAll    CatchUpPolicy = "all"    // all late ticks run one after the other, oldest first; at most the last 1,000
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
