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

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/logging"
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
