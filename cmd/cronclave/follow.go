package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

const (
	// followEvery is how often a follower looks for more.
	followEvery = 200 * time.Millisecond
	// stayEvery is how often it says that it is still there.
	stayEvery = 3 * time.Second
	// lastWord is how long after the end of a run the rest of its output is waited for.
	lastWord = 2 * time.Second
	// followPatience is how long Redis may be away before a follower gives up: a Cluster takes a quarter of a minute to find that a master is gone, unless
	// it is told otherwise, and Sentinels take twice as long.
	followPatience = time.Minute
)

// follower shows what runs of a job print while they do.
type follower struct {
	journal *journal.Journal
	job     string
	show    func(run string, line journal.Line)
	note    func(run, text string) // about the output

	stayed time.Time // when it last said that it is there
	heard  time.Time // when Redis last answered
}

// followed is a run that is shown.
type followed struct {
	id    string
	place string         // in its chunks
	chunk int64          // the number of the last one
	ended bool           // a chunk has said that nothing follows
	shown bool           // something was
	last  journal.Record // what is known of it
	since time.Time      // when it was first known to have ended
}

// stay tells the replicas that somebody follows, if it is time to.
func (f *follower) stay(ctx context.Context) error {
	if time.Since(f.stayed) < stayEvery {
		return nil
	}
	if err := f.journal.Follow(ctx, f.job); err != nil {
		return err
	}
	f.stayed = time.Now()
	return nil
}

// tolerate lets Redis be away for a while.
func (f *follower) tolerate(err error) error {
	if err == nil || f.heard.IsZero() {
		f.heard = time.Now()
	}
	if err == nil || errors.Is(err, journal.ErrCorrupt) || time.Since(f.heard) < followPatience {
		return nil
	}
	return unavailable("follow job "+f.job, err)
}

// follow shows a run until it has ended, or ctx has.
func (f *follower) follow(ctx context.Context, r *followed) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		over, err := f.look(ctx, r)
		if err := f.tolerate(err); err != nil || over {
			return err
		}
		timer.Reset(followEvery)
	}
}

// look shows what is new of a run; over tells that nothing will be any more.
func (f *follower) look(ctx context.Context, r *followed) (over bool, err error) {
	if err := f.stay(ctx); err != nil {
		return false, err
	}
	record, known, err := f.journal.Run(ctx, f.job, r.id) // before its output: what is printed by its end is there then, or soon
	if err != nil {
		return false, err
	}
	if err := f.print(ctx, r); err != nil || !known || record.Outcome == journal.OutcomeRunning {
		return false, err
	}
	r.last = record
	if r.since.IsZero() {
		r.since = time.Now()
	}
	switch {
	case r.ended, !r.shown && time.Since(r.since) > lastWord/2:
	case time.Since(r.since) <= lastWord:
		return false, nil
	default:
		f.note(r.id, "its last output is missing; see history --output")
	}
	f.rest(r)
	return true, nil
}

// print shows the chunks that are new.
func (f *follower) print(ctx context.Context, r *followed) error {
	chunks, place, err := f.journal.Live(ctx, f.job, r.id, r.place)
	if err != nil {
		return err
	}
	r.place = place
	for _, c := range chunks {
		if r.chunk > 0 && c.Number > r.chunk+1 {
			f.note(r.id, "some output left out")
		}
		if r.chunk = c.Number; c.Lost > 0 {
			f.note(r.id, fmt.Sprintf("%d bytes left out", c.Lost))
		}
		for _, line := range c.Lines {
			f.show(r.id, line)
		}
		r.shown, r.ended = true, c.End
	}
	return nil
}

// rest shows what the history has kept of a run that was over before a replica knew that it is followed.
func (f *follower) rest(r *followed) {
	if r.shown || r.last.Output == nil {
		return
	}
	for line := range strings.Lines(*r.last.Output) {
		f.show(r.id, journal.Line{Text: strings.TrimSuffix(line, "\n")})
	}
}

// printLive shows a line where the run wrote it.
func (a *app) printLive(_ string, line journal.Line) {
	w := a.out
	if line.Stderr {
		w = a.err
	}
	fmt.Fprintln(w, line.Text)
}

// noteLive says something about a run's output.
func (a *app) noteLive(run, text string) { fmt.Fprintf(a.err, "cronclave: run %s: %s\n", run, text) }
