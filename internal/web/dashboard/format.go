package dashboard

import (
	"fmt"
	"net/url"
	"time"

	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/journal"
)

// A moment is an instant on a page. Text is its distance from now, which the browser keeps up to date. ISO is the instant itself, which the browser needs for
// that.
type moment struct{ ISO, Text, Title string }

// stamp is the full format of instants.
const stamp = "2006-01-02 15:04:05 MST"

// momentOf returns the moment of an instant. For a zero time it is empty. The browser converts titles to the viewer's zone.
func momentOf(now, t time.Time) (m moment) {
	if t.IsZero() {
		return m
	}
	m.ISO, m.Title = t.UTC().Format("2006-01-02T15:04:05.000Z"), t.UTC().Format(stamp)
	if t.After(now) {
		m.Text = "in " + console.Span(t.Sub(now))
	} else {
		m.Text = console.Span(now.Sub(t)) + " ago"
	}
	return m
}

// durationText formats a duration.
func durationText(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%d h %02d min", d/time.Hour, d%time.Hour/time.Minute)
}

// durationOf returns the duration of a run, until now if the run is in progress. ok is false if there was no run.
func durationOf(now time.Time, r journal.Record) (d time.Duration, ok bool) {
	switch {
	case r.DurationMS != nil:
		return time.Duration(*r.DurationMS) * time.Millisecond, true
	case r.Outcome == journal.OutcomeRunning && !r.Started.IsZero():
		return max(now.Sub(r.Started), 0), true
	}
	return 0, false
}

func jobPath(job string) string { return "/jobs/" + url.PathEscape(job) }

// runPath returns the path for a record: the page of its run or, for a tick without a run, the page that explains the tick.
func runPath(r journal.Record) string {
	if r.Started.IsZero() && !r.Tick.IsZero() {
		return whyPath(r.Job, r.Tick)
	}
	return jobPath(r.Job) + "/runs/" + url.PathEscape(r.RunID)
}

func whyPath(job string, at time.Time) string {
	return jobPath(job) + "/why?at=" + url.QueryEscape(at.UTC().Format(time.RFC3339))
}
