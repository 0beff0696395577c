// Package dashboard shows a cluster as web pages, and lets users act on it by forms. The server renders the pages with html/template. They work without
// JavaScript, which only refreshes them. All operations go through a [cluster.Shared]. The HTTP server around these handlers authenticates requests, and
// refuses requests from other origins.
package dashboard

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/cronclave/cronclave/internal/cluster"
)

// Config configures the pages.
type Config struct {
	Operator *cluster.Shared
	// Actor returns the name of a request's user, and whether the user may act. The HTTP server has authenticated the user, and ends the session at POST
	// /logout. The name is "" if users need not log in.
	Actor func(*http.Request) (name string, mayAct bool)
	// BasePath is the prefix of all paths in browsers, such as "/cron", or "". The HTTP server removes it from requests, and adds it to redirects.
	BasePath string
	// Local returns what the replica of the pages knows without Redis.
	Local func() Local
}

// New returns the handler of all pages. New itself sends no request to Redis.
func New(cfg Config) (http.Handler, error) {
	if cfg.Local == nil {
		cfg.Local = func() (none Local) { return none }
	}
	if cfg.Operator == nil || cfg.Actor == nil {
		return nil, errors.New("dashboard: an operator and an actor are needed")
	}
	files, err := readAssets(cfg.BasePath)
	if err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	parsed, err := parsePages(files)
	if err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	h := &handler{cfg.Operator, cluster.NewWindows(cfg.Operator.Operator, mostDrawn), cfg.Actor, cfg.Local, files, parsed}
	return withHeaders(h.newMux()), nil
}

func (h *handler) viewRoutes() map[string]view {
	return map[string]view{
		"GET /{$}":                  h.showOverview,
		"GET /jobs/{job}":           h.showJob,
		"GET /jobs/{job}/why":       h.showWhy,
		"GET /jobs/{job}/runs/{id}": h.showRun,
		"GET /cluster":              h.showCluster,
		"GET /audit":                h.showAudit,
		"GET /timeline":             h.showTimeline,
		"GET /calendar":             h.showCalendar,
		"GET /pause":                h.previewBulk("Pause", true),
		"GET /resume":               h.previewBulk("Resume", false),
		"GET /":                     h.notFound,
	}
}

// actionRoutes returns the routes that change something. All other routes are read-only.
func (h *handler) actionRoutes() map[string]action {
	return map[string]action{
		"POST /pause":              h.pauseJobs,
		"POST /resume":             h.resumeJobs,
		"POST /jobs/{job}/trigger": h.triggerJob,
		"POST /jobs/{job}/cancel":  h.cancelRuns,
		"POST /jobs/{job}/pause":   h.pauseJobs,
		"POST /jobs/{job}/resume":  h.resumeJobs,
	}
}

func (h *handler) newMux() *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, show := range h.viewRoutes() {
		mux.Handle(pattern, h.viewHandler(show))
	}
	for pattern, act := range h.actionRoutes() {
		mux.Handle(pattern, h.actionHandler(act))
	}
	mux.HandleFunc("GET /go", h.serveJump)
	mux.HandleFunc("GET /palette.json", h.servePalette)
	mux.HandleFunc("GET /calendar.ics", h.serveFeed)
	mux.Handle("GET /assets/{name}", h.assets)
	return mux
}

// policy is the Content-Security-Policy. It permits only files of this server, forbids inline scripts and styles, and forbids other sites to embed the pages.
const policy = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"

// withHeaders sets the headers of every response. The handler of assets replaces Cache-Control.
func withHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "same-origin")
		header.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}
