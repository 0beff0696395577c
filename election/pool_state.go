package election

import (
	"context"

	"github.com/cronclave/cronclave/internal/lease/engine"
)

// InspectPools returns the held slots of pools, in the field Running of each state. The states do not include waiting clients.
func (e *Elector) InspectPools(ctx context.Context, pools []string) []State {
	requests := make([]engine.InspectRequest, len(pools))
	for i, pool := range pools {
		requests[i] = engine.InspectRequest{Lock: PoolLock(pool)}
	}
	states := make([]State, len(pools))
	for i, s := range e.locks.Inspect(ctx, requests) {
		states[i] = State{Now: s.Now, Running: runsOf(s.Rows), Err: Plain(s.Err)}
	}
	return states
}
