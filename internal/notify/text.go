package notify

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/scheduler/run"
)

const (
	// mostLines caps the events that a summary lists.
	mostLines = 20
	// mostOfALine caps the characters of an event's text in a summary.
	mostOfALine = 200
	// mostOfALink caps the length of a link. A longer one is left out.
	mostOfALink = 500
	// mostOfATitle caps the characters of a title.
	mostOfATitle = 200

	ellipsis = "…"
)

// oneLine returns a text without line breaks, control characters, and characters that are invisible or change the direction of text. Texts of events may
// contain what a job has written.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return ' '
		}
		return r
	}, s)
	return strings.Join(strings.Fields(s), " ")
}

// A style describes how a service counts and escapes text.
type style struct {
	// size returns the length of a text in the unit of the service's limits.
	size func(string) int
	// escape returns a character as text that the service shows as that character; nil if it shows all characters as they are.
	escape func(rune) string
}

// units returns the length of a text in UTF-16 code units, the largest of the numbers that services call characters.
func units(s string) int {
	n := 0
	for _, r := range s {
		n += utf16.RuneLen(r)
	}
	return n
}

func octets(s string) int { return len(s) }

var (
	plainText = style{size: units}
	inBytes   = style{size: octets}
)

// fit escapes a text. If the result is longer than most, it is cut between two characters and ends with an ellipsis.
func (st style) fit(text string, most int) string {
	var b strings.Builder
	used, end, last := 0, 0, st.size(ellipsis)
	for _, r := range text {
		piece := string(r)
		if st.escape != nil {
			piece = st.escape(r)
		}
		if used += st.size(piece); used > most {
			if most < last {
				return ""
			}
			return b.String()[:end] + ellipsis
		}
		b.WriteString(piece)
		if used+last <= most {
			end = b.Len()
		}
	}
	return b.String()
}

// escapeSlack escapes the markup of Slack. The zero-width space keeps Mattermost and Rocket.Chat, which take the same messages, from notifying a whole channel.
func escapeSlack(r rune) string {
	switch r {
	case '&':
		return "&amp;"
	case '<':
		return "&lt;"
	case '>':
		return "&gt;"
	case '@':
		return "@\u200b"
	}
	return string(r)
}

func escapeMarkdown(r rune) string {
	if strings.ContainsRune("\\*_~`|<>#[]()@:", r) {
		return `\` + string(r)
	}
	return string(r)
}

// A text is a message for people, unescaped. The lines of a single event come from a template; a summary has a line for each event.
type text struct {
	title string
	lines []string
	// events is the number of all events of a summary; 0 for a single event.
	events int
	link   string
}

func isSingle(m Message) bool { return len(m.Events) == 1 }

// renderText returns the text of a message with at least one event.
func renderText(t config.Notify, m Message) text {
	link := m.Link
	if len(link) > mostOfALink || oneLine(link) != link {
		link = ""
	}
	if !isSingle(m) {
		return text{oneLine(summaryTitle(m)), summaryLines(m), len(m.Events), link}
	}
	e := m.Events[0]
	body := cmp.Or(t.Text, "{text}\n"+describeRun(e))
	return text{oneLine(fillTemplate(cmp.Or(t.Title, "{namespace}/{job}: {event}"), m, e)), strings.Split(strings.TrimSpace(fillTemplate(body, m, e)), "\n"), 0, link}
}

// fillTemplate replaces the names of [config.NotifyFields] in braces. Values are single lines, and braces in them have no meaning.
func fillTemplate(template string, m Message, e Event) string {
	r := run.Record{}
	if e.Run != nil {
		r = *e.Run
	}
	values := []string{"{namespace}", m.Namespace, "{job}", jobOf(e), "{event}", e.Name, "{text}", e.Text, "{reason}", string(r.Reason), "{replica}", r.Replica,
		"{run}", r.RunID, "{time}", e.At.UTC().Format(time.RFC3339), "{link}", m.Link}
	for i := 1; i < len(values); i += 2 {
		values[i] = oneLine(values[i])
	}
	return strings.NewReplacer(values...).Replace(template)
}

// jobOf returns the name of the event's job, or "cluster".
func jobOf(e Event) string { return cmp.Or(e.Job, "cluster") }

// describeRun returns the facts of an event that its text may lack, in one line.
func describeRun(e Event) string {
	var facts []string
	if r := e.Run; r != nil {
		if r.Replica != "" {
			facts = append(facts, "replica "+oneLine(r.Replica))
		}
		if r.Attempt > 1 {
			facts = append(facts, fmt.Sprintf("attempt %d", r.Attempt))
		}
		if r.DurationMS != nil {
			facts = append(facts, fmt.Sprint("after ", time.Duration(*r.DurationMS)*time.Millisecond))
		}
	}
	if !e.Since.IsZero() {
		facts = append(facts, "since "+e.Since.UTC().Format(time.RFC3339))
	}
	return strings.Join(facts, ", ")
}

// summaryTitle returns a title such as "default: 3 events (2 failed, 1 fixed)".
func summaryTitle(m Message) string {
	var names []string
	count := map[string]int{}
	for _, e := range m.Events {
		if count[e.Name]++; count[e.Name] == 1 {
			names = append(names, e.Name)
		}
	}
	for i, name := range names {
		names[i] = fmt.Sprintf("%d %s", count[name], name)
	}
	return fmt.Sprintf("%s: %d events (%s)", m.Namespace, len(m.Events), strings.Join(names, ", "))
}

func summaryLines(m Message) []string {
	var lines []string
	for _, e := range m.Events[:min(len(m.Events), mostLines)] {
		lines = append(lines, plainText.fit(oneLine(jobOf(e)+" "+e.Name+": "+e.Text), mostOfALine))
	}
	return lines
}

// body returns the escaped lines within a limit. A summary loses whole lines, and its last line says how many events are not listed. Of a single event the
// first line is cut, because the others are short.
func (t text) body(st style, most int) string {
	if t.events == 0 {
		rest := ""
		if len(t.lines) > 1 {
			rest = st.fit("\n"+strings.Join(t.lines[1:], "\n"), most/2)
		}
		return st.fit(t.lines[0], most-st.size(rest)) + rest
	}
	const longestEnd = len("\nand 1000000 more")
	body := ""
	for i, line := range t.lines {
		line = st.fit(line, most)
		if st.size(body)+1+st.size(line)+longestEnd > most {
			t.lines = t.lines[:i]
			break
		}
		body += line + "\n"
	}
	if hidden := t.events - len(t.lines); hidden > 0 {
		return fmt.Sprintf("%sand %d more", body, hidden)
	}
	return strings.TrimSuffix(body, "\n")
}

// severity returns the severity of an event in the words of PagerDuty.
func severity(e Event) string {
	switch {
	case e.Name == Redis:
		return "critical"
	case slices.Contains(run.Failures(), run.Outcome(e.Name)), e.Name == Stale, e.Name == Overdue:
		return "error"
	case slices.Contains([]string{Slow, ReplicaLost, ConfigDiffers, PoolFull}, e.Name):
		return "warning"
	}
	return "info"
}

func worst(m Message) string {
	order := []string{"info", "warning", "error", "critical"}
	highest := 0
	for _, e := range m.Events {
		highest = max(highest, slices.Index(order, severity(e)))
	}
	return order[highest]
}

// encodeJSON returns v as JSON in which <, > and & are not escaped, because services count the characters of the body.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode the message: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
