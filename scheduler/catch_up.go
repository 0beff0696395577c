package scheduler

import (
	"fmt"
	"time"
)

// CatchUp decides the ticks whose StartDeadline has passed because no replica, or no server, was there. A replica that stood still counts as absent.
// A tick that a replica has seen, and had no place for, is not caught up.
type CatchUp struct {
	// Policy defaults to CatchUpNone.
	Policy CatchUpPolicy
	// Window is how old a tick may be that is caught up. Defaults to 24h.
	Window time.Duration
}

// CatchUpPolicy says which of these ticks run.
type CatchUpPolicy string

// The policies of catching up. A schedule that a reload or an edit has begun anew has nothing to catch up, nor has a job that is new to the cluster.
const (
	CatchUpNone   CatchUpPolicy = "none"   // they are missed. The default
	CatchUpLatest CatchUpPolicy = "latest" // the last one is run, unless a later one is due already
	CatchUpAll    CatchUpPolicy = "all"    // all are run, oldest first, one after the other; at most the last 1,000
)

func (c CatchUp) withDefaults() CatchUp {
	return CatchUp{orDefault(c.Policy, CatchUpNone), orDefault(c.Window, 24*time.Hour)}
}

func (c CatchUp) fault(perTick int) string {
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
