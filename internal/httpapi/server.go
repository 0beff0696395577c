// Package httpapi is the HTTP server of a replica: it decides which requests are let through, from which users, and answers those about the replica itself:
// for its health and its metrics. The API and the pages of the cluster are handlers that it is given.
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

// Config of a [Server].
type Config struct {
	// Listen is "host:port". A port of 0 is any that is free: see [Server.Addr].
	Listen string
	// Users returns the users that are let in, by the bearer token ("Authorization: Bearer TOKEN") or by the cookie of a login; may be nil. Without Users and
	// OIDC every client that reaches the address is let in, as an anonymous viewer.
	Users func() Users
	// SessionSecret reads the secret of the cluster that signs sessions of Users. If the cluster has none, the known one becomes it, which is "" for a
	// random one. It returns "" as long as the secret must not be read yet. The call must end by itself. Needed with Users.
	SessionSecret func(ctx context.Context, known string) (string, error)
	// Ended is the list of sessions that were logged out; nil if each replica keeps its own.
	Ended SessionList
	// OIDC is the provider at which people may sign in with a browser; may be nil.
	OIDC *oidc.Provider
	// URL is where browsers find the server, if a proxy stands before it; nil otherwise.
	URL *url.URL
	// BasePath is what all paths begin with in browsers, as "/cron"; "" for none. Requests may have it or not: some proxies take it off.
	BasePath string
	// TrustedProxies are the addresses whose X-Forwarded-For is believed.
	TrustedProxies []netip.Prefix
	// Hosts are names by which clients may ask, beside localhost, the hosts of Listen and URL, that to which OIDC leads back, and each IP address.
	Hosts []string
	// TLS has the server's certificate; nil for plain HTTP.
	TLS *tls.Config
	// Metrics answers GET /metrics, API all paths below /api/, and Pages all others. API and Pages may be nil.
	Metrics, API, Pages http.Handler
	// Unready returns why the replica claims nothing at present, for GET /readyz, in words that are for everybody; "" if it does. May be nil.
	Unready func() string
	// Log gets the faults of connections and requests; nil for none.
	Log hclog.Logger
}

// Server answers requests. Its methods may be called by several goroutines.
type Server struct {
	listener *doors
	secret   *sessionSecret // nil without users that have tokens
	ended    *endedSessions
	http     *http.Server
	stopping chan struct{} // closed when the server begins to end
	handlers sync.RWMutex  // held by the requests under way, each for reading
}

type stoppingKey struct{}

// Stopping returns a channel that is closed when the server of a request begins to end, from the request's context: streams end then.
func Stopping(ctx context.Context) <-chan struct{} {
	stopping, _ := ctx.Value(stoppingKey{}).(chan struct{})
	return stopping
}

const (
	// A client that is slow, or sends much, holds up no other client, and its connection ends soon.
	headerTimeout, requestTimeout, idleTimeout = 5 * time.Second, 30 * time.Second, 30 * time.Second
	maxHeaderBytes                             = 16 << 10
	// MaxConnections is how many connections are open at once: see [doors]. They must not use up the files that runs need.
	MaxConnections = 440
	// bodyTimeout is how long a body may take to arrive.
	bodyTimeout = 10 * time.Second
	// shutdownTimeout is how long requests under way may take when the server ends, before their connections are closed.
	shutdownTimeout = time.Second
	// handlerTimeout is how long their handlers may take after that.
	handlerTimeout = 3 * time.Second
)

// New listens. An error says which address it is that can't be listened on.
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
	s.http = &http.Server{Handler: s.hold(protect(mux, cfg, s.secret, s.ended)), TLSConfig: cfg.TLS, MaxHeaderBytes: maxHeaderBytes, Protocols: &http.Protocols{},
		ErrorLog:          cfg.Log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}), // of clients' faults; else it writes to stderr, past the log
		ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout, IdleTimeout: idleTimeout,
		ConnContext: s.listener.remember,
		BaseContext: func(net.Listener) context.Context {
			return context.WithValue(context.Background(), stoppingKey{}, s.stopping)
		}}
	s.http.Protocols.SetHTTP1(true) // in HTTP/2 the deadline of a write resets a stream that is quiet
	return s, nil
}

// hold marks the requests under way, which Run waits for.
func (s *Server) hold(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.handlers.RLock()
		defer s.handlers.RUnlock()
		defer doorOf(r).dismiss()
		next.ServeHTTP(w, r)
	})
}

// awaitHandlers waits for the requests whose connections were closed, but not for one that hangs: an act on a Redis that does not answer ends by its own
// time-out.
func (s *Server) awaitHandlers() {
	for end := time.Now().Add(handlerTimeout); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if s.handlers.TryLock() {
			s.handlers.Unlock()
			return
		}
	}
}

// URL is where it answers.
func (s *Server) URL() string {
	if s.http.TLSConfig != nil {
		return "https://" + s.Addr()
	}
	return "http://" + s.Addr()
}

// Addr is where it listens.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close stops listening, for a server that is not run.
func (s *Server) Close() error { return s.listener.Close() }

func (s *Server) serve() error {
	if s.http.TLSConfig != nil {
		return s.http.ServeTLS(s.listener, "", "")
	}
	return s.http.Serve(s.listener)
}

// keepSessions keeps what Redis says about sessions until ctx ends, or the function that it returns is called.
func (s *Server) keepSessions(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var kept sync.WaitGroup
	kept.Go(func() { keepRenewed(ctx, s.ended.renew) })
	if s.secret != nil {
		kept.Go(func() { keepRenewed(ctx, func(ctx context.Context) { s.secret.renew(ctx) }) })
	}
	return func() {
		cancel()
		kept.Wait()
	}
}

// Run answers until ctx ends. Requests under way then have a second until their connections are closed. Run returns when no handler runs any more, or three seconds later.
func (s *Server) Run(ctx context.Context) error {
	defer s.keepSessions(ctx)()
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		close(s.stopping)
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if s.http.Shutdown(late) != nil {
			_ = s.http.Close() // those that are left
		}
	})
	err := s.serve()
	if !stop() {
		<-ended
	}
	s.awaitHandlers()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve on %s: %w", s.Addr(), err)
}
