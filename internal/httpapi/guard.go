package httpapi

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// protect puts the checks of every request before the routes: its host, its origin, its size, and its user. Health needs no user.
func protect(routes http.Handler, cfg Config) http.Handler {
	public := http.NewServeMux()
	public.Handle("GET /healthz", healthz())
	public.Handle("GET /readyz", readyz(cfg.Unready))
	public.Handle("/", authenticate(routes, cfg))
	if cfg.Users != nil {
		sessions{cfg}.routes(public)
	}
	origins := http.NewCrossOriginProtection()
	origins.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refuse(w, r, http.StatusForbidden, "the request comes from a page of another site")
	}))
	hosts := append([]string{"localhost"}, cfg.Hosts...)
	if host, _, err := net.SplitHostPort(cfg.Listen); err == nil && host != "" {
		hosts = append(hosts, host)
	}
	return logPanics(checkHost(origins.Handler(limitBody(public)), hosts), cfg)
}

// refuse answers a request that is not let through: in the API as its errors are, application/problem+json.
func refuse(w http.ResponseWriter, r *http.Request, code int, detail string) {
	if !strings.HasPrefix(r.URL.Path, apiPrefix) {
		http.Error(w, detail, code)
		return
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{"title": http.StatusText(code), "status": code, "detail": detail}) // else the client has gone
}

// apiPrefix begins all paths of the API.
const apiPrefix = "/api/"

// logPanics logs faults of handlers, and answers with 500 where that is still possible. A client that goes early is no fault, though a handler may panic then.
func logPanics(next http.Handler, cfg Config) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			switch fault := recover(); {
			case fault == nil:
			case r.Context().Err() != nil:
				cfg.Log.Debug("HTTP client has gone before it had its answer", "url", r.URL.Path, "error", fault)
			default:
				cfg.Log.Error("HTTP request failed", "url", r.URL.Path, "error", fault, "stack", string(debug.Stack()))
				refuse(w, r, http.StatusInternalServerError, "a fault of the server: see its log")
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// maxBodyBytes is more than a thousand names of jobs take.
const maxBodyBytes = 256 << 10

// limitBody refuses bodies that are too long, and those of requests that have none.
func limitBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			refuse(w, r, http.StatusBadRequest, "a "+r.Method+" request has no body")
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
		next.ServeHTTP(w, r)
	})
}

// checkHost refuses requests for other hosts. Otherwise a page of any site could have a browser on this machine ask this server, by a name of that site that
// leads here (DNS rebinding). An address cannot lead elsewhere, so each is accepted. So is a request without a Host: browsers always send one, and health
// checks by HTTP/1.0 do not.
func checkHost(next http.Handler, hosts []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := hostOf(r.Host)
		known := host == "" || net.ParseIP(host) != nil || slices.ContainsFunc(hosts, func(name string) bool { return strings.EqualFold(name, host) })
		if !known {
			refuse(w, r, http.StatusMisdirectedRequest, "this name is not in [server].hosts")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hostOf is a Host header without its port, the brackets of an IPv6 address and the dot at the end of a full name.
func hostOf(header string) string {
	host, _, err := net.SplitHostPort(header)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(header, "["), "]")
	}
	return strings.TrimSuffix(host, ".")
}

// authenticate lets requests of users through, with the user in the context. Without tokens every client is anonymous.
func authenticate(next http.Handler, cfg Config) http.Handler {
	var refused refusals
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, known := anonymous, true
		if cfg.Users != nil {
			user, known = cfg.Users().userOf(r, cfg.TLS != nil)
		}
		page := r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html") && !strings.HasPrefix(r.URL.Path, apiPrefix)
		switch {
		case known:
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
		case page:
			http.Redirect(w, r, "/login?next="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
		default:
			refused.log(r, cfg)
			w.Header().Set("WWW-Authenticate", `Bearer realm="cronclave"`)
			refuse(w, r, http.StatusUnauthorized, "a token is needed: Authorization: Bearer TOKEN")
		}
	})
}

// refusals counts requests with an unknown token, and logs them once a minute at most.
type refusals struct {
	count  atomic.Int64
	logged atomic.Int64 // when, in nanoseconds since 1970
}

func (f *refusals) log(r *http.Request, cfg Config) {
	if r.Header.Get("Authorization") == "" {
		return
	}
	f.count.Add(1)
	last, now := f.logged.Load(), time.Now().UnixNano()
	if now-last < int64(time.Minute) || !f.logged.CompareAndSwap(last, now) {
		return
	}
	cfg.Log.Warn("HTTP requests refused: their token is unknown", "requests", f.count.Swap(0), "address", r.RemoteAddr)
}
