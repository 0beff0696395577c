// Package web is the HTTP server of a replica. It authenticates and limits requests, and serves the health checks and the metrics. Its caller supplies
// the handlers of the API and of the web pages.
package web

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/cronclave/cronclave/internal/web/oidc"
	"github.com/hashicorp/go-hclog"
)

// Config configures a [Server].
type Config struct {
	// Listen is "host:port". Port 0 selects a free port: see [Server.Addr].
	Listen string
	// Namespace is the name of the cluster on the login page.
	Namespace string
	// Users returns the admitted users, or is nil. A request proves its user by a bearer token ("Authorization: Bearer TOKEN") or by the cookie of a login.
	// Without Users and OIDC, every client is admitted as an anonymous viewer.
	Users func() Users
	// SessionSecret reads the secret with which the replicas of the cluster sign the sessions of Users. If Redis has none, SessionSecret stores known, or a
	// random secret if known is "". It returns "" while the replica starts, because nothing may be written to a Redis that the replica has not checked. A call
	// must return even if its context never ends. Users requires SessionSecret.
	SessionSecret func(ctx context.Context, known string) (string, error)
	// Ended is the cluster's list of sessions that were logged out. If it is nil, a logout applies to one replica only.
	Ended SessionList
	// OIDC is the provider at which people may sign in with a browser, or nil.
	OIDC *oidc.Provider
	// URL is the URL at which browsers reach the server through a proxy; nil without a proxy.
	URL *url.URL
	// BasePath is the prefix of all paths in browsers, such as "/cron", or "". Requests may arrive with the prefix or without it, because some proxies remove
	// it.
	BasePath string
	// TrustedProxies are the addresses of proxies whose X-Forwarded-For is believed.
	TrustedProxies []netip.Prefix
	// Hosts are further host names that requests may have. IP addresses, localhost, and the hosts of Listen, URL and OIDC's redirect URL are always accepted.
	Hosts []string
	// TLS has the server's certificate; nil for plain HTTP.
	TLS *tls.Config
	// Metrics serves GET /metrics, API serves all paths below /api/, and Pages serves all others. API and Pages may be nil.
	Metrics, API, Pages http.Handler
	// Unready returns the reason for which the replica claims no ticks now, or "" if it claims. GET /readyz shows the text to anybody. May be nil.
	Unready func() string
	// Log receives faults of connections and requests; may be nil.
	Log hclog.Logger
}

// A Server serves requests. It is safe for concurrent use.
type Server struct {
	listener *connLimiter
	secret   *sessionSecret // nil if Config.Users is nil
	ended    *endedSessions
	http     *http.Server
	stopping chan struct{} // closed when the server begins to stop
	handlers sync.RWMutex  // each request in progress holds it for reading
}

type stoppingKey struct{}

// Stopping returns a channel that is closed when the server begins to stop, so that a handler ends its stream. ctx is the context of a request.
func Stopping(ctx context.Context) <-chan struct{} {
	stopping, _ := ctx.Value(stoppingKey{}).(chan struct{})
	return stopping
}

const (
	// These time limits keep a client that is slow, or that sends much, from occupying a connection for long.
	headerTimeout, requestTimeout, idleTimeout = 5 * time.Second, 30 * time.Second, 30 * time.Second
	maxHeaderBytes                             = 16 << 10
	// MaxConnections is the maximum number of open connections: see [connLimiter]. The process needs its other file descriptors for runs.
	MaxConnections = 440
	// bodyTimeout is the maximum time for a body to arrive.
	bodyTimeout = 10 * time.Second
	// shutdownTimeout is the time that requests in progress have when the server stops. Their connections are then closed.
	shutdownTimeout = time.Second
	// handlerTimeout is the time that the handlers have to return after their connections were closed.
	handlerTimeout = 3 * time.Second
)

// New listens on cfg.Listen. If that fails, the error contains the address.
func New(cfg Config) (*Server, error) {
	if cfg.Metrics == nil || cfg.Users != nil && cfg.SessionSecret == nil {
		return nil, errors.New("web: Config.Metrics or Config.SessionSecret is missing")
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", cfg.Metrics)
	if cfg.API != nil {
		mux.Handle(apiPrefix, cfg.API)
	}
	if cfg.Pages != nil {
		mux.Handle("/", cfg.Pages)
	}
	listener, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", cfg.Listen, err)
	}
	cfg.Log = cmp.Or[hclog.Logger](cfg.Log, hclog.NewNullLogger())
	s := &Server{listener: newConnLimiter(listener, cfg.TrustedProxies), stopping: make(chan struct{})}
	if cfg.Users != nil {
		s.secret = newSessionSecret(cfg)
	}
	s.ended = newEndedSessions(cfg)
	s.http = &http.Server{Handler: s.holdRequests(protect(mux, cfg, s.secret, s.ended)), TLSConfig: cfg.TLS, MaxHeaderBytes: maxHeaderBytes, Protocols: &http.Protocols{},
		// Errors of clients go to the log. The default is stderr.
		ErrorLog:          cfg.Log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
		ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout, IdleTimeout: idleTimeout,
		ConnContext: s.listener.withConn,
		BaseContext: func(net.Listener) context.Context {
			return context.WithValue(context.Background(), stoppingKey{}, s.stopping)
		}}
	s.http.Protocols.SetHTTP1(true) // no HTTP/2, because with HTTP/2 the write deadline resets a stream that has sent nothing
	return s, nil
}

// holdRequests lets Run wait for the requests in progress.
func (s *Server) holdRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.handlers.RLock()
		defer s.handlers.RUnlock()
		defer connOf(r).endRequest()
		next.ServeHTTP(w, r)
	})
}

// awaitHandlers waits up to handlerTimeout for the handlers whose connections were closed. A handler may be waiting for a Redis that does not answer. Its
// request to Redis then ends by its own time-out.
func (s *Server) awaitHandlers() {
	for end := time.Now().Add(handlerTimeout); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if s.handlers.TryLock() {
			s.handlers.Unlock()
			return
		}
	}
}

// URL returns the URL of the server.
func (s *Server) URL() string {
	if s.http.TLSConfig != nil {
		return "https://" + s.Addr()
	}
	return "http://" + s.Addr()
}

// Addr returns the address on which the server listens.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close closes the listener of a server that was never run.
func (s *Server) Close() error { return s.listener.Close() }

func (s *Server) serveListener() error {
	if s.http.TLSConfig != nil {
		return s.http.ServeTLS(s.listener, "", "")
	}
	return s.http.Serve(s.listener)
}

// keepSessions refreshes the secret and the list of ended sessions until ctx ends or the returned function is called.
func (s *Server) keepSessions(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var kept sync.WaitGroup
	kept.Go(func() { keepRenewed(ctx, s.ended.syncList) })
	if s.secret != nil {
		kept.Go(func() { keepRenewed(ctx, func(ctx context.Context) { s.secret.renewSecret(ctx) }) })
	}
	return func() {
		cancel()
		kept.Wait()
	}
}

// Run serves until ctx ends. Requests in progress then have a second before their connections are closed. Run returns when all handlers have returned, at
// most three seconds after that.
func (s *Server) Run(ctx context.Context) error {
	defer s.keepSessions(ctx)()
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		close(s.stopping)
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if s.http.Shutdown(late) != nil {
			_ = s.http.Close() // closes the remaining connections
		}
	})
	err := s.serveListener()
	if !stop() {
		<-ended
	}
	s.awaitHandlers()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve on %s: %w", s.Addr(), err)
}

// takeBase removes the base path from the paths of requests. Some requests come without it: a proxy has removed it, or a health check was sent directly to
// the server.
func takeBase(next http.Handler, base string) http.Handler {
	if base == "" {
		return next
	}
	below := http.StripPrefix(base, next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == base:
			http.Redirect(w, r, base+"/", http.StatusPermanentRedirect)
		case strings.HasPrefix(r.URL.Path, base+"/"):
			below.ServeHTTP(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// rebaseRedirects adds the base path to redirects, because the wrapped handler redirects to paths without it.
func rebaseRedirects(next http.Handler, base string) http.Handler {
	if base == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(&rebased{w, base}, r) })
}

type rebased struct {
	http.ResponseWriter
	base string
}

func (w *rebased) WriteHeader(code int) {
	h := w.Header()
	if to := h.Get("Location"); strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "//") {
		h.Set("Location", w.base+to)
	}
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap returns the wrapped writer, for [http.ResponseController].
func (w *rebased) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// readyz answers 200 if the replica claims ticks. Otherwise it answers 503 with the reason.
func readyz(unready func() string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if unready != nil {
			if reason := unready(); reason != "" {
				writeText(w, http.StatusServiceUnavailable, reason)
				return
			}
		}
		writeText(w, http.StatusOK, "ok")
	})
}

func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	fmt.Fprintln(w, text)
}
