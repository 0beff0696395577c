package embedded

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

const (
	// maxQueued is the maximum number of unread bytes per client. It equals the default hard limit of Redis for pub/sub clients.
	maxQueued = 32 << 20
	// linger is the time after Close in which queued bytes, such as the reply to QUIT, may still be sent.
	linger = time.Second
)

var errQueueFull = errors.New("client does not read its replies")

// A queuedConn is a connection whose Write never blocks: it queues bytes, and drain sends them. Without the queue, a client that stops reading would
// block the whole server. A client that sends a long pipeline before it reads, as go-redis does, would deadlock on a net.Pipe.
type queuedConn struct {
	net.Conn
	requests requests
	wake     chan struct{} // capacity 1: bytes are queued, or Close was called

	mu      sync.Mutex
	queue   []byte
	closing bool
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

func (c *queuedConn) takeQueue() (batch []byte, closing bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	batch, c.queue = c.queue, nil
	return batch, c.closing
}

// The limits of one request. They are far above any request of cronclave.
const (
	mostArguments = 1 << 20
	mostRequest   = 64 << 20 // total bytes of the arguments
	longestHeader = 32       // bytes of the header line of a request or an argument
)

var errNoRequest = errors.New("not a request")

// requests validates the bytes that a client sends. miniredis panics on a request without arguments, in a goroutine that cannot recover, and
// allocates as much memory as a header requests. Without this check, any process of the same user could crash a trial's replica.
type requests struct {
	line []byte // the beginning of an incomplete header
	left int    // the number of arguments still to come
	size int    // the bytes of the arguments so far
	skip int    // the bytes of an argument still to come, including its line end
}

func (r *requests) parseBytes(p []byte) error {
	for len(p) > 0 {
		if r.skip > 0 {
			n := min(r.skip, len(p))
			r.skip, p = r.skip-n, p[n:]
			continue
		}
		n, whole := bytes.IndexByte(p, '\n')+1, true
		if n == 0 {
			n, whole = len(p), false
		}
		if len(r.line)+n > longestHeader {
			return fmt.Errorf("%w: a header of more than %d bytes", errNoRequest, longestHeader)
		}
		r.line, p = append(r.line, p[:n]...), p[n:]
		if !whole {
			return nil
		}
		if err := r.parseHeader(r.line); err != nil {
			return err
		}
		r.line = r.line[:0]
	}
	return nil
}

// parseHeader parses "*N", before a request of N arguments, or "$N", before an argument of N bytes.
func (r *requests) parseHeader(line []byte) error {
	text, whole := bytes.CutSuffix(line, []byte("\r\n"))
	if whole && len(text) > 1 {
		n, err := strconv.Atoi(string(text[1:]))
		switch {
		case err != nil:
		case text[0] == '*' && r.left == 0 && n >= 1 && n <= mostArguments:
			r.left, r.size = n, 0
			return nil
		case text[0] == '$' && r.left > 0 && n >= 0 && n <= mostRequest-r.size:
			r.left, r.size, r.skip = r.left-1, r.size+n, n+2
			return nil
		}
	}
	return fmt.Errorf("%w: the header %q", errNoRequest, line)
}

// A clock sets the time of miniredis once per command of a client. Everything in the command then happens at one instant, as in Redis: no key expires between
// two calls of a script. Setting the time only once also saves miniredis a walk over all keys for each call in a script.
type clock struct {
	redis *miniredis.Miniredis

	setting sync.Mutex // serializes setNow, which may wait for the lock of redis
	last    time.Time

	// known must not be held while waiting for the lock of redis, because calls from scripts lock known while they hold that lock.
	known   sync.Mutex
	clients map[*server.Peer]struct{} // peers that are connections of clients
}

func newClock(m *miniredis.Miniredis) *clock {
	return &clock{redis: m, clients: map[*server.Peer]struct{}{}}
}

// beforeCommand is the hook that miniredis calls before each command, including calls from scripts. It returns false, so that miniredis executes the
// command.
func (c *clock) beforeCommand(p *server.Peer, _ string, _ ...string) bool {
	if c.isClient(p) { // a call from a script must not change the time
		c.setNow()
	}
	return false
}

// setNow advances the time of redis to now. It never sets the time back, because miniredis would then subtract the same time from all TTLs twice.
func (c *clock) setNow() {
	c.setting.Lock()
	defer c.setting.Unlock()
	if now := time.Now(); now.After(c.last) {
		c.last = now
		c.redis.SetTime(now)
	}
}

// isClient reports whether a peer is the connection of a client. miniredis also creates a peer for each call from a script. The peer of a script has
// a context from the start, but the peer of a client has none before its first command.
func (c *clock) isClient(p *server.Peer) bool {
	c.known.Lock()
	defer c.known.Unlock()
	if _, ok := c.clients[p]; ok {
		return true
	}
	if p.Ctx != nil {
		return false
	}
	c.clients[p] = struct{}{}
	p.OnDisconnect(func() {
		c.known.Lock()
		defer c.known.Unlock()
		delete(c.clients, p)
	})
	return true
}
