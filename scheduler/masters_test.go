package scheduler_test

import (
	"bytes"
	"context"
	"net"
	"sync"
	"time"

	"github.com/cronclave/cronclave/internal/embedded"
)

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
