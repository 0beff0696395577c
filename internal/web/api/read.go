package api

import (
	"context"
	"net/http"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/scheduler/run"
	"github.com/danielgtaylor/huma/v2"
)

// JobPath is the path parameter with the name of a job.
type JobPath struct {
	Job string `path:"job" maxLength:"180" doc:"name of the job; with per_tick = \"all\", JOB@REPLICA"`
}

// A JobFilter selects jobs. A job must match all fields that are set.
type JobFilter struct {
	Failed  bool   `query:"failed" doc:"only jobs with a problem"`
	Running bool   `query:"running" doc:"only jobs with a run"`
	Paused  bool   `query:"paused" doc:"only jobs that are paused"`
	Tag     string `query:"tag" maxLength:"128" doc:"only jobs with this tag"`
	Match   string `query:"match" maxLength:"128" doc:"a pattern for names, as in a shell, or a part of them"`
}

// A statusQuery selects a page of the jobs. A page of the default limit has less than 300 kB.
type statusQuery struct {
	JobFilter
	Limit int    `query:"limit" default:"40" minimum:"1" maximum:"100000" doc:"how many jobs, the first by name; if there are more, next_after is set, and the problems are those of the cluster and of these jobs"`
	After string `query:"after" maxLength:"180" doc:"only jobs after this name, as next_after of the page before"`
}

func registerGet[I, O any](r *routes, api huma.API, path, summary, tag string, read func(context.Context, *I) (O, error), errs ...int) {
	register(r, api, describeRoute(http.MethodGet, path, summary, tag, errs...), read)
}

func registerStatus[I, O any](r *routes, api huma.API, path, summary, tag string, request func(*I) cluster.StatusRequest, part func(context.Context, *cluster.Status) O, errs ...int) {
	registerGet(r, api, path, summary, tag, func(ctx context.Context, in *I) (body O, err error) {
		st, err := r.Operator.Status(ctx, request(in))
		if err != nil {
			return body, err
		}
		return part(ctx, st), nil
	}, errs...)
}

func registerPart[O any](r *routes, api huma.API, path, summary string, part func(*cluster.Status) O) {
	registerStatus(r, api, path, summary, "cluster", func(*struct{}) (all cluster.StatusRequest) { return all },
		func(_ context.Context, st *cluster.Status) O { return part(st) })
}

func (r *routes) registerViews(api huma.API) {
	filtered := func(f *JobFilter) cluster.StatusRequest {
		return cluster.StatusRequest{Failed: f.Failed, Running: f.Running, Paused: f.Paused, Tag: f.Tag, Match: f.Match}
	}
	ofJob := func(p *JobPath) cluster.StatusRequest { return cluster.StatusRequest{Job: p.Job} }
	registerStatus(r, api, "/status", "Status", "cluster", func(q *statusQuery) cluster.StatusRequest {
		req := filtered(&q.JobFilter)
		req.Limit, req.After = q.Limit, q.After
		return req
	}, func(_ context.Context, st *cluster.Status) *cluster.Status { return st }, 404)
	r.registerParts(api)
	registerStatus(r, api, "/jobs", "Jobs", "jobs", filtered, func(_ context.Context, st *cluster.Status) []cluster.Job { return st.Jobs }, 404)
	registerStatus(r, api, "/jobs/{job}", "Job", "jobs", ofJob, func(_ context.Context, st *cluster.Status) cluster.Job { return st.Jobs[0] }, 404, 409)
	registerStatus(r, api, "/jobs/{job}/settings", "Settings", "jobs", ofJob, func(ctx context.Context, st *cluster.Status) *cluster.JobSettings {
		return r.Operator.Settings(ctx, st.Replicas, st.Jobs[0].Name)
	}, 404, 409)
	registerGet(r, api, "/ticks", "Next ticks", "jobs", r.listTicks, 404)
	registerGet(r, api, "/jobs/{job}/why", "Why", "jobs", func(ctx context.Context, q *whyQuery) (*cluster.Explanation, error) {
		return r.Operator.Why(ctx, q.Job, q.Time)
	}, 404, 409)
	registerGet(r, api, "/notifications", "Notifications", "cluster", func(ctx context.Context, q *struct {
		Limit int `query:"limit" default:"50" minimum:"1" maximum:"1000" doc:"how many deliveries, the newest"`
	},
	) (*cluster.Notifications, error) {
		return r.Operator.Notifications(ctx, q.Limit)
	})
	registerGet(r, api, "/audit", "Audit log", "cluster", func(ctx context.Context, q *struct {
		Limit int `query:"limit" default:"50" minimum:"1" maximum:"1000" doc:"how many acts, the newest"`
	},
	) ([]journal.Act, error) {
		acts, _, err := r.Operator.Acts(ctx, q.Limit)
		return acts, err
	})
}

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

type tickQuery struct {
	Job   []string  `query:"job,explode" maxItems:"100" doc:"names of jobs; without any, of all"`
	From  time.Time `query:"from" doc:"ticks after this instant (default: now, by the clock of Redis)"`
	Until time.Time `query:"until" doc:"ticks up to this instant (default: a day after from; at most a year)"`
	Limit int       `query:"limit" default:"100" minimum:"1" maximum:"10000" doc:"how many, the first"`
}

func (r *routes) listTicks(ctx context.Context, q *tickQuery) ([]Tick, error) {
	w := cluster.Window{From: q.From, Until: q.Until, Limit: q.Limit}
	if w.From.IsZero() {
		now, err := r.Operator.Now(ctx)
		if err != nil {
			return nil, err
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
	ticks := []Tick{}
	for _, t := range next {
		ticks = append(ticks, Tick{t.Job, t.At.In(t.Zone)})
	}
	return ticks, err
}

// isShowable reports whether an instant can be formatted in every time zone, with a year of four digits.
func isShowable(t time.Time) bool { return t.UTC().Year() >= 1 && t.UTC().Year() <= 9998 }

type whyQuery struct {
	JobPath
	Time string `query:"time" required:"true" maxLength:"64" doc:"RFC 3339; a time by the clock of the job's zone, with or without a date; now; or how long ago, as -5m"`
}

type runPath struct {
	JobPath
	RunID string `path:"run" maxLength:"200" doc:"id of the run"`
}

type runFilter struct {
	Job     string    `query:"job" maxLength:"180" doc:"name of a job (default: all jobs)"`
	Failed  bool      `query:"failed" doc:"only what went wrong: failed, timeout, lost, abandoned, missed; excludes outcome"`
	Outcome []string  `query:"outcome,explode" maxItems:"20" enum:"running,ok,failed,timeout,canceled,lost,abandoned,skipped,missed" doc:"only these outcomes"`
	Since   time.Time `query:"since" doc:"only what ended at this instant or later"`
	Until   time.Time `query:"until" doc:"only what ended before this instant"`
	Limit   int       `query:"limit" default:"100" minimum:"1" maximum:"1000" doc:"how many, the newest"`
}

// Resolve refuses a request for both the failures and certain outcomes, as the command does.
func (q *runFilter) Resolve(huma.Context) []error {
	if q.Failed && len(q.Outcome) > 0 {
		return []error{&huma.ErrorDetail{Location: "query.failed", Message: "excludes outcome; send one of them"}}
	}
	return nil
}

func (r *routes) registerRuns(api huma.API) {
	registerGet(r, api, "/runs", "Runs", "runs", func(ctx context.Context, q *runFilter) ([]journal.Record, error) {
		req := cluster.HistoryRequest{Job: q.Job, Since: q.Since, Until: q.Until, Limit: q.Limit}
		for _, outcome := range q.Outcome {
			req.Outcomes = append(req.Outcomes, run.Outcome(outcome))
		}
		if q.Failed {
			req.Outcomes = append(req.Outcomes, run.Failures()...)
		}
		h, err := r.Operator.History(ctx, req)
		if err != nil {
			return nil, err
		}
		return h.Records, nil
	}, 404)
	registerGet(r, api, "/jobs/{job}/runs/{run}", "Run", "runs", func(ctx context.Context, q *runPath) (journal.Record, error) {
		records, err := r.Operator.Logs(ctx, cluster.LogsRequest{Job: q.Job, Run: q.RunID, Limit: 1})
		if err != nil {
			return journal.Record{}, err
		}
		return records[0], nil
	}, 404, 409)
}
