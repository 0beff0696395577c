package dashboard

import (
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/operator"
)

// A mark shows a state by a sign, a shape and a colour. The sign alone is sufficient. The style sheet has a shape and a colour for each class.
type mark struct{ Class, Sign string }

var (
	markOK      = mark{"ok", "✓"}
	markBad     = mark{"bad", "✗"}
	markWarning = mark{"warn", "!"}
	markRunning = mark{"run", "▸"}
	markNotRun  = mark{"off", "–"} // by a policy, or at the request of a user
	markAdvice  = mark{"note", "·"}
	markComing  = mark{"next", "○"}
)

var levelMarks = map[operator.Level]mark{operator.LevelError: markBad, operator.LevelWarning: markWarning, operator.LevelAdvice: markAdvice}

var stateMarks = map[operator.ReplicaState]mark{operator.ReplicaUp: markOK, operator.ReplicaDraining: markNotRun, operator.ReplicaUnable: markBad, operator.ReplicaSilent: markWarning}

// markOf returns the mark of an outcome. An unknown outcome, from a newer version, is a warning.
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
