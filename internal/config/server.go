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
		keys: map[string]func(*reader, value, *Server){
			"listen":     func(r *reader, v value, to *Server) { assign(&to.Listen)(r.listen(v)) },
			"token_file": func(r *reader, v value, to *Server) { assign(&to.TokenFile)(r.ownPath(v, true)) },
			"hosts":      func(r *reader, v value, to *Server) { assign(&to.Hosts)(r.hosts(v)) },
			"tls":        func(r *reader, v value, to *Server) { read(r, v, serverTLSKeys(), to) },
		},
	}
}

func serverTLSKeys() section[Server] {
	return section[Server]{
		once: true,
		keys: map[string]func(*reader, value, *Server){
			"cert_file": func(r *reader, v value, to *Server) { assign(&to.CertFile)(r.ownPath(v, false)) },
			"key_file":  func(r *reader, v value, to *Server) { assign(&to.KeyFile)(r.ownPath(v, true)) },
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

// isHost tells an IP address or a name.
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

// checkServer tells a server that anybody could ask, and one that does not listen.
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

// isLoopback tells whether only this machine reaches an address.
func isLoopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	ip := net.ParseIP(host)
	return err != nil || host == "localhost" || ip != nil && ip.IsLoopback()
}
