package scheduler

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// TestPhases: of all pairs of phases exactly those that the rules name are a transition. Any other is refused, and leaves the run in its phase.
func TestPhases(t *testing.T) {
	allowed := map[[2]phaseName]bool{
		{phaseGranted, phaseAwaitingPool}:  true, // the job has a pool
		{phaseGranted, phaseRunning}:       true, // it has none
		{phaseAwaitingPool, phaseRunning}:  true, // a slot was free
		{phaseAwaitingPool, phaseRecorded}: true, // none was in time
		{phaseAwaitingPool, phaseReleased}: true, // the replica drains: the tick is given back
		{phaseRunning, phaseStopping}:      true,
		{phaseRunning, phaseDead}:          true, // it ended by itself
		{phaseStopping, phaseDead}:         true,
		{phaseDead, phaseRunning}:          true, // it is tried again
		{phaseDead, phaseRecorded}:         true,
		{phaseDead, phaseReleased}:         true, // its work has never begun
		{phaseRecorded, phaseReleased}:     true,
	}
	for from := phaseGranted; from <= phaseReleased; from++ {
		for to := phaseGranted; to <= phaseReleased; to++ {
			l := life{now: phase{name: from}, log: hclog.NewNullLogger(), refused: new(atomic.Int32)}
			l.moveTo(phase{name: to, why: errors.New("why")})
			moved := l.refused.Load() == 0
			if moved != allowed[[2]phaseName{from, to}] || moved && l.now.name != to || !moved && l.now.name != from {
				t.Errorf("from %v to %v: now %v, %d refused", from, to, l.now.name, l.refused.Load())
			}
		}
	}
}
