package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/units"
)

const (
	// maxBodyBytes is the size limit of a body. The longest permitted list of jobs fits. bodyTimeout is the maximum time for a body to arrive.
	maxBodyBytes = 256 << 10
	bodyTimeout  = 10 * time.Second
)

// ActReason is the field that the bodies of all acts have in common.
type ActReason struct {
	Reason string `json:"reason,omitempty" maxLength:"200" doc:"for the audit log: one line"`
}

func (b ActReason) asRequester(user string) cluster.Requester {
	return cluster.Requester{By: user, Reason: b.Reason}
}

// Trigger is the body of a trigger request.
type Trigger struct {
	ActReason
	Tick time.Time `json:"tick,omitzero" doc:"a past tick of the schedule, which the run gets as its own"`
	ID   string    `json:"id,omitempty" maxLength:"128" doc:"your own id: requests of a user with the same id, job and tick within ten minutes are one"`
}

// Requested describes an accepted trigger request. If no replica starts the run within a minute, the request expires.
type Requested struct {
	Request string    `json:"request" doc:"id of the request"`
	Job     string    `json:"job"`
	Tick    time.Time `json:"tick,omitzero"`
	Expires time.Time `json:"expires" doc:"from then on no replica starts it; that of the first request with the same id"`
}

// Cancel is the body of a request to stop one run or all runs of a job.
type Cancel struct {
	ActReason
	RunID string `json:"run_id,omitempty" maxLength:"128" doc:"id of one run (default: all of the job)"`
}

// Resume is the body of a request to end the pauses of jobs. It selects the jobs by name, by tag, or all of them.
type Resume struct {
	ActReason
	Jobs []string `json:"jobs,omitempty" maxItems:"1000" doc:"names of jobs"`
	Tags []string `json:"tags,omitempty" maxItems:"100" doc:"jobs with one of these tags"`
	All  bool     `json:"all,omitempty" doc:"all jobs"`
}

func (s Resume) jobSelection() cluster.Selection {
	return cluster.Selection{Jobs: s.Jobs, Tags: s.Tags, All: s.All}
}

// Pause is the body of a request to pause jobs.
type Pause struct {
	Resume
	For string `json:"for,omitempty" maxLength:"32" doc:"how long, as 2h or 7d (default: until the jobs are resumed)"`
}

// ofJob is the input of a request about one job. The body is optional.
type ofJob[B any] struct {
	JobPath
	Body *B
}

// ofJobs is the input of a request about the jobs that its body selects.
type ofJobs[B any] struct{ Body B }

func orZero[B any](b *B) *B {
	if b == nil {
		return new(B)
	}
	return b
}

// registerActs registers the routes by which users change something.
func (r *routes) registerActs(api huma.API) {
	registerAct(r, api, "/jobs/{job}/trigger", "Trigger", func(ctx context.Context, in *ofJob[Trigger], user string) (Requested, error) {
		b := orZero(in.Body)
		q, err := r.Operator.Trigger(ctx, cluster.TriggerRequest{Requester: b.asRequester(user), Job: in.Job, Tick: b.Tick, ID: b.ID})
		return Requested{q.ID, q.Job, q.Tick, q.Expires}, err
	})
	registerAct(r, api, "/jobs/{job}/cancel", "Cancel", func(ctx context.Context, in *ofJob[Cancel], user string) ([]cluster.CanceledRun, error) {
		b := orZero(in.Body)
		return r.Operator.Cancel(ctx, cluster.CancelRequest{Requester: b.asRequester(user), Job: in.Job, Run: b.RunID})
	})
	registerAct(r, api, "/pause", "Pause", func(ctx context.Context, in *ofJobs[Pause], user string) ([]cluster.PausedJob, error) {
		b := in.Body
		req := cluster.PauseRequest{Selection: b.jobSelection(), Requester: b.asRequester(user)}
		if b.For != "" {
			d, err := units.ParseDuration(b.For)
			if err != nil || d <= 0 {
				return nil, huma.NewError(http.StatusUnprocessableEntity, "for must be a duration, as 2h or 7d")
			}
			req.For = d
		}
		return r.Operator.Pause(ctx, req)
	})
	registerAct(r, api, "/resume", "Resume", func(ctx context.Context, in *ofJobs[Resume], user string) ([]cluster.PausedJob, error) {
		return r.Operator.Resume(ctx, cluster.ResumeRequest{Selection: in.Body.jobSelection(), Requester: in.Body.asRequester(user)})
	})
}

// registerAct registers a route that changes something. The route refuses users without the right to act.
func registerAct[I, O any](r *routes, api huma.API, path, summary string, do func(ctx context.Context, in *I, user string) (O, error)) {
	op := describeRoute(http.MethodPost, path, summary, "acts", http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusTooManyRequests)
	op.MaxBodyBytes, op.BodyReadTimeout = maxBodyBytes+1, bodyTimeout // without the 1, huma would refuse a body of exactly maxBodyBytes
	op.Middlewares = huma.Middlewares{r.refuseViewers(api)}
	huma.Register(api, op, func(ctx context.Context, in *I) (*answer[O], error) {
		user, _ := r.User(ctx)
		out, err := do(ctx, in, user)
		if err != nil {
			return nil, r.errorAnswer(ctx, err)
		}
		return &answer[O]{out}, nil
	})
}

// refuseViewers refuses users without the right to act, before their request is parsed.
func (r *routes) refuseViewers(api huma.API) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		user, mayAct := r.User(ctx.Context())
		if !mayAct {
			// a failed write means that the client has gone
			_ = huma.WriteErr(api, ctx, http.StatusForbidden, "user "+user+" may not act: that takes the role operator, by [server].token_file or [server].oidc")
			return
		}
		next(ctx)
	}
}
