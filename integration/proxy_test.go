package integration

import (
	"crypto/tls"
	"net"
	"sync"
	"testing"
)

// proxy stands between replicas and a Redis. It can fall silent, as a network does that drops everything, without
// anybody else noticing.
type proxy struct {
	url    string
	target string
	listen net.Listener
	edit   func(reply []byte) []byte // nil leaves replies as they are
	work   sync.WaitGroup

	mu     sync.Mutex
	silent bool
	conns  map[net.Conn]bool
}

// startProxy listens on a port of its own, with TLS if a configuration is given. It ends with the test.
func startProxy(t *testing.T, target string, secure *tls.Config, edit func([]byte) []byte) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{url: "redis://" + l.Addr().String() + "/0", target: target, listen: l, edit: edit, conns: map[net.Conn]bool{}}
	if secure != nil {
		p.url = "rediss://" + l.Addr().String() + "/0"
		p.listen = tls.NewListener(l, secure)
	}
	p.work.Go(p.accept)
	t.Cleanup(func() {
		p.listen.Close()
		p.drop()
		p.work.Wait()
	})
	return p
}

func (p *proxy) accept() {
	for {
		client, err := p.listen.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		p.conns[client], p.conns[server] = true, true
		p.mu.Unlock()
		p.work.Go(func() { p.pump(server, client, nil) })
		p.work.Go(func() { p.pump(client, server, p.edit) })
	}
}

// pump hands on what comes from one side, until one of them is closed.
func (p *proxy) pump(to, from net.Conn, edit func([]byte) []byte) {
	defer p.forget(to, from)
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		part := buf[:n]
		if edit != nil {
			part = edit(part)
		}
		if !p.pass(to, part) || err != nil {
			return
		}
	}
}

// pass writes unless the proxy is silent; once Cut has returned, nothing more gets through.
func (p *proxy) pass(to net.Conn, part []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.silent {
		return true
	}
	_, err := to.Write(part)
	return err == nil
}

func (p *proxy) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		c.Close()
		delete(p.conns, c)
	}
}

// Cut makes the proxy silent: connections stay and are accepted, and whatever is sent on them is lost.
func (p *proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = true
}

// Mend lets it work again. Connections that have lost something are closed.
func (p *proxy) Mend() {
	p.drop()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = false
}

func (p *proxy) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
		delete(p.conns, c)
	}
}
