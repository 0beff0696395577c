package web

import (
	"context"
	"crypto/tls"
	"hash/maphash"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// healthConnections is the number of connections, out of MaxConnections, that are reserved for /healthz and /readyz while requests of users occupy all
// others.
const healthConnections = 16

// connLimiter is a listener with a limited number of connections. If the limit is reached, it closes a connection for each new one. It chooses among the
// connections that serve no request of a user, takes the client address with the most connections, and closes the oldest one of that address. Idle
// connections therefore never lock a client out. If requests of users occupy all connections, a new connection serves only health checks.
type connLimiter struct {
	net.Listener
	trusted []netip.Prefix // proxies, whose connections carry the requests of many clients

	mu     sync.Mutex
	normal []*limitedConn // connections for all requests, the oldest first
	spare  []*limitedConn // connections for health checks only, the oldest first
}

type limitedConn struct {
	net.Conn
	of    *connLimiter
	peer  netip.Addr // remote address
	spare bool       // serves health checks only

	client netip.Addr // address that is counted: peer or, during a request through a trusted proxy, the client of the proxy; guarded by of.mu
	user   bool       // a request of a user is in progress; guarded by of.mu
}

func newConnLimiter(l net.Listener, trusted []netip.Prefix) *connLimiter {
	return &connLimiter{Listener: l, trusted: trusted}
}

// Accept waits for a connection. If there are too many, it closes an older one.
func (d *connLimiter) Accept() (net.Conn, error) {
	conn, err := d.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // the server knows the errors of a listener
	}
	peer := addressOf(conn.RemoteAddr().String())
	at := &limitedConn{Conn: conn, of: d, peer: peer, client: countedAddress(peer)}
	if given := d.addConn(at); given != nil {
		_ = given.Conn.Close() // the HTTP server then fails to read, and calls limitedConn.Close
	}
	return at, nil
}

// addConn adds a connection. It returns the connection that must be closed in exchange, or nil.
func (d *connLimiter) addConn(at *limitedConn) (given *limitedConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.normal) >= MaxConnections-healthConnections {
		given = d.weakestConn(at)
		at.spare = given == nil
	}
	if at.spare {
		if len(d.spare) == healthConnections {
			given = d.spare[0]
			d.removeConn(given)
		}
		d.spare = append(d.spare, at)
		return given
	}
	if given != nil {
		d.removeConn(given)
	}
	d.normal = append(d.normal, at)
	return given
}

// weakestConn returns the connection to close for a new one: among the connections that serve no request of a user, the oldest connection of the address with
// the most connections, including the new one. It chooses a connection of a trusted proxy last, because the next request of a proxy may come from any client. It
// returns nil if requests of users occupy all connections. The caller holds mu.
func (d *connLimiter) weakestConn(newcomer *limitedConn) (weakest *limitedConn) {
	count := map[netip.Addr]int{newcomer.client: 1}
	for _, one := range d.normal {
		count[one.client]++
	}
	for at := range count {
		if isTrusted(d.trusted, at) {
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

// removeConn removes a connection from its list. A second call does nothing. The caller holds mu.
func (d *connLimiter) removeConn(at *limitedConn) {
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

func (at *limitedConn) Close() error {
	at.of.mu.Lock()
	at.of.removeConn(at)
	at.of.mu.Unlock()
	return at.Conn.Close() //nolint:wrapcheck // a net.Conn returns the errors of its connection unchanged
}

type connKey struct{}

func (d *connLimiter) withConn(ctx context.Context, conn net.Conn) context.Context {
	if over, ok := conn.(*tls.Conn); ok {
		conn = over.NetConn()
	}
	at, _ := conn.(*limitedConn)
	return context.WithValue(ctx, connKey{}, at)
}

// connOf returns the connection of a request. In tests without a connection it returns nil; the methods of a nil limitedConn do nothing.
func connOf(r *http.Request) *limitedConn {
	at, _ := r.Context().Value(connKey{}).(*limitedConn)
	return at
}

// setClient records the client for which a trusted proxy sends the current request.
func (at *limitedConn) setClient(client netip.Addr) {
	if at != nil {
		at.of.mu.Lock()
		at.client = countedAddress(client)
		at.of.mu.Unlock()
	}
}

// markUser records that the current request belongs to a user, so the connection is not closed to make room for a new one.
func (at *limitedConn) markUser() {
	if at != nil {
		at.of.mu.Lock()
		at.user = true
		at.of.mu.Unlock()
	}
}

// endRequest resets what setClient and markUser recorded. An HTTP/1 connection has one request at a time.
func (at *limitedConn) endRequest() {
	if at != nil {
		at.of.mu.Lock()
		at.user, at.client = false, countedAddress(at.peer)
		at.of.mu.Unlock()
	}
}

// keepForHealth refuses requests on connections that are reserved for health checks. The routes of health checks bypass it.
func keepForHealth(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if at := connOf(r); at != nil && at.spare {
			w.Header().Set("Connection", "close")
			w.Header().Set("Retry-After", "5")
			refuseRequest(w, r, http.StatusServiceUnavailable, "requests of users have all connections of this replica; try again later, or another replica")
			return
		}
		next.ServeHTTP(w, r)
	})
}

const (
	// mostSigningIn is the maximum number of requests that wait for the OpenID Connect provider at the same time. If the provider hangs, a larger number could
	// occupy the connections that other clients need.
	mostSigningIn = 16
	// mostOfAddress is the maximum number of requests from one address that wait for the provider. It is half of the total, because all clients behind a
	// proxy may have the same address.
	mostOfAddress = mostSigningIn / 2
	// mostPresent is the maximum number of requests from one address that wait for the provider or for a place.
	mostPresent = 64
	// placeTimeout is the maximum time that a request waits for a place. Places are assigned in order of arrival.
	placeTimeout = time.Second
)

// places limits the number of requests that wait for the provider, per address and in total. A place is the permission to wait for the provider.
type places struct {
	all  chan struct{}
	of   [64]address  // by hash of the counted address: this bounds memory, and a client that takes all its places blocks only clients with the same hash
	seed maphash.Seed // random, so that clients cannot choose their hash
}

// address limits the requests of all client addresses with the same hash.
type address struct {
	present chan struct{} // requests that have a place or wait for one
	inside  chan struct{} // requests that have a place
}

func newPlaces() *places {
	p := &places{all: make(chan struct{}, mostSigningIn), seed: maphash.MakeSeed()}
	for i := range p.of {
		p.of[i] = address{make(chan struct{}, mostPresent), make(chan struct{}, mostOfAddress)}
	}
	return p
}

func (p *places) ofAddress(hostPort string) *address {
	return &p.of[maphash.Comparable(p.seed, countedAddress(addressOf(hostPort)))%uint64(len(p.of))]
}

// enterPlace waits for a place. If it gets one, the caller must call leave when done. Otherwise the error is a [busyError].
func (p *places) enterPlace(r *http.Request) (leave func(), err error) {
	of := p.ofAddress(r.RemoteAddr)
	select {
	case of.present <- struct{}{}:
	default:
		return nil, tooManyOfAddress
	}
	if err := p.waitForPlace(r.Context(), of); err != nil {
		<-of.present
		return nil, err
	}
	return func() { <-p.all; <-of.inside; <-of.present }, nil
}

func (p *places) waitForPlace(ctx context.Context, of *address) error {
	ctx, cancel := context.WithTimeout(ctx, placeTimeout)
	defer cancel()
	if !takePlace(ctx, of.inside) {
		return tooManyOfAddress
	}
	if !takePlace(ctx, p.all) {
		<-of.inside
		return tooMany
	}
	return nil
}

func takePlace(ctx context.Context, places chan<- struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// A busyError is the reason for which a request cannot wait for the provider now.
type busyError string

const (
	tooMany          busyError = "too many requests wait for the provider"
	tooManyOfAddress busyError = "too many requests of this address wait for the provider"
	again            busyError = "another request waits for the provider's answer to this sign-in"
)

func (e busyError) Error() string { return string(e) }
