package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/sse"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/operator"
)

const (
	// maxStreams is how many streams are open at once: each asks Redis a few times a second.
	maxStreams = 256
	// pingEvery is how often a stream without news shows that it is open, so that no proxy cuts it.
	pingEvery = 15 * time.Second
)

// The events of a stream, beside operator.OutputLine.
type (
	// note is a remark on the output, such as the size of a gap in it.
	note struct {
		RunID string `json:"run_id"`
		Note  string `json:"note"`
	}
	// ended says that a stream is complete: of one run with its record.
	ended struct {
		Run   *journal.Record `json:"run,omitempty"`
		Error string          `json:"error,omitempty"`
	}
	// ping says that the stream is open.
	ping struct{}
)

// liveInput says which output to follow.
type liveInput struct {
	JobPath
	RunID string `query:"run_id" maxLength:"128" doc:"id of one run, with whose end the stream ends (default: all runs of the job)"`
}

// live registers the output of runs while they print it.
func (r *routes) live(api huma.API) {
	op := describe(http.MethodGet, "/jobs/{job}/output", "Live output", "runs", 404)
	op.Description = "Server-sent events. There are at most 256 streams at once; of a reader that is slow the stream ends."
	sse.Register(api, op, map[string]any{"line": operator.OutputLine{}, "note": note{}, "end": ended{}, "ping": ping{}}, r.stream)
}

// stream sends the output of runs until the client goes, or the run has ended.
func (r *routes) stream(ctx context.Context, in *liveInput, send sse.Sender) {
	select {
	case r.streams <- struct{}{}:
		defer func() { <-r.streams }()
	default:
		_ = send.Data(ended{Error: "too many streams are open; try again later"})
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := make(chan any)
	emit := func(e any) {
		select {
		case events <- e:
		case <-ctx.Done():
		}
	}
	go func() { // ends with ctx, and is waited for by the loop below, which reads until events is closed
		defer close(events)
		emit(r.follow(ctx, in, emit))
	}()
	forward(events, send, cancel)
}

// follow passes on the output of runs, and returns how that ended.
func (r *routes) follow(ctx context.Context, in *liveInput, emit func(any)) ended {
	err := r.Operator.Follow(ctx, operator.FollowRequest{Job: in.Job, Run: in.RunID}, operator.Viewer{
		Line: func(l operator.OutputLine) { emit(l) },
		Note: func(run, text string) { emit(note{run, text}) },
	})
	if err != nil {
		return ended{Error: err.Error()}
	}
	if in.RunID == "" {
		return ended{}
	}
	records, err := r.Operator.Logs(ctx, operator.LogsRequest{Job: in.Job, Run: in.RunID, Limit: 1})
	if err != nil {
		return ended{Error: err.Error()}
	}
	records[0].Output = nil // which was sent
	return ended{Run: &records[0]}
}

// forward sends events until there are no more. A client that is gone, or too slow, cancels.
func forward(events <-chan any, send sse.Sender, cancel func()) {
	pings := time.NewTicker(pingEvery)
	defer pings.Stop()
	gone := send.Data(ping{}) != nil
	for {
		if gone {
			cancel()
		}
		select {
		case e, more := <-events:
			if !more {
				return
			}
			gone = gone || send.Data(e) != nil
		case <-pings.C:
			gone = gone || send.Data(ping{}) != nil
		}
	}
}
