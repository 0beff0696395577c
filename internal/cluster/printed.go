package cluster

import (
	"context"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/journal"
)

const (
	// publishWait is the time for which AddPrinted waits for the output of a run in progress. A replica checks for followers every second.
	publishWait = 1500 * time.Millisecond
	// mostPrinted is the maximum number of bytes of output that are shown, the newest ones.
	mostPrinted = 256 << 10
)

// A reading is the position of a follower in the output of a run.
type reading struct {
	attempt int
	offset  int64 // in the output of the attempt
}

// addChunk returns the lines of a chunk that were not read yet, and the number of missing bytes before them.
func (p *reading) addChunk(c journal.Chunk) (missing int64, lines []journal.Line) {
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

// Printed asks the replicas to publish the output of a run in progress. It returns the newest part of what they have published so far, and does not wait. Notes
// in brackets replace missing parts. answered is set if a replica has published anything, even if the run has printed nothing.
func (o *Operator) Printed(ctx context.Context, job, run string) (text string, answered bool, err error) {
	if err := o.journal.Follow(ctx, job); err != nil {
		return "", false, unavailableError("follow job "+job, err)
	}
	chunks, _, err := o.journal.Live(ctx, job, run, "")
	if err != nil {
		return "", false, unavailableError("follow job "+job, err)
	}
	cut, text := joinChunks(chunks)
	if cut > 0 {
		text = bracketNote(LeftOut(cut)) + text
	}
	return text, len(chunks) > 0, nil
}

// AddPrinted adds the output so far to the records of runs in progress. It asks the replicas to publish the output, and waits a moment. A run whose replica
// does not answer gets no output. A run that has printed nothing gets an empty output.
func (o *Operator) AddPrinted(ctx context.Context, records []journal.Record) error {
	type printing struct {
		*journal.Record
		place  string
		chunks []journal.Chunk
		news   bool // a replica has published output since the first reading
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
					return unavailableError("follow job "+r.Job, err)
				}
			}
			chunks, place, err := o.journal.Live(ctx, r.Job, r.RunID, "")
			if err != nil {
				return unavailableError("follow job "+r.Job, err)
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
			cut, text := joinChunks(r.chunks)
			r.OutputCut, r.Output = cut, &text
		}
	}
	return nil
}

// joinChunks returns the newest text of chunks. Notes in brackets replace missing parts. cut is the number of bytes that were printed before the text.
func joinChunks(chunks []journal.Chunk) (cut int64, newest string) {
	var text strings.Builder
	var read reading
	for _, c := range chunks {
		missing, lines := read.addChunk(c)
		if missing > 0 && text.Len() == 0 {
			cut += missing
		} else if missing > 0 {
			text.WriteString(bracketNote(LeftOut(missing)))
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

func bracketNote(note string) string { return "[" + note + "]\n" }
