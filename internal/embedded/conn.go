package embedded

import (
	"errors"
	"net"
	"sync"
	"time"
)

const (
	// maxQueued is the maximum number of unread bytes per client. It equals the default hard limit of Redis for pub/sub clients.
	maxQueued = 32 << 20
	// linger is the time limit for delivering queued bytes, such as the reply to QUIT, after Close.
	linger = time.Second
)

var errQueueFull = errors.New("client does not read its replies")

// A queuedConn is a connection whose Write never blocks: drain sends the queued bytes. Without the queue, a client that sends a long pipeline before it reads
// anything, as go-redis does, would deadlock on a net.Pipe, and a client that stops reading would block the whole server.
type queuedConn struct {
	net.Conn
	requests requests
	wake     chan struct{} // capacity 1: bytes are queued, or Close was called

	mu      sync.Mutex
	queue   []byte
	closing bool
}

func newQueuedConn(c net.Conn) *queuedConn {
	return &queuedConn{Conn: c, wake: make(chan struct{}, 1)}
}

// Read returns bytes from the client. It fails if they are not a valid request.
func (c *queuedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if fault := c.requests.parseBytes(p[:n]); fault != nil {
		return 0, fault
	}
	return n, err
}

// Write queues p. It fails after Close. If more than maxQueued bytes are unread, it closes the connection.
func (c *queuedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return 0, net.ErrClosed
	}
	if len(c.queue)+len(p) > maxQueued {
		c.queue, c.closing = nil, true
		c.wakeDrain()
		return 0, errors.Join(errQueueFull, c.Conn.Close())
	}
	c.queue = append(c.queue, p...)
	c.wakeDrain()
	return len(p), nil
}

// Close makes drain deliver the queue and then close the connection. It returns at once.
func (c *queuedConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return nil
	}
	c.closing = true
	c.wakeDrain()
	return c.SetWriteDeadline(time.Now().Add(linger))
}

// wakeDrain wakes drain, unless a wake-up is pending already.
func (c *queuedConn) wakeDrain() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// drain sends the queued bytes until Close is called or the connection fails. Then it closes the connection, which also ends the server's Read.
func (c *queuedConn) drain() {
	defer c.Conn.Close()
	for range c.wake {
		batch, closing := c.takeQueue()
		if !c.sendBatch(batch) || closing {
			return
		}
	}
}

// sendBatch writes batch, unless batch is empty: an empty write to a net.Pipe blocks.
func (c *queuedConn) sendBatch(batch []byte) bool {
	if len(batch) == 0 {
		return true
	}
	_, err := c.Conn.Write(batch)
	return err == nil
}

// takeQueue empties the queue, and reports whether Close was called.
func (c *queuedConn) takeQueue() (batch []byte, closing bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	batch, c.queue = c.queue, nil
	return batch, c.closing
}
