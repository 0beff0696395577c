package dashboard

import (
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/journal"
)

// lateJobs returns the jobs whose newest tick is late, with a description: the tick was missed, its run started late, or its run is waiting for a slot of a
// pool.
func lateJobs(st *cluster.Status) map[string]string {
	jobs := map[string]string{}
	bad := failingJobs(st)
	for _, j := range st.Jobs {
		if j.Last == nil {
			continue
		}
		jitter := time.Duration(j.JitterMS) * time.Millisecond
		if by := console.Late(*j.Last); by > jitter && len(j.After) == 0 { // a job with `after` starts when its parents have ended
			jobs[j.Name] = "began " + console.Span(by) + " after its tick"
		}
		if bad[j.Name] > 0 && j.LastEnd != nil && j.LastEnd.Outcome == journal.OutcomeMissed {
			jobs[j.Name] = "missed its tick"
		}
	}
	for _, p := range st.Pools {
		for _, w := range p.Waiting {
			if w.Job != "" {
				jobs[w.Job] = "waits for pool " + cleanText(p.Name)
			}
		}
	}
	return jobs
}

// LateMark returns the mark of a job that is late.
func (*overview) LateMark() mark { return markWarning }
