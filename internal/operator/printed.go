package operator

import (
	"context"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/journal"
)

const (
	// publishWait is how long a reader waits for the output of a run under way: its replica looks for followers each second.
	publishWait = 1500 * time.Millisecond
	// mostPrinted is how many bytes of it are shown, the newest.
	mostPrinted = 256 << 10
)

// reading is how far a follower has read what a run prints.
type reading struct {
	attempt int
	offset  int64 // of that try
}

// add returns the lines of a chunk that were not read yet, and how many bytes before them are missing.
func (p *reading) add(c journal.Chunk) (missing int64, lines []journal.Line) {
	if c.Attempt < p.attempt {
		return 0, nil
	}
	if c.Attempt > p.attempt {
		*p = reading{attempt: c.Attempt}
	}
	at, lines := c.Offset, c.Lines
	for len(lines) > 0 && at < p.offset {
		at, lines = at+lines[0].Size(), lines[1:]
	}
	missing = max(at-p.offset, 0)
	p.offset = max(p.offset, c.Next())
	return missing, lines
}

// Printed asks the replicas to publish the output of a run that is under way, and returns the newest part of what they have published so far, with notes
// in brackets where some is missing. It reads once, and waits for nothing: answered reports whether a replica has published anything, if only that the
// run has printed nothing.
func (o *Operator) Printed(ctx context.Context, job, run string) (text string, answered bool, err error) {
	if err := o.journal.Follow(ctx, job); err != nil {
		return "", false, unavailable("follow job "+job, err)
	}
	chunks, _, err := o.journal.Live(ctx, job, run, "")
	if err != nil {
		return "", false, unavailable("follow job "+job, err)
	}
	cut, text := joined(chunks)
	if cut > 0 {
		text = bracketed(LeftOut(cut)) + text
	}
	return text, len(chunks) > 0, nil
}

// AddPrinted adds to the records of runs that are under way what they have printed so far. It asks their replicas, and waits a moment for them. A run
// whose replica does not answer has no output; one that has printed nothing has an empty one.
func (o *Operator) AddPrinted(ctx context.Context, records []journal.Record) error {
	type printing struct {
		*journal.Record
		place  string
		chunks []journal.Chunk
		news   bool // a replica has published some since the first look
	}
	var runs []*printing
	for i := range records {
		if r := &records[i]; r.Outcome == journal.OutcomeRunning && len(runs) < maxFollowed {
			runs = append(runs, &printing{Record: r})
		}
	}
	began := time.Now()
	for first := true; len(runs) > 0; first = false {
		waits := false
		for _, r := range runs {
			if r.news {
				continue
			}
			if first {
				if err := o.journal.Follow(ctx, r.Job); err != nil {
					return unavailable("follow job "+r.Job, err)
				}
			}
			chunks, place, err := o.journal.Live(ctx, r.Job, r.RunID, "")
			if err != nil {
				return unavailable("follow job "+r.Job, err)
			}
			r.chunks, r.place, r.news = chunks, place, !first && place != r.place
			waits = waits || !r.news
		}
		if !waits || time.Since(began) > publishWait || ctx.Err() != nil {
			break
		}
		backoff.Sleep(ctx, followEvery)
	}
	for _, r := range runs {
		if len(r.chunks) > 0 {
			cut, text := joined(r.chunks)
			r.OutputCut, r.Output = cut, &text
		}
	}
	return nil
}

// joined returns the newest text of chunks, with notes in brackets where some is missing, and how many bytes were printed before it.
func joined(chunks []journal.Chunk) (cut int64, newest string) {
	var text strings.Builder
	var read reading
	for _, c := range chunks {
		missing, lines := read.add(c)
		if missing > 0 && text.Len() == 0 {
			cut += missing
		} else if missing > 0 {
			text.WriteString(bracketed(LeftOut(missing)))
		}
		for _, l := range lines {
			text.WriteString(l.Text + "\n")
		}
	}
	newest = text.String()
	if over := len(newest) - mostPrinted; over > 0 {
		over += strings.IndexByte(newest[over:], '\n') + 1
		return cut + int64(over), newest[over:]
	}
	return cut, newest
}

func bracketed(note string) string { return "[" + note + "]\n" }
