package dashboard

import (
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/journal"
)

// records is a table of runs, and of ticks without a run.
type records struct {
	Label   string
	Named   bool // each line contains the name of the job
	Records []line
}

// A line is a row of the table.
type line struct {
	Mark          mark
	Outcome, Href string
	Job, JobHref  string
	Began         moment
	Tick, TickISO string
	Took, Place   string
	Token         int64
	Why, WhyHref  string
}

func recordsOf(now time.Time, label string, list []journal.Record) records {
	t := records{Label: label}
	for _, r := range list {
		t.Records = append(t.Records, lineOf(now, r))
	}
	return t
}

func lineOf(now time.Time, r journal.Record) line {
	l := line{Mark: markOf(r.Outcome), Job: cleanText(r.Job), JobHref: jobPath(r.Job), Outcome: cleanText(r.Outcome), Href: runPath(r), Began: momentOf(now, r.When()), Took: "–", Place: placeOf(r), Token: r.Token, Why: cleanText(console.WhyInFull(r))}
	if d, ok := durationOf(now, r); ok {
		l.Took = durationText(d)
	}
	if !r.Tick.IsZero() {
		l.Tick, l.TickISO, l.WhyHref = r.Tick.UTC().Format("2006-01-02 15:04:05"), r.Tick.UTC().Format(time.RFC3339), whyPath(r.Job, r.Tick)
	}
	return l
}

// placeOf returns the replica of a record and, if a run held a slot, the slot.
func placeOf(r journal.Record) string {
	switch {
	case r.Replica == "":
		return "–"
	case r.Slot == nil:
		return cleanText(r.Replica)
	}
	return fmt.Sprintf("%s/%d", cleanText(r.Replica), *r.Slot)
}

// A detail is a name with a value.
type detail struct{ Name, Value string }
