package operator

import (
	"context"
	"strings"

	"github.com/cronclave/cronclave/internal/journal"
)

// Printed asks the replicas to publish the output of a run that is under way, and returns the newest part of what they have published so far, with notes
// in brackets where some is missing. It reads once, and waits for nothing.
func (o *Operator) Printed(ctx context.Context, job, run string) (string, error) {
	if err := o.journal.Follow(ctx, job); err != nil {
		return "", unavailable("follow job "+job, err)
	}
	chunks, _, err := o.journal.Live(ctx, job, run, "")
	if err != nil {
		return "", unavailable("follow job "+job, err)
	}
	return joined(chunks), nil
}

// joined is the text of chunks. Only the newest chunks are kept, so that the first ones may be gone.
func joined(chunks []journal.Chunk) string {
	var text strings.Builder
	note := func(s string) { text.WriteString("[" + s + "]\n") }
	for i, c := range chunks {
		switch {
		case i == 0 && c.Number > 1:
			note("… the beginning is not kept …")
		case i > 0 && c.Number > chunks[i-1].Number+1:
			note("… some output left out …")
		}
		if c.Lost > 0 {
			note(LeftOut(c.Lost))
		}
		for _, l := range c.Lines {
			text.WriteString(l.Text + "\n")
		}
	}
	return text.String()
}
