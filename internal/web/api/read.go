package api

import (
	"context"
	"net/http"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/danielgtaylor/huma/v2"
)

// JobPath is the part of a path that contains the name of a job.
type JobPath struct {
	Job string `path:"job" maxLength:"128" doc:"name of the job"`
}

// jobFilter selects jobs. A job must match all fields that are set.
type jobFilter struct {
	Failed  bool   `query:"failed" doc:"only jobs with a problem"`
	Running bool   `query:"running" doc:"only jobs with a run"`
	Paused  bool   `query:"paused" doc:"only jobs that are paused"`
	Tag     string `query:"tag" maxLength:"128" doc:"only jobs with this tag"`
	Match   string `query:"match" maxLength:"128" doc:"a pattern for names, as in a shell, or a part of them"`
}

func (f jobFilter) statusRequest() cluster.StatusRequest {
	return cluster.StatusRequest{Failed: f.Failed, Running: f.Running, Paused: f.Paused, Tag: f.Tag, Match: f.Match}
}

// registerPart registers a route that answers with one part of the status.
func registerPart[T any](r *routes, api huma.API, path, summary string, part func(*cluster.Status) T) {
	huma.Register(api, describeRoute(http.MethodGet, path, summary, "cluster"), func(ctx context.Context, _ *struct{}) (*answer[T], error) {
		st, err := r.Operator.Status(ctx, cluster.StatusRequest{})
		if err != nil {
			return nil, r.errorAnswer(ctx, err)
		}
		return &answer[T]{part(st)}, nil
	})
}

// registerViews registers the routes that show the current state of the cluster.
func (r *routes) registerViews(api huma.API) {
	huma.Register(api, describeRoute(http.MethodGet, "/status", "Status", "cluster", 404), func(ctx context.Context, q *jobFilter) (*answer[*cluster.Status], error) {
		st, err := r.Operator.Status(ctx, q.statusRequest())
		return &answer[*cluster.Status]{st}, r.errorAnswer(ctx, err)
	})
	r.registerParts(api)
	huma.Register(api, describeRoute(http.MethodGet, "/jobs", "Jobs", "jobs", 404), func(ctx context.Context, q *jobFilter) (*answer[[]cluster.Job], error) {
		st, err := r.Operator.Status(ctx, q.statusRequest())
		if err != nil {
			return nil, r.errorAnswer(ctx, err)
		}
		return &answer[[]cluster.Job]{st.Jobs}, nil
	})
	huma.Register(api, describeRoute(http.MethodGet, "/jobs/{job}", "Job", "jobs", 404, 409), func(ctx context.Context, q *JobPath) (*answer[cluster.Job], error) {
		st, err := r.Operator.Status(ctx, cluster.StatusRequest{Job: q.Job})
		if err != nil {
			return nil, r.errorAnswer(ctx, err)
		}
		return &answer[cluster.Job]{st.Jobs[0]}, nil
	})
	huma.Register(api, describeRoute(http.MethodGet, "/jobs/{job}/settings", "Settings", "jobs", 404, 409), func(ctx context.Context, q *JobPath) (*answer[*cluster.JobSettings], error) {
		st, err := r.Operator.Status(ctx, cluster.StatusRequest{Job: q.Job})
		if err != nil {
			return nil, r.errorAnswer(ctx, err)
		}
		return &answer[*cluster.JobSettings]{r.Operator.Settings(ctx, st.Replicas, q.Job)}, nil
	})
	huma.Register(api, describeRoute(http.MethodGet, "/ticks", "Next ticks", "jobs", 404), r.listTicks)
	huma.Register(api, describeRoute(http.MethodGet, "/jobs/{job}/why", "Why", "jobs", 404, 409), r.explainInstant)
	huma.Register(api, describeRoute(http.MethodGet, "/audit", "Audit log", "cluster"), func(ctx context.Context, q *struct {
		Limit int `query:"limit" default:"50" minimum:"1" maximum:"1000" doc:"how many acts, the newest"`
	},
	) (*answer[[]journal.Act], error) {
		acts, _, err := r.Operator.Acts(ctx, q.Limit)
		return &answer[[]journal.Act]{acts}, r.errorAnswer(ctx, err)
	})
}

// registerParts registers a route for each part of the status.
func (r *routes) registerParts(api huma.API) {
	registerPart(r, api, "/replicas", "Replicas", func(st *cluster.Status) []cluster.Replica { return st.Replicas })
	registerPart(r, api, "/leader", "Leader", func(st *cluster.Status) *cluster.Leader { return st.Leader })
	registerPart(r, api, "/problems", "Problems", func(st *cluster.Status) []cluster.Problem { return st.Problems })
	registerPart(r, api, "/warnings", "Warnings", func(st *cluster.Status) []redisconn.Warning { return st.Warnings })
	registerPart(r, api, "/redis", "Redis", func(st *cluster.Status) redisconn.Deployment { return st.Redis })
	registerPart(r, api, "/pools", "Pools", func(st *cluster.Status) []cluster.Pool { return st.Pools })
	registerPart(r, api, "/locks", "Locks", func(st *cluster.Status) []cluster.Lock { return st.Locks })
}

// A Tick is a tick of a job, with its time in the job's time zone.
type Tick struct {
	Job  string    `json:"job"`
	Tick time.Time `json:"tick"`
}

// longestWindow is the maximum length of the window in which ticks are listed.
const longestWindow = 366 * 24 * time.Hour

// listTicks returns the next ticks of jobs.
func (r *routes) listTicks(ctx context.Context, q *struct {
	Job   []string  `query:"job,explode" maxItems:"100" doc:"names of jobs; without any, of all"`
	From  time.Time `query:"from" doc:"ticks after this instant (default: now, by the clock of Redis)"`
	Until time.Time `query:"until" doc:"ticks up to this instant (default: a day after from; at most a year)"`
	Limit int       `query:"limit" default:"100" minimum:"1" maximum:"10000" doc:"how many, the first"`
},
) (*answer[[]Tick], error) {
	w := cluster.Window{From: q.From, Until: q.Until, Limit: q.Limit}
	if w.From.IsZero() {
		now, err := r.Operator.Now(ctx)
		if err != nil {
			return nil, r.errorAnswer(ctx, err)
		}
		w.From = now
	}
	if w.Until.IsZero() {
		w.Until = w.From.Add(24 * time.Hour)
	}
	if !isShowable(w.From) || !isShowable(w.Until) {
		return nil, huma.NewError(http.StatusUnprocessableEntity, "from and until must be of the years 1 to 9998")
	}
	if span := w.Until.Sub(w.From); span < 0 || span > longestWindow {
		return nil, huma.NewError(http.StatusUnprocessableEntity, "until must be from 0 to 366 days after from")
	}
	next, err := r.Operator.NextTicks(ctx, q.Job, w)
	if err != nil {
		return nil, r.errorAnswer(ctx, err)
	}
	ticks := []Tick{}
	for _, t := range next {
		ticks = append(ticks, Tick{t.Job, t.At.In(t.Zone)})
	}
	return &answer[[]Tick]{ticks}, nil
}

// isShowable reports whether an instant can be formatted in every time zone, with a year of four digits.
func isShowable(t time.Time) bool { return t.UTC().Year() >= 1 && t.UTC().Year() <= 9998 }

// explainInstant explains what happened to a job at an instant.
func (r *routes) explainInstant(ctx context.Context, q *struct {
	JobPath
	Time string `query:"time" required:"true" maxLength:"64" doc:"RFC 3339, or a date and a time by the clock of the job's zone"`
},
) (*answer[*cluster.Story], error) {
	story, err := r.Operator.Why(ctx, q.Job, q.Time)
	return &answer[*cluster.Story]{story}, r.errorAnswer(ctx, err)
}

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
