package cronspec

import (
	"fmt"
	"strings"
)

// A ParseError is an error in one expression, with its position and a hint. [Schedule.Remarks] also uses it.
type ParseError struct {
	// Except is true if the expression is in [Options.Except], and false if it is an expression of the schedule.
	Except bool
	// Index is the index of the expression in its list, from 0.
	Index int
	// Offset is the offset in the expression, in bytes, at which the error was found. If something is missing at the end, Offset is the length of the
	// expression.
	Offset int
	// Message describes the error, in lower case and without a full stop.
	Message string
	// Hint describes the remedy. It may be empty.
	Hint string
}

// Error returns the position, the message and the hint in one line.
func (e *ParseError) Error() string {
	list := ""
	if e.Except {
		list = "except, "
	}
	text := fmt.Sprintf("%sexpression %d, byte %d: %s", list, e.Index, e.Offset, e.Message)
	if e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	return text
}

// quote returns a part of the input in quotes. It shortens long input so that messages stay readable.
func quote(text string) string {
	const most = 32
	if len(text) > most {
		text = text[:most] + "..."
	}
	return fmt.Sprintf("%q", text)
}

// foreignHint recognises notations of other cron dialects, and returns a hint with a replacement. text is the part that could not be parsed.
func foreignHint(text string) string {
	upper := strings.ToUpper(text)
	last := strings.HasPrefix(upper, "L") || len(upper) == len("FRIL") && strings.HasSuffix(upper, "L")
	switch {
	case strings.HasPrefix(upper, "?"):
		return `"?" is Quartz's; write "*"`
	case strings.HasPrefix(upper, "#"):
		return `the n-th weekday of a month ("#") is not supported; use a weekday alone and let the command look at the date`
	case text == "h":
		return `the place spread by the job's name is a capital "H"`
	case upper == "W", upper == "LW":
		return `the nearest weekday ("W") is not supported; use MON-FRI as the day of week`
	case last:
		return `the last day ("L") is not supported; use the days 28-31 and let the command look at the date`
	}
	return ""
}
