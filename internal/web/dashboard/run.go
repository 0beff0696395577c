package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/journal"
)

// mostOutput is the maximum number of bytes of output on a page. If there is more output, the page shows its end.
const mostOutput = 256 << 10

type output struct {
	ID, Title, Href   string
	Text, Empty, Note string
	Failed, Running   bool
}

type runPage struct {
	Job, JobHref, ID string
	URL              string // path of the job; forms are sent to paths below it
	Mark             mark
	Facts            []detail
	Explanation      *explanation
	Output           output
	Running          bool
}

func (h *handler) showRun(r *http.Request) (*page, error) {
	ctx, job, id := r.Context(), r.PathValue("job"), r.PathValue("id")
	now, err := h.operator.Now(ctx)
	if err != nil {
		return nil, err
	}
	found, err := h.operator.Logs(ctx, cluster.LogsRequest{Job: job, Run: id})
	if err != nil {
		return nil, err
	}
	record := found[0]
	st, err := h.readStatus(ctx)
	if err != nil {
		return nil, err
	}
	p := pageOf("run", fmt.Sprintf("%s %s", cleanText(job), cleanText(record.Outcome)), st)
	p.Now = now
	body := &runPage{Job: cleanText(job), JobHref: jobPath(job), URL: jobPath(job), ID: cleanText(id), Mark: markOf(record.Outcome), Facts: factsOfRun(now, record), Running: record.Outcome == journal.OutcomeRunning}
	if !record.Tick.IsZero() {
		if s, err := h.operator.Why(ctx, job, record.Tick.UTC().Format(time.RFC3339)); err == nil {
			body.Explanation = explanationOf(now, s)
		}
	}
	if body.Running {
		p.Every = renewMS
	}
	body.Output, err = h.outputOf(ctx, record)
	p.Body = body
	return p, err
}

func factsOfRun(now time.Time, r journal.Record) (facts []detail) {
	const exact = "2006-01-02 15:04:05.000 MST"
	length := "Took"
	if r.Outcome == journal.OutcomeRunning {
		length = "Has run for"
	}
	for _, f := range []detail{{"Replica and slot", placeOf(r)}, {"Fencing token", positiveText("#", r.Token)}, {"Reason", cleanText(r.Reason)}, {"Detail", cleanText(r.Detail)}, {"Trigger", cleanText(r.Trigger)},
		{"Tick", timeText(r.Tick, stamp)}, {"Began", timeText(r.Started, exact)}, {"Ended", timeText(r.Finished, exact)}, {length, lengthOf(now, r)}, {"Exit code", exitCode(r)},
		{"Signal", cleanText(r.Signal)}, {"Attempt", positiveText("", int64(r.Attempt))}, {"Failed tries before", positiveText("", int64(r.FailedTries))}} {
		if f.Value != "" {
			facts = append(facts, f)
		}
	}
	if r.Retried {
		facts = append(facts, detail{"Afterwards", "tried again"})
	}
	return facts
}

func positiveText(sign string, n int64) string {
	if n <= 0 {
		return ""
	}
	return sign + strconv.FormatInt(n, 10)
}

func timeText(t time.Time, layout string) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(layout)
}

func lengthOf(now time.Time, r journal.Record) string {
	d, ok := durationOf(now, r)
	if !ok {
		return ""
	}
	return durationText(d)
}

func exitCode(r journal.Record) string {
	if r.ExitCode == nil {
		return ""
	}
	return strconv.Itoa(*r.ExitCode)
}

// newestOutputs returns the output of up to three runs of a job that are in progress, and of the newest run that has ended.
func (h *handler) newestOutputs(ctx context.Context, job string, newestFirst []journal.Record) (list []output, err error) {
	const most = 3
	for _, r := range newestFirst {
		ended := r.Outcome != journal.OutcomeRunning
		if r.Started.IsZero() || len(list) == most && !ended {
			continue
		}
		if ended {
			found, err := h.operator.Logs(ctx, cluster.LogsRequest{Job: job, Run: r.RunID})
			if errors.Is(err, cluster.ErrUnknownRun) { // the history has dropped the run since it was listed
				continue
			}
			if err != nil {
				return nil, err
			}
			r = found[0]
		}
		o, err := h.outputOf(ctx, r)
		if err != nil {
			return nil, err
		}
		if list = append(list, o); ended {
			break
		}
	}
	return list, nil
}

func (h *handler) outputOf(ctx context.Context, r journal.Record) (o output, err error) {
	o = output{ID: "output-" + r.RunID, Title: fmt.Sprintf("%s on %s, %s", cleanText(r.Outcome), placeOf(r), r.When().UTC().Format(stamp)), Href: runPath(r), Empty: "It printed nothing, or its output was removed.", Failed: r.Failed(), Running: r.Outcome == journal.OutcomeRunning}
	if r.Outcome == journal.OutcomeRunning {
		o.Empty, o.Note = "Nothing was printed yet.", "Output as it comes: replicas publish it once a page asks for it."
		var answered bool
		if o.Text, answered, err = h.operator.Printed(ctx, r.Job, r.RunID); err != nil { // the page reports the error in place of the output
			o.Empty, err = "Its output could not be read in time: Redis is slow, or away.", nil
		} else if !answered {
			o.Empty = "Its replica has not published its output yet: that takes a second."
		}
	} else if r.Output != nil {
		o.Text = *r.Output
	}
	if len(o.Text) > mostOutput {
		o.Text, o.Note = o.Text[len(o.Text)-mostOutput:], "The beginning is left out."
	}
	o.Text = cleanText(o.Text)
	return o, err
}

// records is a table of runs, and of ticks without a run.
type records struct {
	Label   string
	Named   bool // each line contains the name of the job
	Records []line
}

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

type detail struct{ Name, Value string }
