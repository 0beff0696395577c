package dashboard

import (
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/operator"
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

var levelMarks = map[operator.Level]mark{operator.LevelError: markBad, operator.LevelWarning: markWarning, operator.LevelAdvice: markAdvice}

var stateMarks = map[operator.ReplicaState]mark{operator.ReplicaUp: markOK, operator.ReplicaDraining: markNotRun, operator.ReplicaUnable: markBad, operator.ReplicaSilent: markWarning}

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
