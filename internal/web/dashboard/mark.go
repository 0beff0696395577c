package dashboard

import (
	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
)

// A mark shows a state by a sign, a shape and a colour. The sign alone suffices to recognize the state. The style sheet defines the shape and the colour for
// each class.
type mark struct{ Class, Sign string }

var (
	markOK      = mark{"ok", "✓"}
	markBad     = mark{"bad", "✗"}
	markWarning = mark{"warn", "!"}
	markRunning = mark{"run", "▸"}
	markNotRun  = mark{"off", "–"} // skipped or canceled; also a draining replica
	markAdvice  = mark{"note", "·"}
	markComing  = mark{"next", "○"}
)

var levelMarks = map[cluster.Level]mark{cluster.LevelError: markBad, cluster.LevelWarning: markWarning, cluster.LevelAdvice: markAdvice}

var stateMarks = map[cluster.ReplicaState]mark{cluster.ReplicaUp: markOK, cluster.ReplicaDraining: markNotRun, cluster.ReplicaUnable: markBad, cluster.ReplicaSilent: markWarning}

// markOf returns the mark of an outcome. An outcome that only a newer version defines is a warning.
func markOf(outcome string) mark {
	switch outcome {
	case journal.OutcomeOK:
		return markOK
	case journal.OutcomeRunning:
		return markRunning
	case journal.OutcomeSkipped, journal.OutcomeCanceled:
		return markNotRun
	case journal.OutcomeFailed, journal.OutcomeTimeout, journal.OutcomeLost, journal.OutcomeAbandoned:
		return markBad
	}
	return markWarning
}
