package config

import (
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
)

func serverKeys() schema.Section[Server] {
	return schema.Section[Server]{
		Once: true,
		Keys: []schema.Key[Server]{
			schema.Field("listen", "address", func(to *Server) *string { return &to.Listen }, readListen,
				"Where the replica answers HTTP requests. Required in this table.").Allow("`\"HOST:PORT\"`; port 0 is any free one"),
			schema.Path("token_file", func(to *Server) *string { return &to.TokenFile },
				"A file with users, a line `NAME:ROLE:HASH` each, or one token: see [access](access.md#http). This or `oidc` is required unless `listen` is a loopback address."),
			schema.Table("oidc", func(to *Server) *OIDC { to.OIDC = newOIDC(); return to.OIDC }, oidcKeys(), "Has people sign in at an OpenID Connect provider: see [`[server].oidc`](#serveroidc)."),
			schema.Field("url", "URL", func(to *Server) *string { return &to.URL }, outsideURL,
				"Where browsers find the pages, if a proxy stands before the server: see [access](access.md#behind-a-proxy). Its path is the `base_path`. Its host needs no entry in `hosts`.").
				Allow("`https://HOST[:PORT][/PATH]` or `http://`"),
			schema.Field("base_path", "path", func(to *Server) *string { return &to.BasePath }, basePath,
				"What all paths of the pages and the API begin with in browsers, if a proxy has other services beside them. Requests may have it or not.").
				Allow("`\"/PATH\"`, not the first part of one of our own paths").By("the path of `url`"),
			schema.Field("trusted_proxies", schema.KindStrings, func(to *Server) *[]netip.Prefix { return &to.TrustedProxies }, trustedProxies,
				"Proxies whose `X-Forwarded-For` is believed: the client is the last address in it that is none of these.").Allow("IP addresses and networks such as `10.0.0.0/8`"),
			schema.Field("hosts", schema.KindStrings, func(to *Server) *[]string { return &to.Hosts }, readHosts,
				"Names by which clients may ask, beside `localhost`, the hosts of `listen`, `url` and `redirect_url`, and IP addresses.").Allow("host names without scheme and port"),
			schema.Table("tls", func(to *Server) *Server { return to }, serverTLSKeys(), "Has the server answer by HTTPS: see [`[server].tls`](#servertls)."),
		},
	}
}

func serverTLSKeys() schema.Section[Server] {
	return schema.Section[Server]{
		Once: true,
		Keys: []schema.Key[Server]{
			schema.Path("cert_file", func(to *Server) *string { return &to.CertFile }, "PEM file of the server's certificate. Required in this table."),
			schema.Path("key_file", func(to *Server) *string { return &to.KeyFile }, "PEM file of its key. Required in this table."),
		},
	}
}

// readHosts reads the names that are permitted in the Host header, without ports.
func readHosts(r *schema.Reader, v document.Value) ([]string, bool) {
	const want = `a list of names such as ["cron.example.org"]`
	return schema.List(r, v, want, func(item document.Value) (string, bool) {
		e, ok := r.Text(item, want)
		if ok && !e.Open && (e.Text == "" || !isHost(e.Text)) {
			r.Fault(item, "%q is no name of a host; write it without scheme and port, as in cron.example.org", e.Text)
			return "", false
		}
		return e.Text, ok
	})
}

// outsideURL reads the address at which browsers reach the pages.
func outsideURL(r *schema.Reader, v document.Value) (string, bool) {
	e, ok := r.Text(v, "a URL in a string")
	if !ok || e.Open {
		return e.Text, ok
	}
	text := strings.TrimSuffix(e.Text, "/")
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		r.Fault(v, "%s is not where a browser finds the pages; write https://HOST, or https://HOST/PATH behind a proxy with other services", v.Name)
		return "", false
	case u.EscapedPath() != "" && faultOfBase(u.EscapedPath()) != "":
		r.Fault(v, "%s has the path %q, which %s", v.Name, u.EscapedPath(), faultOfBase(u.EscapedPath()))
		return "", false
	}
	return text, true
}

// basePath reads the prefix that all paths have in browsers.
func basePath(r *schema.Reader, v document.Value) (string, bool) {
	e, ok := r.Text(v, "a path in a string, as \"/cron\"")
	if !ok || e.Open {
		return e.Text, ok
	}
	if fault := faultOfBase(e.Text); fault != "" {
		r.Fault(v, "%s %q %s", v.Name, e.Text, fault)
		return "", false
	}
	return e.Text, true
}

// baseForm excludes characters that proxies and browsers may encode in different ways.
var baseForm = regexp.MustCompile(`^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+$`)

// OwnPaths returns the first parts of the server's own paths. A base path must not begin with one of them. A proxy may remove the base path from requests or
// keep it, and the server must be able to distinguish the two.
func OwnPaths() []string {
	return []string{"api", "assets", "audit", "calendar", "calendar.ics", "cluster", "go", "healthz", "jobs", "login", "login.css", "logout", "metrics", "palette.json",
		"pause", "readyz", "resume", "timeline"}
}

// faultOfBase returns the end of a message about a faulty base path, or "" if the path is valid.
func faultOfBase(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch {
	case !baseForm.MatchString(path) || len(path) > 200:
		return "is no base path; write it as /cron, without a slash at the end, of letters, digits and . _ ~ -"
	case slices.Contains(OwnPaths(), first):
		return "begins like a path of the server itself; use another first part than /" + first
	}
	return ""
}

// trustedProxies reads IP addresses and networks.
func trustedProxies(r *schema.Reader, v document.Value) ([]netip.Prefix, bool) {
	const want = `a list of addresses such as ["10.0.0.0/8"]`
	return schema.List(r, v, want, func(item document.Value) (netip.Prefix, bool) {
		e, ok := r.Text(item, want)
		if !ok || e.Open {
			return netip.Prefix{}, ok
		}
		if addr, err := netip.ParseAddr(e.Text); err == nil && addr.Zone() == "" {
			return netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen()), true
		}
		prefix, err := netip.ParsePrefix(e.Text)
		if err != nil {
			r.Fault(item, "%q is no IP address and no network; write it as in 10.0.0.7 or 10.0.0.0/8", e.Text)
			return netip.Prefix{}, false
		}
		return prefix.Masked(), true
	})
}

// readListen reads an address to listen on.
func readListen(r *schema.Reader, v document.Value) (string, bool) {
	const want = "an address, as \"127.0.0.1:7377\""
	e, ok := r.Text(v, want)
	if !ok || e.Open {
		return e.Text, ok
	}
	if host, port, err := net.SplitHostPort(e.Text); err != nil || !isPort(port) || host != "" && !isHost(host) {
		r.Fault(v, "%s %q is no address; write HOST:PORT, as in 127.0.0.1:7377 or [::1]:7377", v.Name, e.Text)
		return "", false
	}
	return e.Text, true
}

func isPort(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}

// isHost reports whether a text is an IP address or looks like a host name.
func isHost(s string) bool {
	if net.ParseIP(s) != nil {
		return true
	}
	for _, c := range s {
		if c != '.' && c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return true
}

// checkServer reports a missing server.listen, and a server that other machines can reach without a login. table is the first [server].
func checkServer(r *schema.Reader, table document.Value, s Server) {
	if !table.IsTable() {
		return
	}
	if tls, set := r.Set("server.tls"); set && (s.CertFile == "" || s.KeyFile == "") && !r.Meant("server.tls.cert_file") && !r.Meant("server.tls.key_file") {
		r.Fault(tls.AtKey(), "cert_file and key_file go together; set both")
	}
	if at, set := r.Set("server.base_path"); set && s.BasePath != "" && s.URL != "" && s.BasePath != pathOf(s.URL) {
		r.Fault(at, "base_path %q is not the path of url, %q; leave base_path out", s.BasePath, pathOf(s.URL))
	}
	listen, set := r.Set("server.listen")
	checkOIDC(r, s)
	guarded := slices.ContainsFunc([]string{"server.token_file", "server.oidc"}, func(key string) bool {
		_, set := r.Set(key)
		return set || r.Meant(key)
	})
	switch {
	case !set && !r.Meant("server.listen"):
		r.Fault(table.AtKey(), "[server] has no listen; set listen")
	case set && s.Listen != "" && !guarded && !isLoopback(s.Listen):
		r.Fault(listen, "listen %q is reached from other machines, so token_file or oidc is needed; set one of them, or listen on 127.0.0.1", s.Listen)
	}
}

// pathOf returns the path of a URL, or "" if the URL is invalid.
func pathOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.EscapedPath()
}

// Base returns the prefix of all paths in browsers, or "".
func (s Server) Base() string {
	if s.BasePath == "" {
		return pathOf(s.URL)
	}
	return s.BasePath
}

// RedirectURL returns the address to which the OpenID Connect provider redirects browsers. OIDC must not be nil.
func (s Server) RedirectURL() string {
	if s.OIDC.RedirectURL == "" {
		return s.URL + callbackPath
	}
	return s.OIDC.RedirectURL
}

// isLoopback reports whether a listen address can be reached only from this machine.
func isLoopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	return err != nil || isLoopbackHost(host)
}

func isLoopbackHost(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
