// Package api is the HTTP API of a cluster, version 1: the commands that see and steer it, as JSON, answered by any replica for the whole cluster. It
// decides nothing; [operator.Shared] does. The description of its routes (OpenAPI 3.1) is made of the handlers themselves.
package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/operator"
)

// prefix begins every path.
const prefix = "/api/v1"

// Config of an API.
type Config struct {
	// Operator is the cluster. It stays the caller's.
	Operator *operator.Shared
	// Version is that of the program.
	Version string
	// User returns the name of a request's user, and whether that user may act, from the request's context.
	User func(context.Context) (name string, mayAct bool)
	// Log gets the faults of requests that are the server's.
	Log hclog.Logger
}

// routes are the handlers of an API.
type routes struct {
	Config
	streams chan struct{} // one for each stream of events that is open
}

// New returns the handler of all paths below /api/. Its methods may be called by several goroutines.
func New(cfg Config) http.Handler {
	mux := http.NewServeMux()
	r := &routes{Config: cfg, streams: make(chan struct{}, maxStreams)}
	c := huma.DefaultConfig("cronclave", cfg.Version)
	c.Info.Description = "The status, the history and the control of one cluster. Any replica answers for all."
	c.OpenAPIPath, c.DocsPath, c.SchemasPath = prefix+"/openapi", "", ""
	c.CreateHooks = nil // no links to schemas in the answers: they are those of the command line
	c.RejectUnknownQueryParameters = true
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer"}}
	c.Security = []map[string][]string{{"token": {}}}
	api := humago.New(mux, c)
	r.readers(api)
	r.history(api)
	r.actors(api)
	r.live(api)
	return guarded(mux, cfg.Log)
}

// guarded keeps answers out of caches: they are true at one moment, and for one user. Streams outlast the time in which requests have to arrive. A client that goes before it has its answer is no fault, while huma
// panics.
func guarded(next http.Handler, log hclog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if v := recover(); v != nil && r.Context().Err() == nil {
				log.Error("HTTP request failed", "url", r.URL.Path, "error", v)
				http.Error(w, "a fault of the server: see its log", http.StatusInternalServerError)
			}
		}()
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if r.Method == http.MethodGet { // it has arrived; a writer that knows no deadline sets none
			_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		}
		next.ServeHTTP(w, r)
	})
}

// answer is a successful one with a body.
type answer[T any] struct{ Body T }

// describe makes an operation of a route. Its id is the summary in one word.
func describe(method, path, summary, tag string, errs ...int) huma.Operation {
	id := strings.ReplaceAll(strings.ToLower(summary), " ", "-")
	return huma.Operation{OperationID: id, Method: method, Path: prefix + path, Summary: summary, Tags: []string{tag},
		Errors: append(errs, http.StatusUnauthorized, http.StatusUnprocessableEntity, http.StatusServiceUnavailable)}
}

// codes are the HTTP status codes of the reasons for which an operation fails.
var codes = []struct {
	reason error
	code   int
}{
	{operator.ErrUnavailable, http.StatusServiceUnavailable},
	{operator.ErrTooMany, http.StatusTooManyRequests},
	{operator.ErrUnknownJob, http.StatusNotFound},
	{operator.ErrUnknownTag, http.StatusNotFound},
	{operator.ErrUnknownRun, http.StatusNotFound},
	{operator.ErrNoJobs, http.StatusNotFound},
	{operator.ErrDisabled, http.StatusConflict},
	{operator.ErrNoReplica, http.StatusConflict},
	{operator.ErrNotATick, http.StatusUnprocessableEntity},
	{operator.ErrInvalid, http.StatusUnprocessableEntity},
}

// fault is the answer to a request that failed, as application/problem+json.
func fault(err error) error {
	var known huma.StatusError
	if err == nil || errors.As(err, &known) {
		return err
	}
	for _, c := range codes {
		if errors.Is(err, c.reason) {
			return huma.NewError(c.code, err.Error())
		}
	}
	return huma.NewError(http.StatusInternalServerError, err.Error())
}
