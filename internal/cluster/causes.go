package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A cause is the kind of a problem. The kinds are in the order of cause and effect: a problem may result from a problem of an earlier kind.
type cause int

const (
	ofRedis cause = iota
	ofReplicas
	ofConfiguration
	ofOthers
	ofNewFailures
	ofOldFailures
	advised
)

// causes maps the codes of problems to their kinds. All other codes are problems of Redis.
var causes = map[string]cause{
	"no_replica": ofReplicas, "replica_lost": ofReplicas, CodeTooFew: ofReplicas, "replica_silent": ofReplicas, "stood_still": ofReplicas, "lease_margin": ofReplicas,
	CodeCannotStart: ofReplicas, CodeClockOff: ofReplicas, CodeSameName: ofReplicas, "nowhere": ofConfiguration,
	CodeConfigRefused: ofConfiguration, CodeConfigDiffers: ofConfiguration, CodeZoneDataDiffers: ofConfiguration,
	CodeHeartbeat: ofOthers, CodePoolFull: ofOthers, codeJobFailed: ofNewFailures, codeJobMissed: ofNewFailures,
}

// The codes of the problems of jobs.
const codeJobFailed, codeJobMissed = "job_failed", "job_missed"

// oldAfter is the age from which a failure counts as old.
const oldAfter = 24 * time.Hour

// causeAt returns the kind of a problem.
func (p Problem) causeAt(now time.Time) cause {
	switch kind := causes[p.Code]; {
	case p.Level == LevelAdvice:
		return advised
	case kind == ofNewFailures && p.Since != nil && now.Sub(*p.Since) >= oldAfter:
		return ofOldFailures
	default:
		return kind
	}
}

// sortByCause sorts problems by kind, then by level. Failures are sorted from new to old.
func sortByCause(list []Problem, now time.Time) {
	rank := []Level{LevelError, LevelWarning, LevelAdvice}
	slices.SortStableFunc(list, func(a, b Problem) int {
		kind := a.causeAt(now)
		order := cmp.Or(cmp.Compare(kind, b.causeAt(now)), cmp.Compare(slices.Index(rank, a.Level), slices.Index(rank, b.Level)))
		if order == 0 && (kind == ofNewFailures || kind == ofOldFailures) {
			return b.Since.Compare(*a.Since)
		}
		return order
	})
}

// mostGrouped is the maximum number of jobs that a group of old failures names.
const mostGrouped = 10

// Grouped returns the problems for a display of one screen. All old failures of jobs are combined into one problem, with the worst of their levels.
func (st *Status) Grouped() []Problem {
	old := slices.IndexFunc(st.Problems, func(p Problem) bool { return p.causeAt(st.Now) == ofOldFailures })
	if old < 0 {
		return st.Problems
	}
	n := 0
	for _, p := range st.Problems[old:] {
		if p.causeAt(st.Now) == ofOldFailures {
			n++
		}
	}
	if n == 1 {
		return st.Problems
	}
	group := Problem{Level: st.Problems[old].Level, Code: st.Problems[old].Code, Message: fmt.Sprintf("%d jobs have failed for more than a day: ", n)}
	for i, p := range st.Problems[old : old+n] {
		switch {
		case i == mostGrouped:
			group.Message += fmt.Sprintf(" and %d more; cronclave status -o wide lists them", n-i)
		case i > mostGrouped:
		case i > 0:
			group.Message += ", " + p.Job
		default:
			group.Message += p.Job
		}
	}
	return slices.Concat(st.Problems[:old], []Problem{group}, st.Problems[old+n:])
}
