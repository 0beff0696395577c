package web

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/logging"
	"github.com/hashicorp/go-hclog"
)

// protect wraps the routes in the checks that every request must pass: host, origin, size and user. Health checks need no user.
func protect(routes http.Handler, cfg Config, secret *sessionSecret, ended *endedSessions) http.Handler {
	s := sessions{cfg, secret, ended, &rarely{}, &wrongTokens{of: map[netip.Addr]wrongCount{}}}
	public := http.NewServeMux()
	health := http.NewServeMux()
	health.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok") }) // without an answer, a supervisor restarts the process
	health.Handle("GET /readyz", readyz(cfg.Unready))
	health.Handle("/", keepForHealth(public))
	public.Handle("/", authenticate(compressAnswers(routes), s))
	if cfg.Users != nil || cfg.OIDC != nil {
		s.addRoutes(public)
	}
	origins := http.NewCrossOriginProtection()
	origins.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refuseRequest(w, r, http.StatusForbidden, "the request comes from a page of another site, or a proxy has changed its Host")
	}))
	hosts := append([]string{"localhost"}, cfg.Hosts...)
	if cfg.OIDC != nil {
		newSignIn(s).addSignInRoutes(public)
		hosts = append(hosts, cfg.OIDC.RedirectURL().Hostname())
	}
	if cfg.URL != nil {
		hosts = append(hosts, cfg.URL.Hostname())
		_ = origins.AddTrustedOrigin(cfg.URL.Scheme + "://" + cfg.URL.Host) // cannot fail: the URL was validated with the configuration
	}
	if host, _, err := net.SplitHostPort(cfg.Listen); err == nil && host != "" {
		hosts = append(hosts, host)
	}
	return withHeaders(believeProxies(takeBase(logPanics(checkHost(origins.Handler(limitBody(rebaseRedirects(health, cfg.BasePath))), hosts), cfg), cfg.BasePath), cfg.TrustedProxies), cfg)
}

// withHeaders sets the headers that every answer has. Routes whose answers may be cached overwrite Cache-Control.
func withHeaders(next http.Handler, cfg Config) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		if cfg.isSecure(r) {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		next.ServeHTTP(w, r)
	})
}

// refuseRequest answers a refused request. For paths below apiPrefix the answer is application/problem+json, as for errors of the API.
func refuseRequest(w http.ResponseWriter, r *http.Request, code int, detail string) {
	if !strings.HasPrefix(r.URL.Path, apiPrefix) {
		http.Error(w, detail, code)
		return
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(code)
	// a failed write means that the client has gone
	_ = json.NewEncoder(w).Encode(map[string]any{"title": http.StatusText(code), "status": code, "detail": detail})
}

const apiPrefix = "/api/"

// logPanics logs panics of handlers, and answers with status 500 if it still can. A panic after the client has gone is not a fault, and is logged at DEBUG.
func logPanics(next http.Handler, cfg Config) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			switch fault := recover(); {
			case fault == nil:
			case r.Context().Err() != nil:
				cfg.Log.Debug("HTTP client has gone before it had its answer", "url", r.URL.Path, "error", fault)
			default:
				cfg.Log.Error("HTTP request failed", "url", r.URL.Path, "error", fault, "stack", string(debug.Stack()))
				refuseRequest(w, r, http.StatusInternalServerError, "a fault of the server: see its log")
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// maxBodyBytes is the size limit of a body. A list of a thousand names of jobs fits.
const maxBodyBytes = 256 << 10

// A timedBody calls read when the body has been read to its end. limitBody uses read to replace the short read deadline of the body by the longer
// deadline of the request.
type timedBody struct {
	io.ReadCloser
	read func()
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF { //nolint:errorlint // an io.Reader returns io.EOF unwrapped
		b.read()
	}
	return n, err //nolint:wrapcheck // readers compare the error with io.EOF
}

// limitBody refuses bodies that are too long or too slow, and bodies of GET and HEAD requests.
func limitBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			refuseRequest(w, r, http.StatusBadRequest, "a "+r.Method+" request has no body")
			return
		}
		if r.ContentLength != 0 {
			c := http.NewResponseController(w)
			_ = c.SetReadDeadline(time.Now().Add(bodyTimeout)) // fails only for a writer without deadlines, in tests
			r.Body = &timedBody{r.Body, func() { _ = c.SetReadDeadline(time.Now().Add(requestTimeout)) }}
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
		next.ServeHTTP(w, r)
	})
}

// checkHost refuses requests for unknown host names. Otherwise any site could resolve one of its own names to this machine, and its pages could make a browser on
// this machine call this server under that name (DNS rebinding). IP addresses are accepted because DNS rebinding needs a name. Requests without a Host header
// are accepted because browsers always send the header; only programs omit it, such as health checks by HTTP/1.0.
func checkHost(next http.Handler, hosts []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := hostOf(r.Host)
		known := host == "" || net.ParseIP(host) != nil || slices.ContainsFunc(hosts, func(name string) bool { return strings.EqualFold(name, host) })
		if !known {
			refuseRequest(w, r, http.StatusMisdirectedRequest, "the request has a host name that this replica does not answer to; add it to [server].hosts")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hostOf returns a Host header without the port, the brackets of an IPv6 address, and the final dot.
func hostOf(header string) string {
	host, _, err := net.SplitHostPort(header)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(header, "["), "]")
	}
	return strings.TrimSuffix(host, ".")
}

// authenticate passes the requests of users on, with the user in the context, and refuses all others.
func authenticate(next http.Handler, s sessions) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, is := s.userOf(r, time.Now())
		page := r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html") && !strings.HasPrefix(r.URL.Path, apiPrefix)
		if is != known && r.Header.Get("Authorization") != "" {
			s.logRefusal(r)
			s.wrong.delayAnswer(r)
		}
		switch {
		case is == known:
			connOf(r).markUser()
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
		case is == unsure:
			refuseRequest(w, r, http.StatusServiceUnavailable, secretIsAway)
		case page:
			http.Redirect(w, r, loginPath(r, s.cfg, is)+"?next="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
		default:
			w.Header().Set("WWW-Authenticate", `Bearer realm="cronclave"`)
			refuseRequest(w, r, http.StatusUnauthorized, missingCredential(s.cfg, is))
		}
	})
}

// loginPath returns the path to which a browser without a session is redirected. If its session from the provider has expired, the browser goes straight to
// the provider, with two exceptions. A script's request goes to the login page, because it cannot follow a redirect to another site. A browser with a sign-in
// in progress also goes to the login page, because the provider may be broken, and the login page also has the form for tokens.
func loginPath(r *http.Request, cfg Config, is standing) string {
	if mode := r.Header.Get("Sec-Fetch-Mode"); is == ended && !cfg.underWay(r) && (mode == "" || mode == "navigate") {
		return signInPath
	}
	return "/login"
}

func missingCredential(cfg Config, is standing) string {
	switch {
	case is == ended:
		return "the session has ended: load the page anew, which signs you in"
	case cfg.Users == nil:
		return "sign in at /login; for programs [server] needs a token_file"
	}
	return "no valid token; send Authorization: Bearer TOKEN"
}

// rarely counts requests and logs at most one line per minute.
type rarely struct{ logging.Rarely }

// warnRarely counts a request. If a line is due, it logs the number of requests since the last line, and the fields in more for the current request.
func (f *rarely) warnRarely(log hclog.Logger, message string, r *http.Request, more ...any) {
	if requests, due := f.Due(); due {
		log.Warn(message, append([]any{"requests", requests, "address", r.RemoteAddr}, more...)...)
	}
}

func (s sessions) logRefusal(r *http.Request) {
	s.rejected.warnRarely(s.cfg.Log, "HTTP requests refused: their token is unknown", r)
}

// believeProxies replaces the address of requests from trusted proxies by the address of the client in X-Forwarded-For.
func believeProxies(next http.Handler, trusted []netip.Prefix) http.Handler {
	if len(trusted) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if client := clientOf(r, trusted); client.IsValid() {
			behind := *r
			behind.RemoteAddr = netip.AddrPortFrom(client, 0).String()
			r = &behind
			connOf(r).setClient(client)
		}
		next.ServeHTTP(w, r)
	})
}

// clientOf returns the last address in X-Forwarded-For that is not a trusted proxy. The entries before that address may be forged. The result is invalid if
// the request does not come from a trusted proxy, or if the header names no client.
func clientOf(r *http.Request, trusted []netip.Prefix) (client netip.Addr) {
	if !isTrusted(trusted, addressOf(r.RemoteAddr)) {
		return netip.Addr{}
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		at := addressOf(strings.TrimSpace(hop))
		if !at.IsValid() {
			break
		}
		if client = at; !isTrusted(trusted, at) {
			break
		}
	}
	return client
}

func addressOf(text string) netip.Addr {
	if host, _, err := net.SplitHostPort(text); err == nil {
		text = host
	}
	at, _ := netip.ParseAddr(strings.Trim(text, "[]")) // an invalid address if text is not an address
	return at.Unmap().WithZone("")
}

func isTrusted(trusted []netip.Prefix, at netip.Addr) bool {
	return slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(at) })
}

// countedAddress returns the address by which a client is counted. For IPv6 it is the client's /64 network, because a client can use every address in it.
func countedAddress(at netip.Addr) netip.Addr {
	if at.Is6() && !at.Is4In6() {
		network, _ := at.Prefix(64) // no error: 64 is a valid length
		return network.Addr()
	}
	return at
}
