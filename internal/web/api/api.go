// Package api is version 1 of the HTTP API of a cluster. It offers the operations of the command line as JSON. Any replica answers for the whole cluster. The
// package only translates between HTTP and [cluster.Shared], which implements the operations. The description of the routes (OpenAPI 3.1) is generated from
// the handlers.
package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
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
	// Version is the version of the program, for the OpenAPI description.
	Version string
	// User returns the name of the user of a request, and whether the user may act. Its argument is the context of the request.
	User func(context.Context) (name string, mayAct bool)
	// Stopping returns a channel that is closed when the server begins to stop. Its argument is the context of a request.
	Stopping func(context.Context) <-chan struct{}
	// Log receives requests that failed through a fault of the server.
	Log hclog.Logger
}

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

// writeError answers a request that huma does not handle, because it has no route or is for the OpenAPI description.
func writeError(w http.ResponseWriter, fault huma.StatusError) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(fault.GetStatus())
	_ = json.NewEncoder(w).Encode(fault) // a failed write means that the client has gone
}

// withoutCaching forbids caches to store answers, because an answer is valid only at one moment and for one user.
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

type answer[T any] struct{ Body T }

func register[I, O any](r *routes, api huma.API, op huma.Operation, do func(context.Context, *I) (O, error)) {
	huma.Register(api, op, func(ctx context.Context, in *I) (*answer[O], error) {
		body, err := do(ctx, in)
		if err != nil {
			return nil, r.errorAnswer(ctx, err)
		}
		return &answer[O]{body}, nil
	})
}

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

// A RequestedRun describes an accepted trigger request. If no replica starts the run within a minute, the request expires.
type RequestedRun struct {
	Request string    `json:"request,omitempty" doc:"id of the request"`
	Job     string    `json:"job"`
	Tick    time.Time `json:"tick,omitzero"`
	Expires time.Time `json:"expires,omitzero" doc:"from then on no replica starts it; that of the first request with the same id"`
}

// A RequestedInstance is the request for a run of an instance, or the reason for which there is none.
type RequestedInstance struct {
	RequestedRun
	Error string `json:"error,omitempty" doc:"why there is no request"`
}

// Requested is the answer to a trigger of a job. For a job with per_tick = "all", only the instances have requests.
type Requested struct {
	RequestedRun
	Instances []RequestedInstance `json:"instances,omitempty" doc:"of a job with per_tick = \"all\", which has no request itself: each instance whose replica can run it"`
}

// requestedOf returns the answer for a job. Its request has the job's name, or there is one for each instance.
func requestedOf(job string, asked []cluster.Asked) (to Requested) {
	if to.Job = job; len(asked) == 1 && asked[0].Job == job {
		to.RequestedRun = requestedRun(asked[0].Request)
		return to
	}
	for _, a := range asked {
		if a.Err != nil {
			to.Instances = append(to.Instances, RequestedInstance{RequestedRun{Job: a.Job}, a.Err.Error()})
			continue
		}
		to.Tick = a.Tick
		to.Instances = append(to.Instances, RequestedInstance{RequestedRun: requestedRun(a.Request)})
	}
	return to
}

func requestedRun(q journal.Request) RequestedRun {
	return RequestedRun{q.ID, q.Job, q.Tick, q.Expires}
}

// Pause is the body of a request to pause jobs.
type Pause struct {
	cluster.Requester
	cluster.Selection
	For string `json:"for,omitempty" maxLength:"32" doc:"how long, as 2h or 7d (default: until the jobs are resumed)"`
}

// ofJob is the input of an act on one job. The body is optional.
type ofJob[B any] struct {
	Job  string `path:"job" maxLength:"180" doc:"name of the job; with per_tick = \"all\", of the job for all its instances, or JOB@REPLICA"`
	Body *B
}

type ofJobs[B any] struct{ Body B }

func orZero[B any](b *B) *B { return cmp.Or(b, new(B)) }

func (r *routes) registerActs(api huma.API) {
	registerAct(r, api, "/jobs/{job}/trigger", "Trigger", func(ctx context.Context, in *ofJob[cluster.TriggerRequest], user string) (Requested, error) {
		req := orZero(in.Body)
		req.By, req.Job = user, in.Job
		asked, err := r.Operator.Trigger(ctx, *req)
		return requestedOf(in.Job, asked), err
	})
	registerAct(r, api, "/jobs/{job}/cancel", "Cancel", func(ctx context.Context, in *ofJob[cluster.CancelRequest], user string) ([]cluster.CanceledRun, error) {
		req := orZero(in.Body)
		req.By, req.Job = user, in.Job
		return r.Operator.Cancel(ctx, *req)
	})
	registerAct(r, api, "/pause", "Pause", func(ctx context.Context, in *ofJobs[Pause], user string) ([]cluster.PausedJob, error) {
		req := cluster.PauseRequest{Selection: in.Body.Selection, Requester: in.Body.Requester}
		req.By = user
		if text := in.Body.For; text != "" {
			d, err := units.ParseDuration(text)
			if err != nil || d <= 0 {
				return nil, huma.NewError(http.StatusUnprocessableEntity, "for must be a duration, as 2h or 7d")
			}
			req.For = d
		}
		return r.Operator.Pause(ctx, req)
	})
	registerAct(r, api, "/resume", "Resume", func(ctx context.Context, in *ofJobs[cluster.ResumeRequest], user string) ([]cluster.PausedJob, error) {
		in.Body.By = user
		return r.Operator.Resume(ctx, in.Body)
	})
}

// registerAct registers a route that changes something. The route refuses users without the right to act.
func registerAct[I, O any](r *routes, api huma.API, path, summary string, do func(ctx context.Context, in *I, user string) (O, error)) {
	op := describeRoute(http.MethodPost, path, summary, "acts", http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusTooManyRequests)
	op.MaxBodyBytes, op.BodyReadTimeout = maxBodyBytes+1, bodyTimeout // without the 1, huma would refuse a body of exactly maxBodyBytes
	op.Middlewares = huma.Middlewares{r.refuseViewers(api)}
	register(r, api, op, func(ctx context.Context, in *I) (O, error) {
		user, _ := r.User(ctx)
		return do(ctx, in, user)
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
