// Package api is the HTTP API of a cluster, version 1: the commands that see and steer it, as JSON, answered by any replica for the whole cluster. It
// decides nothing; [operator.Shared] does. The description of its routes (OpenAPI 3.1) is made of the handlers themselves.
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

// prefix begins every path of this version, rootPath those of all.
const rootPath, prefix = "/api/", "/api/v1"

// Config of an API.
type Config struct {
	// Operator is the cluster. It stays the caller's.
	Operator *operator.Shared
	// Version is that of the program.
	Version string
	// User returns the name of a request's user, and whether that user may act, from the request's context.
	User func(context.Context) (name string, mayAct bool)
	// Stopping returns a channel that is closed when the server of a request ends, from the request's context.
	Stopping func(context.Context) <-chan struct{}
	// Log gets the faults of requests that are the server's.
	Log hclog.Logger
}

// routes are the handlers of an API.
type routes struct {
	Config
	streams chan struct{} // one for each stream of events that is open
	damaged logging.Rarely
}

// New returns the handler of all paths below /api/.
func New(cfg Config) (http.Handler, error) {
	mux := http.NewServeMux()
	r := &routes{Config: cfg, streams: make(chan struct{}, maxStreams)}
	c := huma.DefaultConfig("cronclave", cfg.Version)
	c.Info.Description = "The status, the history and the control of one cluster. Any replica answers for all."
	c.OpenAPIPath, c.DocsPath, c.SchemasPath = "", "", ""
	c.CreateHooks = nil // no links to schemas in the answers: they are those of the command line
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
	return uncached(mux), nil
}

// writeError answers a request that no operation answers.
func writeError(w http.ResponseWriter, fault huma.StatusError) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(fault.GetStatus())
	_ = json.NewEncoder(w).Encode(fault) // otherwise the client has gone
}

// uncached keeps answers out of caches: they are true at one moment, and for one user.
func uncached(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

// describeIn serves the description of an API, which is made once: huma makes it by the first request, without a lock.
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
			_, _ = w.Write(text) // else the client has gone
		}))
	}
	return nil
}

// answer is a successful one with a body.
type answer[T any] struct{ Body T }

// describe makes an operation of a route. Its id is the summary in one word.
func describe(method, path, summary, tag string, errs ...int) huma.Operation {
	id := strings.ReplaceAll(strings.ToLower(summary), " ", "-")
	return huma.Operation{OperationID: id, Method: method, Path: prefix + path, Summary: summary, Tags: []string{tag},
		Errors: append(errs, http.StatusUnauthorized, http.StatusUnprocessableEntity, http.StatusServiceUnavailable)}
}
