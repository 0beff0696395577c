package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
)

// runPath is the part of a path that contains the name of a job and the id of a run.
type runPath struct {
	JobPath
	RunID string `path:"run" maxLength:"128" doc:"id of the run"`
}

// runFilter selects records of the history.
type runFilter struct {
	Job     string    `query:"job" maxLength:"128" doc:"name of a job (default: all jobs)"`
	Failed  bool      `query:"failed" doc:"only what went wrong: failed, timeout, lost, abandoned, missed"`
	Outcome []string  `query:"outcome,explode" maxItems:"20" enum:"running,ok,failed,timeout,canceled,lost,abandoned,skipped,missed" doc:"only these outcomes"`
	Since   time.Time `query:"since" doc:"only what ended at this instant or later"`
	Until   time.Time `query:"until" doc:"only what ended before this instant"`
	Limit   int       `query:"limit" default:"100" minimum:"1" maximum:"1000" doc:"how many, the newest"`
}

// registerRuns registers the routes that show runs, and ticks without a run.
func (r *routes) registerRuns(api huma.API) {
	huma.Register(api, describeRoute(http.MethodGet, "/runs", "Runs", "runs", 404), func(ctx context.Context, q *runFilter) (*answer[[]journal.Record], error) {
		req := cluster.HistoryRequest{Job: q.Job, Outcomes: q.Outcome, Since: q.Since, Until: q.Until, Limit: q.Limit}
		if q.Failed {
			req.Outcomes = append(req.Outcomes, journal.Failures()...)
		}
		h, err := r.Operator.History(ctx, req)
		if err != nil {
			return nil, r.errorAnswer(ctx, err)
		}
		return &answer[[]journal.Record]{h.Records}, nil
	})
	huma.Register(api, describeRoute(http.MethodGet, "/jobs/{job}/runs/{run}", "Run", "runs", 404, 409), func(ctx context.Context, q *runPath) (*answer[journal.Record], error) {
		records, err := r.Operator.Logs(ctx, cluster.LogsRequest{Job: q.Job, Run: q.RunID, Limit: 1})
		if err != nil {
			return nil, r.errorAnswer(ctx, err)
		}
		return &answer[journal.Record]{records[0]}, nil
	})
}
