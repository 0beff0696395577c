package operator

import (
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

// Streak is the failures of a job since it was last ok. Its JSON is part of the contract with users.
type Streak struct {
	Since time.Time `json:"since"` // the end of the first
	Count int       `json:"count"`
	// AtLeast reports whether Count is a lower bound and Since may be too late: no ok is known, replicas of an earlier version recorded failures, or an ok was
	// reported late.
	AtLeast bool       `json:"at_least,omitempty"`
	LastOK  *time.Time `json:"last_ok,omitempty"` // nil if none is known
}

// String returns the end of a sentence about the newest failure; "" if it is the only one, and no ok is known.
func (s Streak) String() (text string) {
	switch {
	case s.AtLeast:
		text = fmt.Sprintf("; at least %d in a row", s.Count)
	case s.Count > 1:
		text = fmt.Sprintf("; %d in a row", s.Count)
	}
	if s.LastOK != nil {
		text += "; last ok at " + s.LastOK.UTC().Format(time.RFC3339)
	}
	return text
}

// streakOf returns the streak that a job's newest records show. If none of them is ok it may have begun before them, and kept has its beginning, unless
// replicas of an earlier version recorded that. A job with less than most records has no others.
func streakOf(newestFirst []journal.Record, kept journal.Streak, most int) *Streak {
	var s Streak
	for _, r := range newestFirst {
		switch {
		case r.Retried:
		case r.Outcome == journal.OutcomeOK:
			s.LastOK = &r.Finished
			return &s
		case r.Failed():
			s.Since = r.Finished
			s.Count++
		}
	}
	if !kept.LastOK.IsZero() {
		s.LastOK = &kept.LastOK
	}
	missed := kept.Count < s.Count || kept.Since.After(s.Since)
	if !missed {
		s.Since, s.Count = kept.Since, kept.Count
	}
	s.AtLeast = kept.AtLeast || len(newestFirst) >= most && (missed || kept.LastOK.IsZero())
	return &s
}
