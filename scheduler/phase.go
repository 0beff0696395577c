package scheduler

import (
	"slices"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
)

// phaseName is where a run is in its life.
type phaseName int

const (
	phaseGranted      phaseName = iota // it has a lease, or needs none
	phaseAwaitingPool                  // it waits for a slot of its pool
	phaseRunning                       // a try goes on
	phaseStopping                      // a try was told to stop
	phaseDead                          // nothing of the last try's work goes on, nor ever will
	phaseRecorded                      // its end is with the journal
	phaseReleased                      // its lease is released, handed over, given back, or left to end by itself
)

func (n phaseName) String() string {
	return [...]string{"granted", "awaiting its pool", "running", "stopping", "dead", "recorded", "released"}[n]
}

// phase is a phaseName with the data that only it has.
type phase struct {
	name phaseName
	try  int   // the attempt that is running
	why  error // it is stopping
}

// phases are all transitions that there are. No run is released before it is dead and recorded, unless its work has never begun: then its grant is given back,
// and there is no record.
var phases = map[phaseName][]phaseName{
	phaseGranted:      {phaseAwaitingPool, phaseRunning},
	phaseAwaitingPool: {phaseRunning, phaseRecorded, phaseReleased},
	phaseRunning:      {phaseStopping, phaseDead},
	phaseStopping:     {phaseDead},
	phaseDead:         {phaseRunning, phaseRecorded, phaseReleased},
	phaseRecorded:     {phaseReleased},
}

// life is the phase of a run. It belongs to the goroutine that leads the run.
type life struct {
	now     phase
	log     hclog.Logger
	refused *atomic.Int32
}

// to moves a run on. A transition that is none is a fault of this program: the run goes on, and the fault is logged.
func (l *life) to(next phase) {
	if slices.Contains(phases[l.now.name], next.name) {
		l.now = next
		return
	}
	l.refused.Add(1)
	l.log.Error("bug: invalid phase change ignored", "phase", l.now.name.String(), "refused", next.name.String())
}
