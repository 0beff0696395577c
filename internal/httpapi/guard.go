package httpapi

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// guarded lets requests through that name this server in their Host header, come from no page of another site if they change something, and are from a
// known user. Whether the replica is alive is for everybody to ask.
func guarded(routes http.Handler, cfg Config) http.Handler {
	public := http.NewServeMux()
	public.Handle("GET /healthz", alive())
	public.Handle("GET /readyz", ready(cfg.Unready))
	public.Handle("/", authenticated(routes, cfg))
	if cfg.Users != nil {
		sessions{cfg}.routes(public)
	}
	hosts := append([]string{"localhost"}, cfg.Hosts...)
	if host, _, err := net.SplitHostPort(cfg.Listen); err == nil && host != "" {
		hosts = append(hosts, host)
	}
	return named(http.NewCrossOriginProtection().Handler(bounded(public)), hosts)
}

// mostBody is longer than any request that is meant: a thousand names of jobs.
const mostBody = 256 << 10

// bounded ends requests with a body that is too long.
func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, mostBody)
		next.ServeHTTP(w, r)
	})
}

// named refuses requests for other hosts: else a page of any site could have a browser on this machine ask for it, by a name that
// suddenly leads here (DNS rebinding). An address can't be made to lead elsewhere, so each is accepted; and so is a request without a Host, which no browser
// sends, but health checks by HTTP/1.0 do.
func named(next http.Handler, hosts []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := hostOf(r.Host)
		known := host == "" || net.ParseIP(host) != nil || slices.ContainsFunc(hosts, func(name string) bool { return strings.EqualFold(name, host) })
		if !known {
			http.Error(w, "this name is not in [server].hosts", http.StatusMisdirectedRequest)
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

// authenticated lets requests of users through, with the user in the context. Without tokens every client is anonymous.
func authenticated(next http.Handler, cfg Config) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, known := anonymous, true
		if cfg.Users != nil {
			user, known = cfg.Users().Find(tokenOf(r))
		}
		switch {
		case known:
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
		case r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html"):
			http.Redirect(w, r, "/login?next="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
		default:
			w.Header().Set("WWW-Authenticate", `Bearer realm="cronclave"`)
			http.Error(w, "a token is needed: Authorization: Bearer TOKEN", http.StatusUnauthorized)
		}
	})
}

// tokenOf is the token that a request bears: of its Authorization header if it has one, else of the cookie of a browser that has logged in.
func tokenOf(r *http.Request) string {
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, token, _ := strings.Cut(header, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return ""
		}
		return strings.TrimSpace(token)
	}
	if c, err := r.Cookie(cookieName); err == nil {
		return c.Value
	}
	return ""
}
