// Package httpapi is the HTTP server of a replica. It authenticates and limits requests, and serves the health and the metrics of the replica. The API and
// the pages are handlers that it receives.
package httpapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/oidc"
)

// Config configures a [Server].
type Config struct {
	// Listen is "host:port". Port 0 selects a free port: see [Server.Addr].
	Listen string
	// Users returns the users that are admitted, by a bearer token ("Authorization: Bearer TOKEN") or by the cookie of a login; may be nil. Without Users and
	// OIDC, every client that reaches the address is admitted as an anonymous viewer.
	Users func() Users
	// SessionSecret reads the cluster's secret that signs the sessions of Users. If the cluster has none, it stores the known one, or a random one if known is
	// "". It returns "" while the secret must not be read yet. A call must return without its context ending. Required with Users.
	SessionSecret func(ctx context.Context, known string) (string, error)
	// Ended is the list of sessions that were logged out; nil if each replica keeps its own.
	Ended SessionList
	// OIDC is the provider at which people may sign in with a browser; may be nil.
	OIDC *oidc.Provider
	// URL is the URL of the server for browsers, if there is a proxy in front of it; otherwise nil.
	URL *url.URL
	// BasePath begins all paths in browsers, such as "/cron"; "" for none. Requests may come with it or without, because some proxies remove it.
	BasePath string
	// TrustedProxies are the addresses whose X-Forwarded-For is trusted.
	TrustedProxies []netip.Prefix
	// Hosts are host names that clients may use, besides localhost, the hosts of Listen, URL and OIDC's redirect URL, and all IP addresses.
	Hosts []string
	// TLS contains the server's certificate; nil for plain HTTP.
	TLS *tls.Config
	// Metrics serves GET /metrics, API all paths below /api/, and Pages all others. API and Pages may be nil.
	Metrics, API, Pages http.Handler
	// Unready returns the reason that the replica claims nothing now, for GET /readyz; "" if it claims. Anybody may read the text. May be nil.
	Unready func() string
	// Log receives faults of connections and requests; may be nil.
	Log hclog.Logger
}

// A Server serves requests. It is safe for concurrent use.
type Server struct {
	listener *doors
	secret   *sessionSecret // nil if Config.Users is nil
	ended    *endedSessions
	http     *http.Server
	stopping chan struct{} // closed when the server begins to stop
	handlers sync.RWMutex  // held for reading by each request in progress
}

type stoppingKey struct{}

// Stopping returns, from the context of a request, a channel that is closed when the server begins to stop. Streams end then.
func Stopping(ctx context.Context) <-chan struct{} {
	stopping, _ := ctx.Value(stoppingKey{}).(chan struct{})
	return stopping
}

const (
	// The time limits keep a client that is slow, or that sends much, from holding a connection for long.
	headerTimeout, requestTimeout, idleTimeout = 5 * time.Second, 30 * time.Second, 30 * time.Second
	maxHeaderBytes                             = 16 << 10
	// MaxConnections is the maximum number of open connections: see [doors]. It leaves file descriptors for runs.
	MaxConnections = 440
	// bodyTimeout is the time in which a body must arrive.
	bodyTimeout = 10 * time.Second
	// shutdownTimeout is the time that requests in progress have when the server stops, before their connections are closed.
	shutdownTimeout = time.Second
	// handlerTimeout is the time that their handlers have after that.
	handlerTimeout = 3 * time.Second
)

// New listens on the address of cfg. An error names the address that it can't listen on.
func New(cfg Config) (*Server, error) {
	if cfg.Metrics == nil || cfg.Users != nil && cfg.SessionSecret == nil {
		return nil, errors.New("httpapi: Config.Metrics or Config.SessionSecret is missing")
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
	if cfg.Log == nil {
		cfg.Log = hclog.NewNullLogger()
	}
	s := &Server{listener: newDoors(listener, cfg.TrustedProxies), stopping: make(chan struct{})}
	if cfg.Users != nil {
		s.secret = newSessionSecret(cfg)
	}
	s.ended = newEndedSessions(cfg)
	s.http = &http.Server{Handler: s.holdRequests(protect(mux, cfg, s.secret, s.ended)), TLSConfig: cfg.TLS, MaxHeaderBytes: maxHeaderBytes, Protocols: &http.Protocols{},
		// faults of clients; otherwise it writes to stderr, past the log
		ErrorLog:          cfg.Log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
		ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout, IdleTimeout: idleTimeout,
		ConnContext: s.listener.withDoor,
		BaseContext: func(net.Listener) context.Context {
			return context.WithValue(context.Background(), stoppingKey{}, s.stopping)
		}}
	s.http.Protocols.SetHTTP1(true) // in HTTP/2 a write deadline resets a stream without output
	return s, nil
}

// holdRequests marks the requests in progress, which Run waits for.
func (s *Server) holdRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.handlers.RLock()
		defer s.handlers.RUnlock()
		defer doorOf(r).endRequest()
		next.ServeHTTP(w, r)
	})
}

// awaitHandlers waits for the handlers whose connections were closed, up to handlerTimeout: an act on a Redis that does not answer ends by its own time-out.
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

// keepSessions keeps the secret and the list of ended sessions up to date until ctx ends, or the returned function is called.
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

// Run serves until ctx ends. Requests in progress then have a second before their connections are closed. Run returns when no handler runs any more, at most
// three seconds later.
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
