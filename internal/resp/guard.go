// Package resp guards connections to Redis against replies that no Redis sends. go-redis makes room for as much as the first line of a reply names, calls
// itself for each level of nesting, and takes the form of messages for granted: so a proxy that garbles a reply, or another service on the port, ends the
// process, in goroutines of go-redis where nothing can recover, or by a lack of memory or stack, which nothing recovers from. A guarded connection reads such a
// reply up to the fault, and breaks.
package resp

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// ErrMalformed is the error of a connection that was broken for a malformed reply.
var ErrMalformed = errors.New("malformed reply from Redis")

// The bounds of one reply, far above any that Redis stores for cronclave. The reply is checked before the client makes room for it.
const (
	mostBulk     = 16 << 20 // bytes of a string
	mostBytes    = 64 << 20 // bytes in all
	mostElements = 1 << 20
	mostPairs    = 1 << 16 // of a map
	mostDepth    = 32
	mostLine     = 64 << 10 // bytes of a line: a status, an error, a number
)

// Guard returns the connection with each reply checked.
func Guard(conn net.Conn) net.Conn {
	switch c := conn.(type) {
	case *guarded, *guardedSocket:
		return c
	case syscall.Conn:
		return &guardedSocket{guarded{Conn: conn}, c}
	}
	return &guarded{Conn: conn}
}

// guarded is a connection in use by one reader and one writer at a time, as go-redis uses it.
type guarded struct {
	net.Conn
	replies scanner
	broken  error
}

// guardedSocket lets go-redis see whether an idle connection was closed.
type guardedSocket struct {
	guarded
	socket syscall.Conn
}

// SyscallConn is that of the socket.
func (g *guardedSocket) SyscallConn() (syscall.RawConn, error) { return g.socket.SyscallConn() }

// NetConn is the guarded connection.
func (g *guarded) NetConn() net.Conn { return g.Conn }

// Read passes on the bytes of well-formed replies.
func (g *guarded) Read(p []byte) (int, error) {
	if g.broken != nil {
		return 0, g.broken
	}
	n, err := g.Conn.Read(p)
	if fault := g.replies.feed(p[:n]); fault != nil {
		g.broken = fmt.Errorf("%w: %w", ErrMalformed, fault)
		_ = g.Close()
		return 0, g.broken
	}
	return n, err //nolint:wrapcheck // a connection's own
}

// Write notes what the next replies are to look like.
func (g *guarded) Write(p []byte) (int, error) {
	g.replies.asked(p)
	return g.Conn.Write(p) //nolint:wrapcheck // a connection's own
}
