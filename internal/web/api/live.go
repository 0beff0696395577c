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

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
)

const (
	// maxStreams is the maximum number of open streams, because each stream calls Redis once per second.
	maxStreams = 256
	// streamEvery is the interval at which a stream checks for new output.
	streamEvery = time.Second
	// pingEvery is the interval of pings. They keep proxies from closing a stream without output.
	pingEvery = 15 * time.Second
	// maxStream is the maximum duration of a stream. The client then reconnects, and must present a token that is valid at that time.
	maxStream = time.Hour
)

// Events of a stream, besides cluster.OutputLine.
type (
	// A note is a remark about the output, for example that lines are missing.
	note struct {
		RunID string `json:"run_id"`
		Note  string `json:"note"`
	}
	// An ended event is the last event of a stream. If the stream is about one run, the event contains the record of that run.
	ended struct {
		Run   *journal.Record `json:"run,omitempty"`
		Error string          `json:"error,omitempty"`
	}
	// A ping shows the client that the stream is still open.
	ping struct{}
)

type liveInput struct {
	JobPath
	RunID string `query:"run_id" maxLength:"200" doc:"id of one run, with whose end the stream ends (default: all runs of the job)"`
}

func (r *routes) registerStreams(api huma.API) {
	op := describeRoute(http.MethodGet, "/jobs/{job}/output", "Live output", "runs", http.StatusNotFound, http.StatusTooManyRequests)
	op.Description = "Server-sent events. A replica has at most 256 streams at once; a stream ends after an hour, and when its reader is slow."
	op.Middlewares = huma.Middlewares{r.limitStreams(api)}
	sse.Register(api, op, map[string]any{"line": cluster.OutputLine{}, "note": note{}, "end": ended{}, "ping": ping{}}, r.streamOutput)
}

// limitStreams refuses streams beyond maxStreams. For accepted streams it removes the read deadline, which limits the time for a request to arrive. The
// request of a stream has no body, so it has arrived completely. A HEAD request gets no stream: its client would not notice it, and send further requests on the
// same connection, and writes to a client that has gone would not fail.
func (r *routes) limitStreams(api huma.API) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		if ctx.Method() == http.MethodHead {
			ctx.SetHeader("Content-Type", "text/event-stream")
			return
		}
		select {
		case r.streams <- struct{}{}:
			defer func() { <-r.streams }()
		default:
			ctx.SetHeader("Retry-After", "30")
			// a failed write means that the client has gone
			_ = huma.WriteErr(api, ctx, http.StatusTooManyRequests, fmt.Sprintf("%d streams are open on this replica; try again later, or another replica", maxStreams))
			return
		}
		ctx.SetHeader("X-Accel-Buffering", "no") // otherwise nginx would buffer events
		_, w := humago.Unwrap(ctx)
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // fails only for a writer without deadlines, in tests
		next(ctx)
	}
}

// streamOutput sends the output of runs until the client disconnects, the server stops, or the selected run ends.
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
	go func() { // closes events after followRuns has returned, at the latest when ctx ends; forwardEvents reads events until then
		defer close(events)
		emit(r.followRuns(ctx, in, emit))
	}()
	forwardEvents(events, r.Stopping(ctx), send, cancel)
}

// followRuns passes the output of runs to emit. It returns the last event of the stream.
func (r *routes) followRuns(ctx context.Context, in *liveInput, emit func(any)) (end ended) {
	defer func() {
		if v := recover(); v != nil {
			r.Log.Error("HTTP request failed", "job", in.Job, "error", v, "stack", string(debug.Stack()))
			end = ended{Error: "a fault of the server: see its log"}
		}
	}()
	err := r.Operator.Follow(ctx, cluster.FollowRequest{Job: in.Job, Run: in.RunID, Every: streamEvery}, cluster.Viewer{
		Line: func(l cluster.OutputLine) { emit(l) },
		Note: func(run, text string) { emit(note{run, text}) },
	})
	if err != nil {
		return ended{Error: err.Error()}
	}
	if in.RunID == "" {
		return ended{}
	}
	records, err := r.Operator.Logs(ctx, cluster.LogsRequest{Job: in.Job, Run: in.RunID, Limit: 1})
	if err != nil {
		return ended{Error: err.Error()}
	}
	records[0].Output = nil // the stream has sent the output already
	return ended{Run: &records[0]}
}

// forwardEvents sends the events from a channel until the channel is closed. If the client has disconnected or is too slow, or if the server stops, it calls
// cancel, and discards the remaining events.
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
