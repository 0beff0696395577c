package api

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/danielgtaylor/huma/v2/sse"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/operator"
)

const (
	// maxStreams is the maximum number of streams that are open at once, because each one calls Redis once a second.
	maxStreams = 256
	// streamEvery is the interval at which a stream checks for new output.
	streamEvery = time.Second
	// pingEvery is the interval of pings on a stream without output, so that no proxy closes it.
	pingEvery = 15 * time.Second
	// maxStream is the longest duration of a stream. Its client then reconnects, which requires a token that is still valid.
	maxStream = time.Hour
)

// The events of a stream, besides operator.OutputLine.
type (
	// A note is a remark on the output, such as the size of a gap in it.
	note struct {
		RunID string `json:"run_id"`
		Note  string `json:"note"`
	}
	// An ended event is the last one of a stream. In a stream about one run it contains the run's record.
	ended struct {
		Run   *journal.Record `json:"run,omitempty"`
		Error string          `json:"error,omitempty"`
	}
	// A ping shows that the stream is open.
	ping struct{}
)

// liveInput selects the output to follow.
type liveInput struct {
	JobPath
	RunID string `query:"run_id" maxLength:"128" doc:"id of one run, with whose end the stream ends (default: all runs of the job)"`
}

// registerStreams registers the live output of runs.
func (r *routes) registerStreams(api huma.API) {
	op := describeRoute(http.MethodGet, "/jobs/{job}/output", "Live output", "runs", http.StatusNotFound, http.StatusTooManyRequests)
	op.Description = "Server-sent events. A replica has at most 256 streams at once; a stream ends after an hour, and when its reader is slow."
	op.Middlewares = huma.Middlewares{r.limitStreams(api)}
	sse.Register(api, op, map[string]any{"line": operator.OutputLine{}, "note": note{}, "end": ended{}, "ping": ping{}}, r.streamOutput)
}

// limitStreams refuses streams beyond maxStreams. It removes the read deadline of the others, which is for the arrival of a request: they have no body, and
// so have arrived.
func (r *routes) limitStreams(api huma.API) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		select {
		case r.streams <- struct{}{}:
			defer func() { <-r.streams }()
		default:
			ctx.SetHeader("Retry-After", "30")
			// a failed write means that the client has gone
			_ = huma.WriteErr(api, ctx, http.StatusTooManyRequests, fmt.Sprintf("%d streams are open on this replica; try again later, or another replica", maxStreams))
			return
		}
		ctx.SetHeader("X-Accel-Buffering", "no") // nginx would buffer events
		_, w := humago.Unwrap(ctx)
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // a writer without deadlines has none to remove
		next(ctx)
	}
}

// streamOutput sends the output of runs until the client goes, the server stops, or the run ends.
func (r *routes) streamOutput(ctx context.Context, in *liveInput, send sse.Sender) {
	ctx, cancel := context.WithTimeout(ctx, maxStream)
	defer cancel()
	events := make(chan any)
	emit := func(e any) {
		select {
		case events <- e:
		case <-ctx.Done():
		}
	}
	go func() { // it ends with ctx, and is waited for below: events is read until it is closed
		defer close(events)
		emit(r.followRuns(ctx, in, emit))
	}()
	forwardEvents(events, r.Stopping(ctx), send, cancel)
}

// followRuns passes the output of runs to emit, and returns the event that ends the stream.
func (r *routes) followRuns(ctx context.Context, in *liveInput, emit func(any)) (end ended) {
	defer func() {
		if v := recover(); v != nil {
			r.Log.Error("HTTP request failed", "job", in.Job, "error", v, "stack", string(debug.Stack()))
			end = ended{Error: "a fault of the server: see its log"}
		}
	}()
	err := r.Operator.Follow(ctx, operator.FollowRequest{Job: in.Job, Run: in.RunID, Every: streamEvery}, operator.Viewer{
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
	records[0].Output = nil // it was sent already
	return ended{Run: &records[0]}
}

// forwardEvents sends events until the channel is closed. It cancels the stream if the client has gone or is too slow, or if the server stops.
func forwardEvents(events <-chan any, stopping <-chan struct{}, send sse.Sender, cancel func()) {
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
		case <-stopping:
			if !gone {
				_ = send.Data(ended{Error: "the replica is stopping; ask another one"}) // a failed write means that the client has gone
			}
			gone, stopping = true, nil
		}
	}
}
