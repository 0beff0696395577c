package httpapi

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// healthConnections is how many of MaxConnections are left for /healthz and /readyz when requests of users have all others.
const healthConnections = 16

// doors is a listener with a bounded number of connections. One without a request of a user gives its place to a newcomer, beginning with the oldest of the
// address that has the most: so idle connections block no client. If users have all places, a newcomer gets one that is for health alone.
type doors struct {
	net.Listener
	trusted []netip.Prefix // whose connections serve many clients

	mu     sync.Mutex
	normal []*door // in the order of their arrival
	spare  []*door // those that are for health alone
}

// door is one connection.
type door struct {
	net.Conn
	of    *doors
	peer  netip.Addr // at its other end
	spare bool       // it is for health alone

	client netip.Addr // by which it is counted: the peer, or whom a trusted proxy asks for now; guarded by of.mu
	user   bool       // a request of a user is under way; guarded by of.mu
}

func newDoors(l net.Listener, trusted []netip.Prefix) *doors {
	return &doors{Listener: l, trusted: trusted}
}

// Accept waits for a connection, and makes room for it.
func (d *doors) Accept() (net.Conn, error) {
	conn, err := d.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // the server knows the errors of a listener
	}
	peer := addressOf(conn.RemoteAddr().String())
	at := &door{Conn: conn, of: d, peer: peer, client: neighbourhood(peer)}
	if given := d.enter(at); given != nil {
		_ = given.Conn.Close() // its reader ends, and closes the door
	}
	return at, nil
}

// enter adds a connection, and returns the one that has to leave for it, or nil.
func (d *doors) enter(at *door) (given *door) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.normal) >= MaxConnections-healthConnections {
		given = d.weakest(at)
		at.spare = given == nil
	}
	if at.spare {
		if len(d.spare) == healthConnections {
			given = d.spare[0]
			d.remove(given)
		}
		d.spare = append(d.spare, at)
		return given
	}
	if given != nil {
		d.remove(given)
	}
	d.normal = append(d.normal, at)
	return given
}

// weakest returns the oldest connection without a request of a user, of the address that has the most connections with the newcomer; nil if users have all.
// A connection of a trusted proxy without a request comes last: it may serve any client next.
func (d *doors) weakest(newcomer *door) (weakest *door) {
	count := map[netip.Addr]int{newcomer.client: 1}
	for _, one := range d.normal {
		count[one.client]++
	}
	for at := range count {
		if trusts(d.trusted, at) {
			count[at] = 0
		}
	}
	for _, one := range d.normal {
		if !one.user && (weakest == nil || count[one.client] > count[weakest.client]) {
			weakest = one
		}
	}
	return weakest
}

// remove forgets a connection. It may have been forgotten already.
func (d *doors) remove(at *door) {
	list := &d.normal
	if at.spare {
		list = &d.spare
	}
	for i, one := range *list {
		if one == at {
			*list = append((*list)[:i], (*list)[i+1:]...)
			return
		}
	}
}

// Close closes the connection, and frees its place.
func (at *door) Close() error {
	at.of.mu.Lock()
	at.of.remove(at)
	at.of.mu.Unlock()
	return at.Conn.Close() //nolint:wrapcheck // it is the connection's own
}

type doorKey struct{}

// remember keeps the connection in the context of its requests.
func (d *doors) remember(ctx context.Context, conn net.Conn) context.Context {
	if over, ok := conn.(*tls.Conn); ok {
		conn = over.NetConn()
	}
	at, _ := conn.(*door)
	return context.WithValue(ctx, doorKey{}, at)
}

// doorOf returns the connection of a request, nil in a test without one. Its methods then do nothing.
func doorOf(r *http.Request) *door {
	at, _ := r.Context().Value(doorKey{}).(*door)
	return at
}

// serve counts the connection by the client for whom a trusted proxy asks.
func (at *door) serve(client netip.Addr) {
	if at != nil {
		at.of.mu.Lock()
		at.client = neighbourhood(client)
		at.of.mu.Unlock()
	}
}

// admit marks the request under way as one of a user, which keeps its connection.
func (at *door) admit() {
	if at != nil {
		at.of.mu.Lock()
		at.user = true
		at.of.mu.Unlock()
	}
}

// dismiss ends the request under way. HTTP/1 has one at a time.
func (at *door) dismiss() {
	if at != nil {
		at.of.mu.Lock()
		at.user, at.client = false, neighbourhood(at.peer)
		at.of.mu.Unlock()
	}
}

// keepForHealth refuses requests over connections that are for health alone.
func keepForHealth(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if at := doorOf(r); at != nil && at.spare {
			w.Header().Set("Connection", "close")
			w.Header().Set("Retry-After", "5")
			refuse(w, r, http.StatusServiceUnavailable, "requests of users have all connections of this replica; try again later, or another replica")
			return
		}
		next.ServeHTTP(w, r)
	})
}
