// Package dashboard shows a cluster as web pages, and changes it by forms. The server renders pages with html/template. They are complete without JavaScript,
// which only refreshes them. All reading and acting goes through an [operator.Shared]. The server in front authenticates requests, and refuses requests from
// other origins.
package dashboard

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/cronclave/cronclave/internal/operator"
)

// Config configures the pages.
type Config struct {
	Operator *operator.Shared
	// Actor returns the name of a request's user, and whether the user may act. The server in front has authenticated the user, and ends the session at POST
	// /logout. The name is "" if users need not log in.
	Actor func(*http.Request) (name string, mayAct bool)
	// BasePath begins the paths of the pages in browsers, such as "/cron"; "" for none. The server in front removes it from requests, and adds it to redirects.
	BasePath string
}

// New returns the handler of all pages. It sends nothing to Redis.
func New(cfg Config) (http.Handler, error) {
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
	h := &handler{cfg.Operator, operator.NewWindows(cfg.Operator.Operator, mostDrawn), cfg.Actor, files, parsed}
	return secured(h.routes()), nil
}

// views returns the routes that show a page.
func (h *handler) views() map[string]view {
	return map[string]view{
		"GET /{$}":                  h.overview,
		"GET /jobs/{job}":           h.job,
		"GET /jobs/{job}/why":       h.why,
		"GET /jobs/{job}/runs/{id}": h.run,
		"GET /cluster":              h.cluster,
		"GET /audit":                h.audit,
		"GET /timeline":             h.timeline,
		"GET /calendar":             h.calendar,
		"GET /pause":                h.previewPause,
		"GET /resume":               h.previewResume,
		"GET /":                     h.notFound,
	}
}

// actions returns the routes that change something. No other route does.
func (h *handler) actions() map[string]action {
	return map[string]action{
		"POST /pause":              h.pauseMany,
		"POST /resume":             h.resumeMany,
		"POST /jobs/{job}/trigger": h.trigger,
		"POST /jobs/{job}/cancel":  h.cancel,
		"POST /jobs/{job}/pause":   h.pauseOne,
		"POST /jobs/{job}/resume":  h.resumeOne,
	}
}

func (h *handler) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, show := range h.views() {
		mux.Handle(pattern, h.shown(show))
	}
	for pattern, act := range h.actions() {
		mux.Handle(pattern, h.acting(act))
	}
	mux.HandleFunc("GET /go", h.jump)
	mux.HandleFunc("GET /palette.json", h.palette)
	mux.HandleFunc("GET /calendar.ics", h.feed)
	mux.Handle("GET /assets/{name}", h.assets)
	return mux
}

// policy allows only files of this server: no inline scripts or styles, and no embedding in another page.
const policy = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"

// secured sets the headers of every response. Assets replace Cache-Control.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "same-origin")
		header.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}
