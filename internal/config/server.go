package config

import (
	"net"
	"strconv"
)

// Server says where a replica answers HTTP requests.
type Server struct {
	// Listen is "host:port"; "" for no server. A port of 0 is any that is free.
	Listen string
	// TokenFile is a file with the token that each request must bear; "" for none, which only a loopback address may have.
	TokenFile string
	// Hosts are names by which clients may ask, beside localhost, the host of Listen and each IP address.
	Hosts []string
	// CertFile and KeyFile have the server's certificate and its key; "" for plain HTTP.
	CertFile, KeyFile string
}

func serverKeys() section[Server] {
	return section[Server]{
		once: true,
		keys: []key[Server]{
			{
				name: "listen", kind: "address", allowed: "`\"HOST:PORT\"`; port 0 is any free one", doc: "Where the replica answers HTTP requests. Required in this table.",
				read: func(r *reader, v value, to *Server) { assign(&to.Listen)(r.listen(v)) },
			},
			{
				name: "token_file", kind: kindPath, doc: "A file with the token, 16 characters or more, that each request must bear. Required unless `listen` is a loopback address.",
				read: func(r *reader, v value, to *Server) { assign(&to.TokenFile)(r.ownPath(v, true)) },
			},
			{
				name: "hosts", kind: kindStrings, allowed: "host names without scheme and port",
				doc:  "Names by which clients may ask, beside `localhost`, the host of `listen` and IP addresses.",
				read: func(r *reader, v value, to *Server) { assign(&to.Hosts)(r.hosts(v)) },
			},
			{
				name: "tls", kind: kindTable, doc: "Has the server answer by HTTPS: see [`[server].tls`](#servertls).",
				read: func(r *reader, v value, to *Server) { read(r, v, serverTLSKeys(), to) },
			},
		},
	}
}

func serverTLSKeys() section[Server] {
	return section[Server]{
		once: true,
		keys: []key[Server]{
			{
				name: "cert_file", kind: kindPath, doc: "PEM file of the server's certificate. Required in this table.",
				read: func(r *reader, v value, to *Server) { assign(&to.CertFile)(r.ownPath(v, false)) },
			},
			{
				name: "key_file", kind: kindPath, doc: "PEM file of its key. Required in this table.",
				read: func(r *reader, v value, to *Server) { assign(&to.KeyFile)(r.ownPath(v, true)) },
			},
		},
	}
}

// hosts reads names by which clients may ask, without ports.
func (r *reader) hosts(v value) ([]string, bool) {
	const want = `a list of names such as ["cron.example.org"]`
	return list(r, v, want, func(item value) (string, bool) {
		e, ok := r.text(item, want)
		if ok && !e.open && (e.text == "" || !isHost(e.text)) {
			r.fault(item, "%q is no name of a host; write it without scheme and port, as in cron.example.org", e.text)
			return "", false
		}
		return e.text, ok
	})
}

// readServer reads [server], which several files may share.
func readServer(r *reader, v value, t *top) {
	read(r, v, serverKeys(), &t.Server)
	if t.server.src == nil {
		t.server = v
	}
}

// listen reads an address to listen on.
func (r *reader) listen(v value) (string, bool) {
	const want = "an address, as \"127.0.0.1:7377\""
	e, ok := r.text(v, want)
	if !ok || e.open {
		return e.text, ok
	}
	if host, port, err := net.SplitHostPort(e.text); err != nil || !isPort(port) || host != "" && !isHost(host) {
		r.fault(v, "%s %q is no address; write HOST:PORT, as in 127.0.0.1:7377 or [::1]:7377", v.name, e.text)
		return "", false
	}
	return e.text, true
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

// checkServer reports a server that other machines can reach without a token, and one that does not listen.
func (r *reader) checkServer(v value, s Server) {
	if v.src == nil || !v.isTable() {
		return
	}
	if tls, set := r.set["server.tls"]; set && (s.CertFile == "" || s.KeyFile == "") && !r.meant["server.tls.cert_file"] && !r.meant["server.tls.key_file"] {
		r.faultAt(tls, tls.at.key, "cert_file and key_file go together; set both")
	}
	listen, set := r.set["server.listen"]
	_, guarded := r.set["server.token_file"]
	switch {
	case !set && !r.meant["server.listen"]:
		r.faultAt(v, v.at.key, "[server] has no listen; set listen")
	case set && s.Listen != "" && !guarded && !r.meant["server.token_file"] && !isLoopback(s.Listen):
		r.fault(listen, "listen %q is reached from other machines, so token_file is needed; set it, or listen on 127.0.0.1", s.Listen)
	}
}

// isLoopback returns whether only this machine reaches an address.
func isLoopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	ip := net.ParseIP(host)
	return err != nil || host == "localhost" || ip != nil && ip.IsLoopback()
}
