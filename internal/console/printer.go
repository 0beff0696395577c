// Package console formats the output of commands as text for people: times, signs, colours and tables. Other packages write the JSON for scripts.
package console

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
)

// Width is the maximum number of columns, except in wide output.
const Width = 100

// A Printer prints text to Out.
type Printer struct {
	Out    io.Writer
	Zone   *time.Location // zone of printed times; nil means UTC
	Colour bool           // print each line in the colour of its mark
	Wide   bool           // print more columns, and do not shorten cells
}

func (p Printer) inZone(t time.Time) time.Time {
	if p.Zone == nil {
		return t.UTC()
	}
	return t.In(p.Zone)
}

// formatTime formats a time with the name of its zone, for people.
func (p Printer) formatTime(t time.Time) string { return p.inZone(t).Format("2006-01-02 15:04:05 MST") }

func agoText(now, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return Span(now.Sub(t)) + " ago"
}

func inText(now, t time.Time) string { return "in " + Span(t.Sub(now)) }

// Span formats a duration in one unit, rounded down. It formats a negative duration as 0s.
func Span(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(d, 0)/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/day)
}

// cutText shortens a text to one line of at most most characters, with an ellipsis at its end. In wide output it does not shorten.
func (p Printer) cutText(text string, most int) string {
	text = OneLine(text)
	if p.Wide || utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// cutMiddle shortens a text to at most most characters. It removes the middle and keeps the end, because the end may be the id of a process.
func (p Printer) cutMiddle(text string, most int) string {
	letters := []rune(OneLine(text))
	if p.Wide || len(letters) <= most {
		return string(letters)
	}
	tail := most / 2
	return string(letters[:most-tail-1]) + "…" + string(letters[len(letters)-tail:])
}

// wrapText breaks a text into lines of at most most characters. It breaks a word only if the word is longer than a line.
func wrapText(text string, most int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(strings.ToValidUTF8(text, "?")) {
		for letters := []rune(word); len(letters) > most; letters = []rune(word) {
			if line != "" {
				lines, line = append(lines, line), ""
			}
			lines, word = append(lines, string(letters[:most])), string(letters[most:])
		}
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > most {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// table aligns the cells of its rows. The first row is the title, if there is one. Each row has the colour of its mark.
type table struct {
	rows  strings.Builder
	cells *tabwriter.Writer
	marks []mark        // mark of each row
	below func(row int) // prints more text below a row, if not nil; the title is row 0
}

func newTable(title ...string) *table {
	t := &table{}
	t.cells = tabwriter.NewWriter(&t.rows, 0, 0, 2, ' ', 0)
	if len(title) > 0 {
		t.addRow(plain, title...)
	}
	return t
}

func (t *table) addRow(m mark, cells ...string) {
	t.marks = append(t.marks, m)
	for i := range cells {
		cells[i] = OneLine(cells[i]) // damaged data must not shift or break a row
	}
	fmt.Fprintln(t.cells, strings.Join(cells, "\t"))
}

func (t *table) print(p Printer) {
	_ = t.cells.Flush() // cannot fail, because it writes to memory
	for i, line := range strings.Split(strings.TrimSuffix(t.rows.String(), "\n"), "\n") {
		p.printLine(t.marks[i], strings.TrimRight(line, " "))
		if t.below != nil {
			t.below(i)
		}
	}
}

func (p Printer) printLine(m mark, text string) {
	if p.Colour && m.colour != "" {
		text = "\x1b[" + m.colour + "m" + text + "\x1b[0m"
	}
	fmt.Fprintln(p.Out, text)
}

// printItem prints a text after the sign of a mark. Further lines of the text are indented.
func (p Printer) printItem(m mark, text string) {
	sign := m.sign
	for _, line := range p.splitLines(text, 2) {
		p.printLine(m, sign+" "+line)
		sign = " "
	}
}

// splitLines breaks a text into lines that fit after an indent of this width. It keeps existing line breaks.
func (p Printer) splitLines(text string, indent int) (lines []string) {
	for part := range strings.Lines(text) {
		if p.Wide {
			lines = append(lines, OneLine(part))
			continue
		}
		lines = append(lines, wrapText(part, Width-indent)...)
	}
	return lines
}

// OneLine returns a text as a single line, for a cell of a table. It replaces invalid bytes.
func OneLine(s string) string { return strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ") }

// A mark is the sign and the colour of an outcome or a level. The sign alone identifies the outcome or level, because output may have no colours.
type mark struct{ sign, colour string }

var (
	plain   = mark{}
	good    = mark{"✓", "32"}
	bad     = mark{"✗", "31"}
	warning = mark{"!", "33"}
	running = mark{"▸", "36"}
	notRun  = mark{"-", "2"}
	advice  = mark{"·", ""}
)

var classMarks = map[string]mark{"ok": good, "run": running, "off": notRun, "bad": bad, "warn": warning}

var levels = map[cluster.Level]mark{cluster.LevelError: bad, cluster.LevelWarning: warning, cluster.LevelAdvice: advice}

// OutcomeClass returns the class of an outcome: "ok", "run", "off" (skipped by a policy, or canceled by a user), "bad" or "warn". An outcome that only a newer
// version defines has the class "warn".
func OutcomeClass(outcome journal.Outcome) string {
	switch outcome {
	case journal.OutcomeOK:
		return "ok"
	case journal.OutcomeRunning:
		return "run"
	case journal.OutcomeSkipped, journal.OutcomeCanceled:
		return "off"
	case journal.OutcomeFailed, journal.OutcomeTimeout, journal.OutcomeLost, journal.OutcomeAbandoned:
		return "bad"
	}
	return "warn"
}

func markOf(outcome journal.Outcome) mark { return classMarks[OutcomeClass(outcome)] }

// signStrip returns the signs of records, with the latest record on the right.
func signStrip(newestFirst []journal.Record) string {
	var signs strings.Builder
	for i := len(newestFirst) - 1; i >= 0; i-- {
		signs.WriteString(markOf(newestFirst[i].Outcome).sign)
	}
	if signs.Len() == 0 {
		return "-"
	}
	return signs.String()
}
