package dashboard

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/journal"
)

// A link is a text with a target. If links are choices, the selected choice has no Href.
type link struct{ Text, Href string }

// A moment is an instant on a page. ISO is the instant itself. Text is its distance from now, which the browser recalculates from ISO as time passes.
type moment struct{ ISO, Text, Title string }

const stamp = "2006-01-02 15:04:05 MST"

// momentOf returns the moment of an instant, or an empty moment for a zero time. The browser converts Title to the viewer's zone.
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

// lastingFrom returns the start of a lasting state. Its Text is the time since then. The template "lasting" shows it.
func lastingFrom(now, t time.Time) moment {
	m := momentOf(now, t)
	if t.IsZero() {
		return m
	}
	m.Text = console.Span(max(now.Sub(t), 0))
	return m
}

func momentAt(now time.Time, t *time.Time) moment {
	if t == nil {
		return moment{}
	}
	return momentOf(now, *t)
}

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

func jobLink(job string) link { return link{cleanText(job), jobPath(job)} }

func runIDPath(job, run string) string { return jobPath(job) + "/runs/" + url.PathEscape(run) }

// runPath returns the path for a record: the page of its run or, for a tick without a run, the page that explains the tick.
func runPath(r journal.Record) string {
	if r.Started.IsZero() && !r.Tick.IsZero() {
		return whyPath(r.Job, r.Tick)
	}
	return runIDPath(r.Job, r.RunID)
}

func whyPath(job string, at time.Time) string {
	return jobPath(job) + "/why?at=" + url.QueryEscape(at.UTC().Format(time.RFC3339))
}

// A mark shows a state by a sign, a shape and a colour. The sign alone suffices to recognize the state. The style sheet defines the shape and the colour for
// each class.
type mark struct{ Class, Sign string }

var (
	markOK      = mark{"ok", "✓"}
	markBad     = mark{"bad", "✗"}
	markWarning = mark{"warn", "!"}
	markRunning = mark{"run", "▸"}
	markNotRun  = mark{"off", "–"} // skipped or canceled; also a draining replica
	markAdvice  = mark{"note", "·"}
	markComing  = mark{"next", "○"}
)

// A legend makes the marks available to the templates, by name.
type legend struct{ OK, Bad, Warning, NotRun, Running, Coming mark }

var marks = legend{markOK, markBad, markWarning, markNotRun, markRunning, markComing}

var levelMarks = map[cluster.Level]mark{cluster.LevelError: markBad, cluster.LevelWarning: markWarning, cluster.LevelAdvice: markAdvice}

var stateMarks = map[cluster.ReplicaState]mark{cluster.ReplicaUp: markOK, cluster.ReplicaDraining: markNotRun, cluster.ReplicaUnable: markBad, cluster.ReplicaSilent: markWarning}

var classMarks = map[string]mark{markOK.Class: markOK, markRunning.Class: markRunning, markNotRun.Class: markNotRun, markBad.Class: markBad, markWarning.Class: markWarning}

func markOf(outcome journal.Outcome) mark { return classMarks[console.OutcomeClass(outcome)] }

// escapes matches terminal escape sequences: control sequences, strings such as window titles, and sequences of few characters. A string may have at most 256
// characters in one line. If it is longer, only its introducer matches, because otherwise an unterminated string would remove the rest of the output.
var escapes = regexp.MustCompile(`(?:\x1b\[|\x{9b})[0-?]*[ -/]*[@-~]|\x1b(?:[\]P^_X](?:[^\x07\x1b\n]{0,256}(?:\x07|\x1b\\))?|[ -/]*[0-~])?`)

// cleanText makes text from outside, such as the output of a job, safe to show on a page. It removes escape sequences, control characters and characters that
// change the direction of writing, and replaces invalid bytes. Of each line it keeps only the part after the last carriage return, as a terminal does. The
// templates escape the text for HTML.
func cleanText[T ~string](from T) string {
	text := escapes.ReplaceAllString(strings.ToValidUTF8(string(from), "\uFFFD"), "")
	text = strings.ReplaceAll(text, "\r\n", "\n")
	if strings.Contains(text, "\r") {
		lines := strings.Split(text, "\n")
		for i, line := range lines {
			line = strings.TrimRight(line, "\r")
			lines[i] = line[strings.LastIndexByte(line, '\r')+1:]
		}
		text = strings.Join(lines, "\n")
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return r
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r), r == '\u2028', r == '\u2029':
			return -1
		}
		return r
	}, text)
}
