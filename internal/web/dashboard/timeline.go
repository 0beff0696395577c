package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/journal"
)

const (
	// mostDrawn is the maximum number of runs in a timeline, and also the maximum number of coming ticks.
	mostDrawn = 2000
	// mostListed is the maximum number of failures in the list above the chart. Only mostUnfolded of them are visible at first, so that the chart stays near
	// the top of the page.
	mostListed, mostUnfolded = 200, 10
	// mostAlone is the maximum number of jobs whose own history is read for the window around the present. With more jobs, the page uses the newest records of all
	// jobs, which are read once for all viewers.
	mostAlone = 20
	// pastShare is the share of the window that lies before the chosen instant.
	pastShare = 0.75
)

// A spanChoice is a length of the window.
type spanChoice struct {
	name   string
	length time.Duration
}

var spans = []spanChoice{{"10m", 10 * time.Minute}, {"1h", time.Hour}, {"6h", 6 * time.Hour}, {"24h", 24 * time.Hour}, {"7d", 7 * 24 * time.Hour}}

type timelinePage struct {
	Query                string
	ByJob                bool
	At                   string // the chosen instant, for links; "" for now
	Span                 string
	Spans                []link
	Back, Forward, Today string
	From, Until          string
	Gantt                *gantt
	Failures, Older      records  // failures that are visible at first, and those that are folded
	Missing              []string // sentences about failures that the list lacks
	Coming               []tickLink
	Note                 string
}

type tickLink struct {
	Job, Href string
	At        moment
}

type timelineQuery struct {
	span        string
	length      time.Duration
	at          time.Time // the chosen instant; zero for now
	byJob       bool
	filter      filter
	from, until time.Time
}

func timelineQueryOf(q url.Values, now time.Time) timelineQuery {
	t := timelineQuery{span: "1h", length: time.Hour, byJob: q.Get("by") == "job", filter: filterOf(q)}
	for _, s := range spans {
		if s.name == q.Get("span") {
			t.span, t.length = s.name, s.length
		}
	}
	middle := now
	if at, err := time.Parse(time.RFC3339, q.Get("at")); err == nil && at.Year() > 1970 && at.Year() < 2200 {
		t.at, middle = at.UTC(), at
	}
	past := time.Duration(float64(t.length) * pastShare)
	t.from, t.until = middle.Add(-past), middle.Add(t.length-past)
	return t
}

func (t timelineQuery) linkAt(at time.Time, span string) string {
	q := t.filter.queryValues()
	q.Set("span", span)
	if !at.IsZero() {
		q.Set("at", at.UTC().Format(time.RFC3339))
	}
	if t.byJob {
		q.Set("by", "job")
	}
	return "/timeline?" + q.Encode()
}

func (h *handler) showTimeline(r *http.Request) (*page, error) {
	ctx := r.Context()
	st, err := h.readStatus(ctx)
	if err != nil {
		return nil, err
	}
	q := timelineQueryOf(r.URL.Query(), st.Now)
	names, known := q.chosenJobs(st)
	past, err := h.windowRecords(ctx, q, names, known)
	if err != nil {
		return nil, err
	}
	var coming []cluster.Tick
	if len(names) > 0 && q.until.After(st.Now) {
		if coming, err = h.operator.NextTicks(ctx, names, cluster.Window{From: laterOf(st.Now, q.from), Until: q.until, Limit: mostDrawn}); err != nil {
			return nil, err
		}
	}
	p := pageOf("timeline", "Timeline", st)
	body := q.drawPage(st, past, coming, known)
	wanted := journal.FailuresRequest{From: q.from, Until: q.until, Includes: known, Most: mostListed}
	if q.at.IsZero() && !q.filter.Set() {
		wanted.Includes = nil // without Includes, all viewers of a span share one result
	}
	failures, err := h.windows.Failures(ctx, wanted)
	if err != nil {
		body.Missing = []string{fmt.Sprintf("Not all failures are listed (%s): reload the page, or choose a shorter window.", cleanText(err.Error()))}
	}
	body.listFailures(st.Now, q, failures, slices.DeleteFunc(slices.Clone(past), func(r journal.Record) bool { return !known(r.Job) }))
	p.Body = body
	if q.at.IsZero() {
		p.Every = max(renewMS, int(q.length.Milliseconds()/1000)) // the window moves by a pixel in about a thousandth of its length
	}
	return p, nil
}

func (t timelineQuery) drawPage(st *cluster.Status, past []journal.Record, coming []cluster.Tick, known func(job string) bool) *timelinePage {
	within := slices.DeleteFunc(slices.Clone(past), func(r journal.Record) bool {
		return r.When().After(t.until) || r.Outcome != journal.OutcomeRunning && r.Finished.Before(t.from)
	})
	read := len(within)
	drawn := slices.DeleteFunc(within, func(r journal.Record) bool { return !known(r.Job) })
	body := t.framePage(st.Now)
	switch {
	case len(drawn) > mostDrawn:
		body.Note = fmt.Sprintf("The newest %d runs and ticks are drawn: choose jobs, or a shorter window.", mostDrawn)
	case read > mostDrawn: // only the newest were read, and most may belong to other jobs
		body.Note = fmt.Sprintf("The jobs were looked for in the newest %d runs and ticks of all jobs: choose %d jobs at most, or a shorter window.", mostDrawn, mostAlone)
	}
	drawn = cluster.NewestFirst(drawn, mostDrawn)
	slices.SortStableFunc(drawn, func(a, b journal.Record) int { return b.When().Compare(a.When()) })
	if len(coming) == mostDrawn {
		body.Note += fmt.Sprintf(" The first %d coming ticks are drawn.", mostDrawn)
	}
	if t.length >= densityFrom {
		body.Note = strings.TrimSpace(fmt.Sprintf("Each mark stands for %s. It is darker the more ran, and higher if something did not end ok. ", console.Span(t.length/buckets)) + body.Note)
	}
	body.Coming = comingOf(st, known, t.until)
	body.Gantt = newGantt(t, st, drawn, coming)
	return body
}

// windowRecords reads the records of the window. The result may contain other records too, which the caller must remove. For the window around the present, all
// viewers share the newest records of all jobs, unless the filter selects at most mostAlone jobs.
func (h *handler) windowRecords(ctx context.Context, q timelineQuery, names []string, known func(job string) bool) ([]journal.Record, error) {
	few := q.filter.Set() && len(names) <= mostAlone
	if q.at.IsZero() && !few {
		return h.windows.Newest(ctx)
	}
	return h.windows.Read(ctx, q.from, q.until, known)
}

// listFailures lists the failures of the window. found comes from the index of failures. Replicas of older versions do not write that index, so listFailures
// also takes failures from past, the records that were read for the chart.
func (b *timelinePage) listFailures(now time.Time, q timelineQuery, found journal.FailuresFound, past []journal.Record) {
	failed := slices.Clip(found.Records) // viewers share found.Records, so it must not be changed
	for _, r := range past {
		if found.More > 0 || !r.Failed() || r.Finished.Before(q.from) || r.Finished.After(q.until) {
			continue
		}
		if !slices.ContainsFunc(found.Records, func(f journal.Record) bool { return f.Job == r.Job && f.RunID == r.RunID }) {
			failed = append(failed, r)
		}
	}
	failed = cluster.NewestFirst(failed, mostListed)
	newest := failed[:min(len(failed), mostUnfolded)]
	b.Failures, b.Older = recordsOf(now, "Failures and missed ticks", newest), recordsOf(now, "Older failures and missed ticks", failed[len(newest):])
	b.Failures.Named, b.Older.Named = true, true
	if found.More > 0 {
		b.Missing = append(b.Missing, fmt.Sprintf("%d older ones are not listed: choose jobs, or a shorter window, or see cronclave history --failed.", found.More))
	}
	if found.Removed > 0 {
		b.Missing = append(b.Missing, fmt.Sprintf("%d more failures are no longer in the history ([history] limits it).", found.Removed))
	}
	if found.Since.After(q.from) {
		b.Missing = append(b.Missing, fmt.Sprintf("Only the newest 10,000 failures are kept; those before %s are unknown.", found.Since.Format(time.RFC3339)))
	}
}

// comingOf returns the next tick of each known job, in the order of time. It leaves out ticks after until.
func comingOf(st *cluster.Status, known func(job string) bool, until time.Time) (list []tickLink) {
	jobs := slices.DeleteFunc(slices.Clone(st.Jobs), func(j cluster.Job) bool {
		return j.Next == nil || j.Paused || !j.Enabled || j.Next.After(until) || !known(j.Name)
	})
	slices.SortStableFunc(jobs, func(a, b cluster.Job) int { return a.Next.Compare(*b.Next) })
	for _, j := range jobs {
		list = append(list, tickLink{cleanText(j.Name), jobPath(j.Name), momentOf(st.Now, *j.Next)})
	}
	return list
}

// chosenJobs returns the names of the configured jobs that match the filter. known reports whether the filter includes a job. Without a filter it includes jobs
// that were removed from the configuration, because their records remain.
func (t timelineQuery) chosenJobs(st *cluster.Status) (names []string, known func(job string) bool) {
	chosen := map[string]bool{}
	for _, j := range t.filter.chooseJobs(st) {
		names = append(names, j.Name)
		chosen[j.Name] = true
	}
	return names, func(job string) bool { return chosen[job] || !t.filter.Set() }
}

// framePage returns the page without the chart, but with the links and texts around it.
func (t timelineQuery) framePage(now time.Time) *timelinePage {
	p := &timelinePage{Query: t.filter.Query, ByJob: t.byJob, Span: t.span, From: t.from.UTC().Format(time.RFC3339), Until: t.until.UTC().Format(time.RFC3339)}
	middle := t.at
	if middle.IsZero() {
		middle = now
	} else {
		p.At, p.Today = t.at.Format(time.RFC3339), t.linkAt(time.Time{}, t.span)
	}
	p.Back, p.Forward = t.linkAt(middle.Add(-t.length/2), t.span), t.linkAt(middle.Add(t.length/2), t.span)
	for _, s := range spans {
		l := link{Text: s.name, Href: t.linkAt(t.at, s.name)}
		if s.name == t.span {
			l.Href = ""
		}
		p.Spans = append(p.Spans, l)
	}
	return p
}

func laterOf(a, b time.Time) time.Time { return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare) }
