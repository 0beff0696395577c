package cluster

import (
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

// A Streak describes the failures of a job since its last success. Its JSON is part of the contract with users.
type Streak struct {
	Since time.Time `json:"since"` // end of the first failure
	Count int       `json:"count"`
	// AtLeast is set if Count is a lower bound and Since may be too late: no success is known, replicas of an older version recorded failures, or a success was
	// reported late.
	AtLeast bool       `json:"at_least,omitempty"`
	LastOK  *time.Time `json:"last_ok,omitempty"` // end of the last success; nil if none is known
}

// String returns text to append to a sentence about the newest failure, such as "; 3 in a row". It is "" if there is only one failure and no success is known.
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

// streakOf returns the streak of a job from its newest records. most is the maximum number of records that were read. If the records contain no success, the
// streak may have begun before them. Its start then comes from kept, unless replicas of an older version recorded the start. If there are fewer than most
// records, the job has no others.
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
