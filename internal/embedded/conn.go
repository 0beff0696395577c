package embedded

import (
	"errors"
	"net"
	"sync"
	"time"
)

const (
	// maxQueued is how many bytes may wait for one client to read them; Redis'
	// hard limit for clients of pub/sub by default.
	maxQueued = 32 << 20
	// linger is how long a closed connection may take to deliver the bytes that were written before the close (the answer to QUIT, say).
	linger = time.Second
)

var errQueueFull = errors.New("client does not read its replies")

// queuedConn is a connection whose Write never blocks: it queues the bytes for drain. Without the queue a client that sends a long pipeline before it
// reads anything, as go-redis does, would deadlock on a net.Pipe, and one that stands still would stop the whole server.
type queuedConn struct {
	net.Conn
	requests requests
	wake     chan struct{} // capacity 1: there is something to send, or a close

	mu      sync.Mutex
	queue   []byte
	closing bool
}

func newQueuedConn(c net.Conn) *queuedConn {
	return &queuedConn{Conn: c, wake: make(chan struct{}, 1)}
}

// Read passes on the requests of the client. One that is none breaks the connection.
func (c *queuedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if fault := c.requests.read(p[:n]); fault != nil {
		return 0, fault
	}
	return n, err
}

// Write queues p. It fails after Close, and closes the connection if the client
// has left more than maxQueued bytes unread.
func (c *queuedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return 0, net.ErrClosed
	}
	if len(c.queue)+len(p) > maxQueued {
		c.queue, c.closing = nil, true
		c.notify()
		return 0, errors.Join(errQueueFull, c.Conn.Close())
	}
	c.queue = append(c.queue, p...)
	c.notify()
	return len(p), nil
}

// Close lets drain deliver the queue, then close the connection. It does not wait.
func (c *queuedConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return nil
	}
	c.closing = true
	c.notify()
	return c.SetWriteDeadline(time.Now().Add(linger))
}

// notify wakes drain; a wake-up that is pending already will do.
func (c *queuedConn) notify() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// drain sends the queue until the connection is closed or fails, and closes it, which ends the server's read from it too.
func (c *queuedConn) drain() {
	defer c.Conn.Close()
	for range c.wake {
		batch, closing := c.take()
		if !c.send(batch) || closing {
			return
		}
	}
}

// send writes batch, if there is one: a net.Pipe waits for a reader even for
// nothing.
func (c *queuedConn) send(batch []byte) bool {
	if len(batch) == 0 {
		return true
	}
	_, err := c.Conn.Write(batch)
	return err == nil
}

// take empties the queue, and returns whether more can come.
func (c *queuedConn) take() (batch []byte, closing bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	batch, c.queue = c.queue, nil
	return batch, c.closing
}
