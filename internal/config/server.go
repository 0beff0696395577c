package config

import (
	"net"
	"slices"
	"strconv"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
)

func serverKeys() schema.Section[Server] {
	return schema.Section[Server]{
		Once: true,
		Keys: []schema.Key[Server]{
			schema.Field("listen", "address", func(to *Server) *string { return &to.Listen }, listen,
				"Where the replica answers HTTP requests. Required in this table.").Allow("`\"HOST:PORT\"`; port 0 is any free one"),
			schema.Path("token_file", func(to *Server) *string { return &to.TokenFile },
				"A file with users, a line `NAME:ROLE:HASH` each, or one token: see [access](access.md#http). This or `oidc` is required unless `listen` is a loopback address."),
			schema.Table("oidc", func(to *Server) *OIDC { to.OIDC = newOIDC(); return to.OIDC }, oidcKeys(), "Has people sign in at an OpenID Connect provider: see [`[server].oidc`](#serveroidc)."),
			schema.Field("hosts", schema.KindStrings, func(to *Server) *[]string { return &to.Hosts }, hosts,
				"Names by which clients may ask, beside `localhost`, the hosts of `listen` and `redirect_url`, and IP addresses.").Allow("host names without scheme and port"),
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

// hosts reads names by which clients may ask, without ports.
func hosts(r *schema.Reader, v document.Value) ([]string, bool) {
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

// listen reads an address to listen on.
func listen(r *schema.Reader, v document.Value) (string, bool) {
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

// isHost returns whether a text is an IP address or a name.
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

// checkServer reports a server that other machines can reach without a login, and one that does not listen. table is the first [server].
func checkServer(r *schema.Reader, table document.Value, s Server) {
	if !table.IsTable() {
		return
	}
	if tls, set := r.Set("server.tls"); set && (s.CertFile == "" || s.KeyFile == "") && !r.Meant("server.tls.cert_file") && !r.Meant("server.tls.key_file") {
		r.Fault(tls.AtKey(), "cert_file and key_file go together; set both")
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

// isLoopback returns whether only this machine reaches an address.
func isLoopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	return err != nil || isLoopbackHost(host)
}

func isLoopbackHost(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
