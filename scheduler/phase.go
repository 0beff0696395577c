package scheduler

import (
	"slices"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
)

// A phaseName is a stage in the life of a run.
type phaseName int

const (
	phaseGranted      phaseName = iota // the run has a lease, or needs none
	phaseAwaitingPool                  // the run waits for a slot of its pool
	phaseRunning                       // a try is under way
	phaseStopping                      // the current try was asked to stop
	phaseDead                          // the last try's work has ended, or can never begin
	phaseRecorded                      // the end of the run is in the journal
	phaseReleased                      // the lease is released, handed over or given back, or expires
)

func (n phaseName) String() string {
	return [...]string{"granted", "awaiting its pool", "running", "stopping", "dead", "recorded", "released"}[n]
}

// A phase is a stage in the life of a run, with its data.
type phase struct {
	name phaseName
	try  int   // the attempt, while running
	why  error // the cause, while stopping
}

// phases has all valid transitions. A run is released only after it is dead and recorded. The exception is a run whose work never began: its grant is
// given back without a record.
var phases = map[phaseName][]phaseName{
	phaseGranted:      {phaseAwaitingPool, phaseRunning},
	phaseAwaitingPool: {phaseRunning, phaseRecorded, phaseReleased},
	phaseRunning:      {phaseStopping, phaseDead},
	phaseStopping:     {phaseDead},
	phaseDead:         {phaseRunning, phaseRecorded, phaseReleased},
	phaseRecorded:     {phaseReleased},
}

// A life holds the current phase of a run. It belongs to the goroutine that executes the run.
type life struct {
	now     phase
	log     hclog.Logger
	refused *atomic.Int32
}

// moveTo moves a run to the next phase. An invalid transition is a bug of this program: it is logged, and the run goes on.
func (l *life) moveTo(next phase) {
	if slices.Contains(phases[l.now.name], next.name) {
		l.now = next
		return
	}
	l.refused.Add(1)
	l.log.Error("bug: invalid phase change ignored", "phase", l.now.name.String(), "refused", next.name.String())
}
