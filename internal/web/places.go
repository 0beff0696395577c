package web

import (
	"context"
	"hash/maphash"
	"net"
	"net/http"
	"time"
)

const (
	// mostSigningIn is the maximum number of requests that wait for the provider at the same time. If the provider hangs, a larger number could occupy the
	// connections that other clients need.
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
	of   [64]address  // by hash of the address: memory is bounded, and a client that takes all places of its hash blocks few others
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

// ofAddress returns the limits for the address "host:port" of a client.
func (p *places) ofAddress(hostPort string) *address {
	host, _, _ := net.SplitHostPort(hostPort)
	return &p.of[maphash.String(p.seed, host)%uint64(len(p.of))]
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
