package scheduler

import (
	"fmt"
	"time"

	"github.com/cronclave/cronclave/election"
)

// maxCounted bounds how many ticks of a gap are counted, besides those that are recorded one by one: a job of each second has six
// hundred thousand in a week.
const maxCounted = 10_000

// afterwards is the verdict on a tick that nobody was there to decide.
func afterwards(st election.State, at time.Time, reason string) string {
	if st.Pause.Covers(at) {
		return st.Pause.Outcome
	}
	return string(Missed) + " " + reason
}

// summarize records together the ticks of a gap up to one, none of which ran: the record is that of the first of them, which is the
// same whoever writes it and however far the gap has come, and its output has their number.
func (s *Scheduler) summarize(t *task, st election.State, newest time.Time, verdict string) (summary string) {
	n := 0
	for at := newest; at.After(st.Before) && n < maxCounted; at = t.spec.Prev(at) {
		n++
	}
	more := ""
	if n == maxCounted {
		more = "at least "
	}
	first := t.spec.Next(st.Before)
	r := tickRecord(t.Name, first, verdict, s.cfg.Replica, st.Now)
	summary = fmt.Sprintf("%s%d ticks, from %s to %s", more, n, first.UTC().Format(time.RFC3339), newest.UTC().Format(time.RFC3339))
	if n > 1 {
		r.Ticks = n
		r.Output = []byte("one record for " + summary)
	}
	s.exec.recorder.add(r)
	return summary
}
