package harness

import (
	"crypto/tls"
	"net"
	"sync"
	"testing"
)

// Proxy stands between replicas and a Redis. It can be a bad link for its clients alone.
type Proxy struct {
	URL    string
	target string
	listen net.Listener
	edit   func(reply []byte) []byte // nil leaves replies as they are
	work   sync.WaitGroup

	mu    sync.Mutex
	fault Fault
	watch func() Watcher // nil for none
	conns map[net.Conn]bool
}

// A watcher sees the data of one connection before the proxy forwards it, and decides whether replies are dropped. Its methods may be called concurrently.
type Watcher interface {
	Request(part []byte)
	Reply(part []byte) Verdict
}

// Verdict is the decision about a reply.
type Verdict int

const (
	Passes Verdict = iota
	IsLost
	Closes // the reply is lost, and the connection is closed
)

// Fault is the fault of a link; the zero value is a link that works. Requests and replies return whether the next
// part that comes gets through; nil lets all through. A lost part leaves connections open and accepted.
type Fault struct {
	Reset             bool // connections are reset, new ones too
	Requests, Replies func() bool
}

// LetsNothingThrough gets through.
func LetsNothingThrough() bool { return false }

// LetsAllButOneIn lets all through but each nth.
func LetsAllButOneIn(n int) func() bool {
	seen := 0
	return func() bool { seen++; return seen%n != 0 }
}

// StartProxy listens on a port of its own, with TLS if a configuration is given. It ends with the test.
func StartProxy(t *testing.T, target string, secure *tls.Config, edit func([]byte) []byte) *Proxy {
	t.Helper()
	return StartProxyAt(t, "127.0.0.1:0", target, secure, edit)
}

// StartProxyAt does the same at an address.
func StartProxyAt(t *testing.T, addr, target string, secure *tls.Config, edit func([]byte) []byte) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{URL: "redis://" + l.Addr().String() + "/0", target: target, listen: l, edit: edit, conns: map[net.Conn]bool{}}
	if secure != nil {
		p.URL = "rediss://" + l.Addr().String() + "/0"
		p.listen = tls.NewListener(l, secure)
	}
	p.work.Go(p.accept)
	t.Cleanup(p.Close)
	return p
}

// Close ends the proxy, and all connections through it.
func (p *Proxy) Close() {
	p.listen.Close()
	p.Drop()
	p.work.Wait()
}

// Addr is host:port, for those who take no URL.
func (p *Proxy) Addr() string { return p.listen.Addr().String() }

func (p *Proxy) accept() {
	for {
		client, err := p.listen.Accept()
		if err != nil {
			return
		}
		if p.resets() {
			reset(client)
			continue
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		p.conns[client], p.conns[server] = true, true
		requests, replies := p.watched()
		p.mu.Unlock()
		p.work.Go(func() { p.pump(server, client, requests, func(f Fault) func() bool { return f.Requests }) })
		p.work.Go(func() { p.pump(client, server, replies, func(f Fault) func() bool { return f.Replies }) })
	}
}

// watched returns the functions that process the requests and the replies of a new connection. Each returns the data to forward, and false to close the connection.
func (p *Proxy) watched() (requests, replies func([]byte) ([]byte, bool)) {
	asIs := func(part []byte) ([]byte, bool) { return part, true }
	requests, replies = asIs, asIs
	if p.edit != nil {
		replies = func(part []byte) ([]byte, bool) { return p.edit(part), true }
	}
	if p.watch != nil {
		w, edited := p.watch(), replies
		requests = func(part []byte) ([]byte, bool) { w.Request(part); return part, true }
		replies = func(part []byte) ([]byte, bool) {
			switch w.Reply(part) {
			case IsLost:
				return nil, true
			case Closes:
				return nil, false
			}
			return edited(part)
		}
	}
	return requests, replies
}

// Watch creates a watcher for each new connection. Existing connections have none.
func (p *Proxy) Watch(with func() Watcher) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watch = with
}

func (p *Proxy) resets() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault.Reset
}

// reset closes a connection so that the other side is told that it broke.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // it may be closed already
	}
	c.Close()
}

// pump hands on the data from one side, until one of them is closed. way picks the part of a fault for this direction.
func (p *Proxy) pump(to, from net.Conn, edit func([]byte) ([]byte, bool), way func(Fault) func() bool) {
	defer p.forget(to, from)
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		part, open := edit(buf[:n])
		if !open || !p.pass(to, part, way) || err != nil {
			return
		}
	}
}

// pass writes data that gets through; once Cut has returned, nothing more does.
func (p *Proxy) pass(to net.Conn, part []byte, way func(Fault) func() bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if gets := way(p.fault); gets != nil && !gets() {
		return true
	}
	_, err := to.Write(part)
	return err == nil
}

func (p *Proxy) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		c.Close()
		delete(p.conns, c)
	}
}

// Break makes it a bad link.
func (p *Proxy) Break(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
	for c := range p.conns {
		if f.Reset {
			reset(c)
			delete(p.conns, c)
		}
	}
}

// Cut makes the proxy silent, as a network is that drops everything.
func (p *Proxy) Cut() { p.Break(Fault{Requests: LetsNothingThrough, Replies: LetsNothingThrough}) }

// Mend lets it work again. Connections that have lost something are closed.
func (p *Proxy) Mend() {
	p.Drop()
	p.Break(Fault{})
}

func (p *Proxy) Drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
		delete(p.conns, c)
	}
}
