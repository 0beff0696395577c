package operator

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

// Problem is something that a person should look at.
type Problem struct {
	// Code is that of a warning, or job_failed or replica_lost.
	Code string `json:"code"`
	// Job or Replica is whose it is; "" where it is the cluster's.
	Job     string     `json:"job,omitempty"`
	Replica string     `json:"replica,omitempty"`
	Since   *time.Time `json:"since,omitempty"`
	Message string     `json:"message"`
	// Severe is set where runs have failed, or a replica is gone.
	Severe bool `json:"severe"`
}

// problems lists failures first, and then the warnings.
func (st *Status) problems() []Problem {
	list := []Problem{}
	for _, w := range st.Warnings {
		if w.Code == "no_replica" {
			list = append(list, Problem{Code: w.Code, Message: w.Message, Severe: true})
		}
	}
	for _, j := range st.Jobs {
		if r := lastOutcome(j.Recent); r != nil && slices.Contains(Failures(), r.Outcome) {
			list = append(list, Problem{Code: "job_failed", Job: j.Name, Since: &r.Finished, Message: failure(j, *r), Severe: true})
		}
	}
	for _, l := range st.Lost {
		list = append(list, Problem{Code: "replica_lost", Replica: l.Name, Since: &l.Seen, Severe: true,
			Message: fmt.Sprintf("replica %s disappeared without a word; look at its machine, or start a replica with this name", l.Name)})
	}
	for _, w := range st.Warnings {
		if !slices.Contains([]string{"no_replica", "embedded", "settings_hidden"}, w.Code) { // the last two ask for nothing
			list = append(list, Problem{Code: w.Code, Message: w.Message})
		}
	}
	return list
}

// lastOutcome is the newest record of a run that is over, or of a tick without one.
func lastOutcome(newestFirst []journal.Record) *journal.Record {
	for i, r := range newestFirst {
		if r.Outcome != journal.OutcomeRunning && !r.Retried {
			return &newestFirst[i]
		}
	}
	return nil
}

func failure(j Job, r journal.Record) string {
	text := fmt.Sprintf("job %s %s", j.Name, r.Outcome)
	if r.Replica != "" && !r.Started.IsZero() {
		text += " on " + r.Replica
	}
	if r.Reason != "" {
		text += ": " + FirstLine(r.Reason, 60)
	}
	n, failed := 0, 0
	for _, r := range j.Recent {
		if r.Outcome == journal.OutcomeRunning || r.Retried {
			continue
		}
		n++
		if slices.Contains(Failures(), r.Outcome) {
			failed++
		}
	}
	return text + fmt.Sprintf(", %d of the last %d", failed, n)
}

// StatusRequest chooses the jobs of a status; its problems are those of the cluster in any case. Jobs have to match all that is set.
type StatusRequest struct {
	// Job is one job by its name.
	Job string
	// Failed, Running and Paused leave the jobs whose last outcome is a failure, that run, that are paused.
	Failed, Running, Paused bool
	// Tag is one that the jobs have. Match is a pattern for their names, as in a shell.
	Tag, Match string
}

// choose leaves the jobs that a request asks for.
func (st *Status) choose(req StatusRequest) error {
	if _, err := path.Match(req.Match, ""); err != nil {
		return refuse(ErrInvalid, "pattern %q: it is faulty; write one such as 'backup-*'", req.Match)
	}
	known := make([]string, len(st.Jobs))
	for i, j := range st.Jobs {
		known[i] = j.Name
	}
	st.Jobs = slices.DeleteFunc(st.Jobs, func(j Job) bool { return !req.includes(j) })
	if req.Job != "" && len(st.Jobs) == 0 && !slices.Contains(known, req.Job) {
		return UnknownJob(req.Job, known)
	}
	return nil
}

func (q StatusRequest) includes(j Job) bool {
	last := lastOutcome(j.Recent)
	matched, _ := path.Match(q.Match, j.Name)
	switch {
	case q.Job != "" && j.Name != q.Job,
		q.Failed && (last == nil || !slices.Contains(Failures(), last.Outcome)),
		q.Running && len(j.Holders) == 0,
		q.Paused && !j.Paused,
		q.Tag != "" && !slices.Contains(j.Tags, q.Tag),
		q.Match != "" && !matched && !strings.Contains(j.Name, q.Match):
		return false
	}
	return true
}
