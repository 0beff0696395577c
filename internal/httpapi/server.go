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
	"time"

	"github.com/hashicorp/go-hclog"
)

// Config of a [Server].
type Config struct {
	// Listen is "host:port". A port of 0 is any that is free: see [Server.Addr].
	Listen string
	// Users returns the users that are let in, by the bearer token ("Authorization: Bearer TOKEN") or by the cookie of a login; nil admits every client that
	// reaches the address, as an anonymous viewer.
	Users func() Users
	// Hosts are names by which clients may ask, beside localhost, the host of Listen and each IP address.
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
	listener net.Listener
	http     *http.Server
}

const (
	// A client that is slow, or sends much, holds up no other client, and its connection ends soon.
	headerTimeout, requestTimeout, idleTimeout = 5 * time.Second, 30 * time.Second, 2 * time.Minute
	mostHeader                                 = 16 << 10
	// parting is how long requests under way may take when the server ends.
	parting = time.Second
)

// New listens. An error says which address it is that can't be listened on.
func New(cfg Config) (*Server, error) {
	if cfg.Metrics == nil {
		return nil, errors.New("httpapi: Config.Metrics is missing")
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", cfg.Metrics)
	if cfg.API != nil {
		mux.Handle("/api/", cfg.API)
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
	return &Server{listener: listener, http: &http.Server{Handler: guarded(mux, cfg), TLSConfig: cfg.TLS, MaxHeaderBytes: mostHeader,
		ErrorLog:          cfg.Log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Error}), // else it writes to stderr, past the log
		ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout, IdleTimeout: idleTimeout}}, nil
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

// Run answers until ctx ends. Requests under way then have a second.
func (s *Server) Run(ctx context.Context) error {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), parting)
		defer cancel()
		if s.http.Shutdown(late) != nil {
			_ = s.http.Close() // those that are left
		}
	})
	err := s.serve()
	if !stop() {
		<-ended
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve on %s: %w", s.Addr(), err)
}
