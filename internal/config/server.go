package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
)

func serverKeys() schema.Section[Server] {
	return schema.Section[Server]{
		Once: true,
		Keys: []schema.Key[Server]{
			schema.Field("listen", "address", func(to *Server) *string { return &to.Listen }, readListen,
				"Address of the HTTP server. Required.").Allow("`\"HOST:PORT\"`; port 0 is any free one"),
			schema.Path("token_file", func(to *Server) *string { return &to.TokenFile },
				"File with [users](access.md#http), a line `NAME:ROLE:HASH` each, or one token. Required without `oidc`, except on loopback."),
			schema.Table("oidc", func(to *Server) *OIDC { to.OIDC = newOIDC(); return to.OIDC }, oidcKeys(), "Sign-in at an [OpenID Connect provider](#serveroidc)."),
			schema.Field("url", "URL", func(to *Server) *string { return &to.URL }, outsideURL,
				"Address of the pages [behind a proxy](access.md#behind-a-proxy). Implies `base_path`, and permits its host.").
				Allow("`https://HOST[:PORT][/PATH]` or `http://`"),
			schema.Field("base_path", "path", func(to *Server) *string { return &to.BasePath }, basePath,
				"Prefix of all paths behind a proxy with other services.").
				Allow("`\"/PATH\"`, not beginning like a path of the server").By("the path of `url`"),
			schema.Field("trusted_proxies", schema.KindStrings, func(to *Server) *[]netip.Prefix { return &to.TrustedProxies }, trustedProxies,
				"Proxies whose `X-Forwarded-For` is trusted.").Allow("IP addresses and networks such as `10.0.0.0/8`"),
			schema.Field("hosts", schema.KindStrings, func(to *Server) *[]string { return &to.Hosts }, readHosts,
				"Permitted `Host` names, besides `localhost`, IP addresses, and the hosts of `listen`, `url` and `redirect_url`.").Allow("names without scheme and port"),
			schema.Table("tls", func(to *Server) *Server { return to }, serverTLSKeys(), "Certificate for HTTPS."),
		},
	}
}

func serverTLSKeys() schema.Section[Server] {
	return schema.Section[Server]{
		Once: true,
		Keys: []schema.Key[Server]{
			schema.Path("cert_file", func(to *Server) *string { return &to.CertFile }, "PEM file of the server's certificate. Required."),
			schema.Path("key_file", func(to *Server) *string { return &to.KeyFile }, "PEM file of its key. Required."),
		},
	}
}

func readHosts(r *schema.Reader, v document.Value) ([]string, bool) {
	const want = `a list of names such as ["cron.example.org"]`
	return schema.List(r, v, want, func(item document.Value) (string, bool) {
		e, ok := r.Text(item, want)
		if ok && !e.Open && (e.Text == "" || !isHost(e.Text)) {
			r.Fault(item, "%q is no name of a host; write it without scheme and port, as in cron.example.org", item.Raw)
			return "", false
		}
		return e.Text, ok
	})
}

func outsideURL(r *schema.Reader, v document.Value) (string, bool) {
	text, ok := r.Checked(v, "a URL in a string", func(s string) error {
		u, err := url.Parse(strings.TrimSuffix(s, "/"))
		switch {
		case err != nil || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
			return errors.New("is not where a browser finds the pages; write https://HOST, or https://HOST/PATH behind a proxy with other services")
		case u.EscapedPath() != "" && faultOfBase(u.EscapedPath()) != "":
			return fmt.Errorf("has the path %q, which %s", asWritten(v, u.EscapedPath()), faultOfBase(u.EscapedPath()))
		}
		return nil
	})
	return strings.TrimSuffix(text, "/"), ok
}

func basePath(r *schema.Reader, v document.Value) (string, bool) {
	return r.Checked(v, "a path in a string, as \"/cron\"", func(s string) error {
		if fault := faultOfBase(s); fault != "" {
			return fmt.Errorf("%q %s", v.Raw, fault)
		}
		return nil
	})
}

// asWritten returns a part of a value for a message. If the value uses the environment, it returns the whole value as it is written in the file, because the
// part could reveal a secret.
func asWritten(v document.Value, part string) any {
	if hasDollar(v.Raw) {
		return v.Raw
	}
	return part
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
			r.Fault(item, "%q is no IP address and no network; write it as in 10.0.0.7 or 10.0.0.0/8", item.Raw)
			return netip.Prefix{}, false
		}
		return prefix.Masked(), true
	})
}

func readListen(r *schema.Reader, v document.Value) (string, bool) {
	return r.Checked(v, "an address, as \"127.0.0.1:7377\"", func(s string) error {
		host, port, err := net.SplitHostPort(s)
		if _, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || host != "" && !isHost(host) {
			return fmt.Errorf("%q is no address; write HOST:PORT, as in 127.0.0.1:7377 or [::1]:7377", v.Raw)
		}
		return nil
	})
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

// checkServer reports a missing server.listen, and a server that other machines can reach without a login. table is [server] of the first file that has it.
func checkServer(r *schema.Reader, table document.Value, s Server) {
	if !table.IsTable() {
		return
	}
	if tls, set := r.Set("server.tls"); set && (s.CertFile == "" || s.KeyFile == "") && !r.Meant("server.tls.cert_file") && !r.Meant("server.tls.key_file") {
		r.Fault(tls.AtKey(), "cert_file and key_file go together; set both")
	}
	outside, _ := r.Set("server.url")
	if at, set := r.Set("server.base_path"); set && s.BasePath != "" && s.URL != "" && !hasUnset(s.BasePath+s.URL) && s.BasePath != pathOf(s.URL) {
		r.Fault(at, "base_path %q is not the path of url, %q; leave base_path out", asWritten(at, s.BasePath), asWritten(outside, pathOf(s.URL)))
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
	case set && s.Listen != "" && !hasUnset(s.Listen) && !guarded && !isLoopback(s.Listen):
		r.Fault(listen, "listen %q is reached from other machines, so token_file or oidc is needed; set one of them, or listen on 127.0.0.1", listen.Raw)
	}
}

func pathOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.EscapedPath()
}

// Base returns the prefix of all paths that browsers request, or "". It is the path under which a proxy serves the pages.
func (s Server) Base() string {
	return cmp.Or(s.BasePath, pathOf(s.URL))
}

// RedirectURL returns the address to which the OpenID Connect provider redirects browsers. OIDC must not be nil.
func (s Server) RedirectURL() string {
	return cmp.Or(s.OIDC.RedirectURL, s.URL+callbackPath)
}

// hasUnset reports whether a value contains a variable that [Options.KeepUnset] has left in it.
func hasUnset(value string) bool { return strings.Contains(value, "${") }

// isLoopback reports whether a listen address can be reached only from this machine. It returns true for a text that is no address.
func isLoopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	return err != nil || isLoopbackHost(host)
}

func isLoopbackHost(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// callbackPath is the path to which the provider redirects browsers.
const callbackPath = "/login/oidc/callback"

func newOIDC() *OIDC { return &OIDC{NameClaim: "email", RoleClaim: "groups"} }

func oidcKeys() schema.Section[OIDC] {
	return schema.Section[OIDC]{
		Once: true,
		Keys: []schema.Key[OIDC]{
			schema.Field("issuer", "URL", func(to *OIDC) *string { return &to.Issuer }, providerURL,
				"The provider, as its ID tokens name it. Required.").Allow("`https://`; `http://` on loopback"),
			schema.String("client_id", func(to *OIDC) *string { return &to.ClientID }, "Client id at the provider. Required."),
			schema.Path("client_secret_file", func(to *OIDC) *string { return &to.ClientSecretFile }, "File with the client secret: random, at least 16 characters, the same for all replicas. Required."),
			schema.Field("redirect_url", "URL", func(to *OIDC) *string { return &to.RedirectURL }, providerURL,
				"Return address registered at the provider. Permits its host. Required without `url`.").
				Allow("as `issuer`, with the path `" + callbackPath + "` below `base_path`").By("this path below `url`"),
			schema.Strings("scopes", func(to *OIDC) *[]string { return &to.Scopes }, "Requested in addition to `openid`.").
				By("profile, email, and the `role_claim` if the provider offers it"),
			schema.String("name_claim", func(to *OIDC) *string { return &to.NameClaim }, "Claim with the user's name, shown after `oidc:` in the audit log. `email` must be verified.").
				DefaultOf(func(of *OIDC) any { return of.NameClaim }),
			schema.String("role_claim", func(to *OIDC) *string { return &to.RoleClaim }, "Claim with the role: a string or a list of strings.").
				DefaultOf(func(of *OIDC) any { return of.RoleClaim }),
			schema.Strings("operators", func(to *OIDC) *[]string { return &to.Operators }, "Values of `role_claim` for operators. This or `viewers` is required."),
			schema.Strings("viewers", func(to *OIDC) *[]string { return &to.Viewers }, "Values for viewers. Operators take precedence."),
		},
	}
}

// providerURL reads a URL to which secrets are sent. It must be an HTTPS URL or a loopback address. The messages do not contain the URL, because a user may
// have put a password into it by mistake.
func providerURL(r *schema.Reader, v document.Value) (string, bool) {
	return r.Checked(v, "a URL in a string", checkProviderURL)
}

func checkProviderURL(s string) error {
	u, err := url.Parse(s)
	const want = "https://HOST"
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("is no URL of a web service; write %s", want)
	case u.Scheme == "http" && !isLoopbackHost(u.Hostname()):
		return fmt.Errorf("is not protected; write %s (http:// is for trials on 127.0.0.1 or localhost)", want)
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return fmt.Errorf("has a user, a query or a fragment; write %s", want)
	}
	return nil
}

// checkOIDC reports missing keys in [server.oidc], and a redirect_url that the server does not handle.
func checkOIDC(r *schema.Reader, s Server) {
	table, set := r.Set("server.oidc")
	if !set || !table.IsTable() {
		return
	}
	_, outside := r.Set("server.url")
	for _, key := range []string{"issuer", "client_id", "client_secret_file", "redirect_url"} {
		if r.Missing(table, key) && (key != "redirect_url" || !outside && !r.Meant("server.url")) {
			r.Fault(table.AtKey(), "[server.oidc] has no %s; set %s", key, key)
		}
	}
	if r.Missing(table, "operators") && r.Missing(table, "viewers") {
		r.Fault(table.AtKey(), "[server.oidc] has neither operators nor viewers, so it lets no person in; set one of them")
	}
	checkRedirect(r, s)
	if at, set := r.Set("server.url"); set && s.URL != "" && s.OIDC != nil && s.OIDC.RedirectURL == "" && !r.Meant("server.oidc.redirect_url") {
		if err := checkProviderURL(s.URL); err != nil {
			r.Fault(at, "url is where the provider of [server.oidc] leads browsers back to, and %v", err)
		}
	}
}

func checkRedirect(r *schema.Reader, s Server) {
	at, set := r.Set("server.oidc.redirect_url")
	if !set || s.OIDC == nil || s.OIDC.RedirectURL == "" {
		return
	}
	if u, err := url.Parse(s.OIDC.RedirectURL); err == nil && u.Host != "" && u.Path != s.Base()+callbackPath {
		base := s.Base()
		for _, key := range []string{"server.url", "server.base_path"} {
			if v, set := r.Set(key); set && hasDollar(v.Raw) {
				base = "/BASE_PATH" // the path may contain a value from the environment, which a message must not reveal
			}
		}
		r.Fault(at, "redirect_url has another path than the server's; write https://HOST%s", base+callbackPath)
	}
	if s.CertFile != "" && strings.HasPrefix(s.OIDC.RedirectURL, "http:") {
		r.Fault(at, "redirect_url is http://, and with [server.tls] the server answers HTTPS alone; write https://")
	}
}

const leastHeartbeat = time.Second

func heartbeatKeys() schema.Section[Heartbeat] {
	return schema.Section[Heartbeat]{
		Once: true,
		Keys: []schema.Key[Heartbeat]{
			schema.Field("url", "URL", func(to *Heartbeat) *string { return &to.URL }, webURL,
				"Requested by the leader with GET. It may be a secret. Required.").Allow("`http://` or `https://`"),
			schema.Duration("every", leastHeartbeat, schema.AnyLength, func(h *Heartbeat) *time.Duration { return &h.Every }, "Interval of the requests."),
		},
	}
}

// checkURL reports a missing url of [heartbeat] or [traces]. table is the table of the first file that has it.
func checkURL(r *schema.Reader, name string, table document.Value) {
	if _, set := r.Set(name + ".url"); table.IsTable() && !set && !r.Meant(name+".url") {
		r.Fault(table.AtKey(), "[%s] has no url; set url", name)
	}
}

// webURL reads the URL of a web service. Its messages do not contain the URL, which may be a secret.
func webURL(r *schema.Reader, v document.Value) (string, bool) {
	return r.Checked(v, "a URL in a string", checkWebURL)
}

func checkWebURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return errors.New("is no URL of a web service; write http://HOST/PATH or https://HOST/PATH")
	}
	return nil
}
