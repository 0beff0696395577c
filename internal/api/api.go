// Package api is the HTTP API of a cluster, version 1: the commands that show and control the cluster, as JSON. Any replica answers for the whole cluster.
// The package decides nothing; [operator.Shared] does. The description of the routes (OpenAPI 3.1) is generated from the handlers.
package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/logging"
	"github.com/cronclave/cronclave/internal/operator"
)

// rootPath begins the paths of all versions, prefix the paths of this version.
const rootPath, prefix = "/api/", "/api/v1"

// Config configures an API.
type Config struct {
	// Operator accesses the cluster. The caller closes it.
	Operator *operator.Shared
	// Version is the version of the program.
	Version string
	// User returns, from a request's context, the name of the user and whether that user may act.
	User func(context.Context) (name string, mayAct bool)
	// Stopping returns, from a request's context, a channel that is closed when the server stops.
	Stopping func(context.Context) <-chan struct{}
	// Log receives the requests that failed by a fault of the server.
	Log hclog.Logger
}

// routes holds the handlers of an API.
type routes struct {
	Config
	streams chan struct{} // holds a value for each open stream of events
	damaged logging.Rarely
}

// New returns the handler of all paths below /api/.
func New(cfg Config) (http.Handler, error) {
	mux := http.NewServeMux()
	r := &routes{Config: cfg, streams: make(chan struct{}, maxStreams)}
	c := huma.DefaultConfig("cronclave", cfg.Version)
	c.Info.Description = "The status, the history and the control of one cluster. Any replica answers for all."
	c.OpenAPIPath, c.DocsPath, c.SchemasPath = "", "", ""
	c.CreateHooks = nil // no links to schemas: answers have the same JSON as the command line
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

// writeError answers a request that does not reach an operation.
func writeError(w http.ResponseWriter, fault huma.StatusError) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(fault.GetStatus())
	_ = json.NewEncoder(w).Encode(fault) // a failed write means that the client has gone
}

// withoutCaching forbids caches to store answers, which are valid at one moment and for one user.
func withoutCaching(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

// describeIn serves the description of an API. It generates the description once, because huma would do so in the first request without a lock.
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

// describeRoute returns the operation of a route. Its id is the summary with dashes.
func describeRoute(method, path, summary, tag string, errs ...int) huma.Operation {
	id := strings.ReplaceAll(strings.ToLower(summary), " ", "-")
	return huma.Operation{OperationID: id, Method: method, Path: prefix + path, Summary: summary, Tags: []string{tag},
		Errors: append(errs, http.StatusUnauthorized, http.StatusUnprocessableEntity, http.StatusServiceUnavailable)}
}
