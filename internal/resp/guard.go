// Package resp protects the process from malformed replies of Redis.
//
// go-redis allocates as much memory as the first line of a reply requests, recurses for each level of nesting, and reads messages without checking
// their form. A proxy that garbles a reply, or another service on the port, could therefore crash the process: by a panic in a goroutine of go-redis,
// which cannot be recovered, or by exhausting memory or stack. A guarded connection checks each reply as it arrives, and closes itself at the
// first malformed reply.
package resp

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// ErrMalformed is the error of a connection that was closed because of a malformed reply.
var ErrMalformed = errors.New("malformed reply from Redis")

// The limits of one reply. They are far above any reply to cronclave, and are checked before go-redis allocates memory for the reply.
const (
	mostBulk     = 16 << 20 // bytes of a string
	mostBytes    = 64 << 20 // total bytes
	mostElements = 1 << 20
	mostPairs    = 1 << 16 // key-value pairs of a map
	mostDepth    = 32
	mostLine     = 64 << 10 // bytes of a line: a status, an error, a number
)

// Guard returns a connection that checks each reply it reads.
func Guard(conn net.Conn) net.Conn {
	switch c := conn.(type) {
	case *guarded, *guardedSocket:
		return c
	case syscall.Conn:
		return &guardedSocket{guarded{Conn: conn}, c}
	}
	return &guarded{Conn: conn}
}

// A guarded is a connection that checks replies. At most one goroutine may read and one may write at a time, as go-redis does.
type guarded struct {
	net.Conn
	replies scanner
	broken  error
}

// A guardedSocket is a guarded connection with access to its socket, by which go-redis detects whether an idle connection was closed.
type guardedSocket struct {
	guarded
	socket syscall.Conn
}

// SyscallConn returns the raw connection of the socket.
func (g *guardedSocket) SyscallConn() (syscall.RawConn, error) { return g.socket.SyscallConn() }

// NetConn returns the connection below the checks.
func (g *guarded) NetConn() net.Conn { return g.Conn }

// Read returns bytes of well-formed replies. After a malformed reply it closes the connection and fails.
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
	return n, err //nolint:wrapcheck // a net.Conn returns the errors of its connection unchanged
}

// Write writes commands. Before that, it records which of them have replies of a special form.
func (g *guarded) Write(p []byte) (int, error) {
	g.replies.noteRequests(p)
	return g.Conn.Write(p) //nolint:wrapcheck // a net.Conn returns the errors of its connection unchanged
}
