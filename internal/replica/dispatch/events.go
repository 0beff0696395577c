package dispatch

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/notify"
)

// A Problem is a state of the cluster, or of a job, that lasts.
type Problem struct {
	// Name is the name of the event that its beginning causes. Subject is the job, the replica or the pool; "" if there is only one.
	Name, Subject string
	// Job is the job that has the problem; "" for a problem of the cluster.
	Job   string
	Since time.Time
	Text  string
	// Over is set for a problem that is known only when it is over. Its end causes no event.
	Over bool
	// Unsettled is set for a problem that has not lasted for long enough to cause an event, or that may be over. If its beginning was queued, it is not over yet.
	Unsettled bool
}

func (p *Problem) key() string { return strings.TrimSpace(p.Name + " " + p.Subject) }

// failureKey is the key of a failing job among the open problems of a target.
func failureKey(job string) string { return "failure " + job }

func failedJob(key string) (job string, failed bool) { return strings.CutPrefix(key, "failure ") }

// requestsFor returns what records add to the queues of the targets, by target.
func requestsFor(records []journal.Posted) map[string]*journal.QueueRequest {
	requests := map[string]*journal.QueueRequest{}
	for i := range records {
		r := &records[i].Record
		for _, name := range records[i].Targets {
			if requests[name] == nil {
				requests[name] = &journal.QueueRequest{}
			}
			e := recordEvent(r)
			one := encodeEvent(e)
			if e.Name != notify.Started { // which expires by itself
				one.At = e.At
			}
			if r.Failed() {
				one.Opens, one.OpensAt = failureKey(r.Job), e.At
			}
			requests[name].Add = append(requests[name].Add, one)
		}
	}
	return requests
}

// recordEvent returns the event of a record. The record of the end of a run may be written twice, first by another replica as abandoned. If both are failures, they
// are one event. A success after it is another event, because the failure was wrong.
func recordEvent(r *journal.Record) notify.Event {
	kind := "end"
	switch {
	case r.Outcome == journal.OutcomeRunning:
		kind = fmt.Sprint("start ", r.Attempt)
	case r.Failed():
		kind = "end failed"
	}
	plain := *r
	plain.Output = nil
	e := notify.Event{ID: eventID(kind, r.Job, r.RunID), Name: string(r.Outcome), Job: r.Job, At: r.Finished, Text: recordText(r), Run: &plain}
	if e.At.IsZero() {
		e.At = r.When()
	}
	return e
}

// recordText describes a record in one line.
func recordText(r *journal.Record) string {
	var b strings.Builder
	switch b.WriteString(string(r.Outcome)); {
	case r.Token == 0 && !r.Tick.IsZero():
		b.WriteString(": the tick of " + r.Tick.UTC().Format(time.RFC3339))
	case r.DurationMS != nil:
		fmt.Fprintf(&b, " after %v", time.Duration(*r.DurationMS)*time.Millisecond)
	}
	if r.Token != 0 {
		b.WriteString(" on " + r.Replica)
	}
	if r.Attempt > 1 {
		fmt.Fprintf(&b, ", attempt %d", r.Attempt)
	}
	if why := cluster.ReasonText(*r); why != "" {
		b.WriteString(": " + why)
	}
	return b.String()
}

// changesFor returns the beginnings and ends of problems that are to be queued for a target; nil if there are none.
func changesFor(cfg *config.Config, t config.Notify, open map[string]time.Time, problems []Problem, fixed map[string]time.Time, now time.Time) *journal.QueueRequest {
	var r journal.QueueRequest
	on := map[string]bool{}
	for _, p := range problems {
		key := p.key()
		on[key] = true
		since, known := open[key]
		if p.Unsettled || !concerns(cfg, t, p) || known && (!p.Over || !p.Since.After(since)) {
			continue
		}
		e := notify.Event{ID: eventID(key, p.Since.Format(time.RFC3339Nano)), Name: p.Name, Problem: key, Job: p.Job, At: p.Since, Since: p.Since, Text: p.Text}
		one := encodeEvent(e)
		one.Opens, one.OpensAt = key, p.Since
		r.Add = append(r.Add, one)
		if p.Over { // the key only has the time of the last one
			r.Closed = append(r.Closed, key)
		}
	}
	for key, since := range open {
		job, failed := failedJob(key)
		name, subject, _ := strings.Cut(key, " ")
		switch at, ok := fixed[job]; {
		case failed && ok:
			addEnd(&r, t, key, notify.Event{Job: job, At: latest(at, since), Since: since, Text: "ok again"})
		case failed || on[key] || name == notify.Redis:
		case name == notify.ReplicaLost && isForgotten(since, problems, now):
			r.Closed = append(r.Closed, key)
		default:
			e := notify.Event{At: now, Since: since, Text: "over: " + key}
			if slices.Contains([]string{notify.Slow, notify.Stale, notify.Overdue}, name) {
				e.Job = subject
			}
			addEnd(&r, t, key, e)
		}
	}
	if len(r.Add)+len(r.Closed) == 0 {
		return nil
	}
	return &r
}

// addEnd adds the end of a problem. A target without `fixed` gets no event.
func addEnd(r *journal.QueueRequest, t config.Notify, key string, e notify.Event) {
	r.Closed = append(r.Closed, key)
	if slices.Contains(t.On, notify.Fixed) {
		e.ID, e.Name, e.Problem = eventID(notify.Fixed, key, e.Since.Format(time.RFC3339Nano)), notify.Fixed, key
		r.Add = append(r.Add, encodeEvent(e))
	}
}

// isForgotten reports whether the list of lost replicas may have dropped a replica that is still away: for its age, or to make room for others that were lost later.
func isForgotten(since time.Time, problems []Problem, now time.Time) bool {
	later := slices.DeleteFunc(slices.Clone(problems), func(p Problem) bool { return p.Name != notify.ReplicaLost || p.Since.Before(since) })
	return len(later) >= journal.MaxLost || now.Sub(since) >= journal.RememberLost
}

// concerns reports whether a target gets the events of a problem. The problem of a job concerns only the targets of the job.
func concerns(cfg *config.Config, t config.Notify, p Problem) bool {
	if !slices.Contains(t.On, p.Name) {
		return false
	}
	if p.Job == "" {
		return true
	}
	job := cfg.Job(p.Job)
	return job != nil && slices.Contains(job.Notify, t.Name)
}

// eventID returns the id of an event, which is the same on each replica and in each attempt.
func eventID(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}

func encodeEvent(e notify.Event) journal.Notification {
	text, err := json.Marshal(e)
	if err != nil { // not reached: an event has only texts, numbers and sound times
		text = []byte("{}")
	}
	return journal.Notification{ID: e.ID, Job: e.Job, Event: text}
}
