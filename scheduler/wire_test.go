package scheduler_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/cronclave/cronclave/internal/embedded"
)

// wire is a replica's way to the server, for a test to spoil. Its zero value with a dial works well.
type wire struct {
	dial func(ctx context.Context, network, addr string) (net.Conn, error)

	mu      sync.Mutex
	conns   map[*conn]bool
	silent  bool    // nothing gets through, and no error is returned
	refused bool    // connections are cut, and new ones refused
	planned []fault // for the next requests, one each
	struck  int     // faults that came true

	deliveries sync.WaitGroup // of late requests
}

// fault is a disturbance of one request.
type fault struct {
	kind faultKind
	late time.Duration
}

type faultKind string

const (
	none        faultKind = ""
	noReply     faultKind = "no reply"      // executed, and the reply is lost
	cutAtReply  faultKind = "cut at reply"  // the connection ends when the first reply comes
	cutAtOnce   faultKind = "cut at once"   // the request does not get through
	lateRequest faultKind = "late"          // it gets through, later, even if it is no longer waited for
	lateAndCut  faultKind = "late, and cut" // the same, and the connection ends at once
	noDial      faultKind = "refused dials" // and the connection is cut
)

var errRefused = errors.New("connection refused")

// plan has faults happen to the next requests.
func (w *wire) plan(faults ...fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.planned = append(w.planned, faults...)
}

// count is how many faults have come true.
func (w *wire) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.struck
}

// silence swallows everything until restore: requests, replies, and those of new connections.
func (w *wire) silence() { w.set(true, false) }

// refuse cuts all connections, and lets no new ones in until restore.
func (w *wire) refuse() { w.set(false, true) }

func (w *wire) restore() { w.set(false, false) }

// set changes how the wire is. Connections of before do not survive it.
func (w *wire) set(silent, refused bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent, w.refused = silent, refused
	for c := range w.conns {
		if silent {
			c.deaf, c.mute = true, true
		} else {
			c.Conn.Close()
		}
	}
}

// Dial connects to the server.
func (w *wire) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refused {
		return nil, errRefused
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(w.planned) > 0 && w.planned[0].kind == noDial {
		w.next()
		return nil, errRefused
	}
	inner, err := w.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: inner, wire: w, deaf: w.silent, mute: w.silent}
	if w.conns == nil {
		w.conns = map[*conn]bool{}
	}
	w.conns[c] = true
	return c, nil
}

// next takes the next planned fault. mu is held.
func (w *wire) next() fault {
	if len(w.planned) == 0 {
		return fault{}
	}
	f := w.planned[0]
	w.planned = w.planned[1:]
	w.struck++
	return f
}

// conn is one connection. Its fields belong to the wire's mutex.
type conn struct {
	net.Conn
	wire *wire

	deaf, mute bool // deaf loses the server's replies, mute the client's requests
	cutAtReply bool
	gone       bool          // the server's replies are not waited for
	late       chan struct{} // closed when a late request has been delivered
}

// Write sends a request, or what a fault makes of it. Only scripts meet faults: setting up a connection is no request.
func (c *conn) Write(p []byte) (int, error) {
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	if c.mute {
		return len(p), nil
	}
	var f fault
	if bytes.Contains(p, []byte("evalsha")) {
		f = c.wire.next()
	}
	switch f.kind {
	case noReply:
		c.deaf = true
	case cutAtReply:
		c.cutAtReply = true
	case cutAtOnce, noDial:
		if f.kind == noDial {
			c.wire.planned = append([]fault{f}, c.wire.planned...)
		}
		c.Conn.Close()
		return 0, io.ErrClosedPipe
	case lateRequest, lateAndCut:
		c.gone = f.kind == lateAndCut
		c.late = make(chan struct{})
		request, late := bytes.Clone(p), c.late
		c.wire.deliveries.Go(func() { c.deliver(request, f.late, late) })
		return len(p), nil
	}
	return c.send(p)
}

// send writes without the lock, since the server may take its time.
func (c *conn) send(p []byte) (int, error) {
	late := c.late
	c.wire.mu.Unlock()
	defer c.wire.mu.Lock()
	if late != nil {
		<-late
	}
	return c.Conn.Write(p)
}

func (c *conn) deliver(p []byte, after time.Duration, done chan struct{}) {
	defer close(done)
	pass(after)
	_ = c.Conn.SetWriteDeadline(time.Time{})
	_, _ = c.Conn.Write(p)
}

// Read receives a reply, unless a fault is in the way.
func (c *conn) Read(p []byte) (int, error) {
	for {
		c.wire.mu.Lock()
		gone := c.gone
		c.wire.mu.Unlock()
		if gone {
			return 0, io.EOF
		}
		n, err := c.Conn.Read(p)
		c.wire.mu.Lock()
		deaf, cut := c.deaf, c.cutAtReply
		c.wire.mu.Unlock()
		if err != nil {
			return n, err
		}
		if cut {
			c.Conn.Close()
			return 0, io.EOF
		}
		if !deaf {
			return n, nil
		}
	}
}

// Close ends the connection. A late request is delivered all the same.
func (c *conn) Close() error {
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	delete(c.wire.conns, c)
	if c.late == nil {
		return c.Conn.Close()
	}
	late := c.late
	c.wire.deliveries.Go(func() {
		<-late
		pass(time.Millisecond)
		c.Conn.Close()
	})
	return nil
}

// pass lets time pass; inside a bubble that takes none.
func pass(d time.Duration) { <-time.After(d) }

// master is one server of a quorum, which can stand still as a stopped process does: connections stay, new ones are made, and requests that were sent
// meanwhile are executed when it goes on, though their sender has gone.
type master struct {
	server *embedded.Server

	mu      sync.Mutex
	stopped chan struct{} // closed when it goes on; nil while it runs
}

func (m *master) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped == nil {
		m.stopped = make(chan struct{})
	}
}

func (m *master) goOn() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped != nil {
		close(m.stopped)
		m.stopped = nil
	}
}

func (m *master) runs() {
	m.mu.Lock()
	stopped := m.stopped
	m.mu.Unlock()
	if stopped != nil {
		<-stopped
	}
}

// link is a way of one replica to one master, on which requests take their time.
type linkTasks struct {
	master  *master
	latency func() time.Duration
	under   sync.WaitGroup
}

func (l *linkTasks) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	inner, err := l.master.server.Dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &linkConn{Conn: inner, link: l, sent: make(chan []byte, 1000)}
	l.under.Go(c.carry)
	return c, nil
}

type linkConn struct {
	net.Conn
	link *linkTasks
	sent chan []byte

	mu     sync.Mutex
	closed bool
}

func (c *linkConn) carry() {
	defer c.Conn.Close()
	for p := range c.sent {
		<-time.After(c.link.latency())
		c.link.master.runs()
		_ = c.Conn.SetWriteDeadline(time.Time{})
		if _, err := c.Conn.Write(p); err != nil {
			return
		}
	}
	<-time.After(time.Millisecond) // it is read
}

func (c *linkConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, net.ErrClosed
	}
	c.sent <- bytes.Clone(p)
	return len(p), nil
}

func (c *linkConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		close(c.sent)
	}
	return nil
}
