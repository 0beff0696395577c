package console

import (
	"strings"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
)

// A mark is the sign and the colour of an outcome or a level. The sign alone suffices to recognize it, so output may be without colours.
type mark struct{ sign, colour string }

var (
	plain   = mark{}
	good    = mark{"✓", "32"}
	bad     = mark{"✗", "31"}
	warning = mark{"!", "33"}
	running = mark{"▸", "36"}
	notRun  = mark{"-", "2"} // skipped by a policy, or canceled by a user
	advice  = mark{"·", ""}
)

var levels = map[cluster.Level]mark{cluster.LevelError: bad, cluster.LevelWarning: warning, cluster.LevelAdvice: advice}

// markOf returns the mark of an outcome. An outcome that only a newer version defines is a warning.
func markOf(outcome string) mark {
	switch outcome {
	case journal.OutcomeOK:
		return good
	case journal.OutcomeRunning:
		return running
	case journal.OutcomeSkipped, journal.OutcomeCanceled:
		return notRun
	case journal.OutcomeFailed, journal.OutcomeTimeout, journal.OutcomeLost, journal.OutcomeAbandoned:
		return bad
	}
	return warning
}

// signStrip returns the signs of records, with the latest record on the right.
func signStrip(newestFirst []journal.Record) string {
	var signs strings.Builder
	for i := len(newestFirst) - 1; i >= 0; i-- {
		signs.WriteString(markOf(newestFirst[i].Outcome).sign)
	}
	if signs.Len() == 0 {
		return "-"
	}
	return signs.String()
}
