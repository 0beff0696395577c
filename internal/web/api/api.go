// Package api is version 1 of the HTTP API of a cluster. It offers the operations of the command line as JSON. Any replica answers for the whole cluster. The
// package only translates between HTTP and [cluster.Shared], which implements the operations. The description of the routes (OpenAPI 3.1) is generated from
// the handlers.
package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/logging"
	"github.com/cronclave/cronclave/internal/units"
	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/hashicorp/go-hclog"
)

// rootPath is the prefix of the paths of all versions, and prefix is the prefix of this version.
const rootPath, prefix = "/api/", "/api/v1"

// Config configures an API.
type Config struct {
	// Operator accesses the cluster. The caller of [New] closes it.
	Operator *cluster.Shared
	// Version is the version of the program, for the description.
	Version string
	// User takes the context of a request. It returns the name of the request's user, and whether the user may act.
	User func(context.Context) (name string, mayAct bool)
	// Stopping takes the context of a request. It returns a channel that is closed when the server begins to stop.
	Stopping func(context.Context) <-chan struct{}
	// Log receives requests that failed through a fault of the server.
	Log hclog.Logger
}

// routes holds the handlers of an API.
type routes struct {
	Config
	streams chan struct{} // one element per open stream of events
	damaged logging.Rarely
}

// New returns the handler of all paths below /api/.
func New(cfg Config) (http.Handler, error) {
	mux := http.NewServeMux()
	r := &routes{Config: cfg, streams: make(chan struct{}, maxStreams)}
	c := huma.DefaultConfig("cronclave", cfg.Version)
	c.Info.Description = "The status, the history and the control of one cluster. Any replica answers for all."
	c.OpenAPIPath, c.DocsPath, c.SchemasPath = "", "", ""
	c.CreateHooks = nil // no links to schemas, so that answers are the same JSON as on the command line
	format := huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: unmarshalJSON}
	c.Formats = map[string]huma.Format{"application/json": format, "json": format}
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer"}}
	c.Security = []map[string][]string{{"token": {}}}
	api := humago.New(mux, c)
	api.UseMiddleware(checkQueries(api))
	r.registerViews(api)
	r.registerRuns(api)
	r.registerActs(api)
	r.registerStreams(api)
	if err := describeIn(mux, api); err != nil {
		return nil, fmt.Errorf("describe the API: %w", err)
	}
	mux.HandleFunc(rootPath, func(w http.ResponseWriter, _ *http.Request) {
		writeError(w, newError(http.StatusNotFound, "no such route; "+prefix+"/openapi.json has all"))
	})
	return withoutCaching(mux), nil
}

// writeError answers a request that matches no operation.
func writeError(w http.ResponseWriter, fault huma.StatusError) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(fault.GetStatus())
	_ = json.NewEncoder(w).Encode(fault) // a failed write means that the client has gone
}

// withoutCaching forbids caches to store answers. An answer is valid only at one moment and for one user.
func withoutCaching(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

// describeIn adds the routes of the OpenAPI description. It generates the description in advance, because huma would generate it without a lock during the
// first request.
func describeIn(mux *http.ServeMux, api huma.API) error {
	asJSON, err := api.OpenAPI().MarshalJSON()
	if err != nil {
		return err
	}
	asYAML, err := api.OpenAPI().YAML()
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{"openapi.json": asJSON, "openapi.yaml": asYAML} {
		kind := "application/vnd.oai.openapi+" + name[len("openapi."):]
		mux.HandleFunc("GET "+prefix+"/"+name, refuseQuery(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = w.Write(text) // a failed write means that the client has gone
		}))
	}
	return nil
}

// An answer is the output of a successful operation.
type answer[T any] struct{ Body T }

// describeRoute returns the description of a route. The id of the operation is the summary in lower case, with dashes.
func describeRoute(method, path, summary, tag string, errs ...int) huma.Operation {
	id := strings.ReplaceAll(strings.ToLower(summary), " ", "-")
	return huma.Operation{OperationID: id, Method: method, Path: prefix + path, Summary: summary, Tags: []string{tag},
		Errors: append(errs, http.StatusUnauthorized, http.StatusUnprocessableEntity, http.StatusServiceUnavailable)}
}

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
