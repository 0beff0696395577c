package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"slices"
	"strings"
)

// guarded lets requests through that name this server in their Host header and bear the token.
func guarded(next http.Handler, cfg Config) http.Handler {
	if cfg.Token != nil {
		next = bearers(next, cfg.Token)
	}
	hosts := append([]string{"localhost"}, cfg.Hosts...)
	if host, _, err := net.SplitHostPort(cfg.Listen); err == nil && host != "" {
		hosts = append(hosts, host)
	}
	return named(next, hosts)
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

// bearers lets requests through that bear the token.
func bearers(next http.Handler, token func() string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		want := sha256.Sum256([]byte(token())) // of one length, so that the comparison takes the same time for all
		scheme, bears, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(strings.TrimSpace(bears)))
		if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", `Bearer realm="cronclave"`)
			http.Error(w, "a token is needed: Authorization: Bearer TOKEN", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}
