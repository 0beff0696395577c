package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// streams are where a command reads and writes.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// printJSON prints a value as indented JSON.
func (s streams) printJSON(v any) error {
	e := json.NewEncoder(s.out)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	return nil
}

// count says how many of something there are.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// oneLine makes a text one cell of a table.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// stamp is an instant as tables and messages have it.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

// scheduled is a short text of when a job runs.
func scheduled(schedule, after []string) string {
	if len(after) > 0 {
		return "after " + strings.Join(after, ", ")
	}
	return strings.Join(schedule, " | ")
}

// ago is how long ago something was, in whole seconds.
func ago(d time.Duration) string { return fmt.Sprint(max(d, 0).Round(time.Second), " ago") }
