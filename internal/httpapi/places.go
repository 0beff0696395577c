package httpapi

import (
	"context"
	"hash/maphash"
	"net"
	"net/http"
	"time"
)

const (
	// mostSigningIn is how many requests wait for the provider at once: with one that hangs they would take up the connections of all clients.
	mostSigningIn = 16
	// mostOfAddress is how many of them are from one address. They are not fewer, since all clients of a proxy have its address.
	mostOfAddress = mostSigningIn / 2
	// mostPresent are those with the ones that wait for a place, with their connections.
	mostPresent = 64
	// placeTimeout is how long a request waits for its turn among the others. Turns are in the order of arrival.
	placeTimeout = time.Second
)

// places are those of the requests that wait for the provider. Each takes one of its address and one of all.
type places struct {
	all  chan struct{}
	of   [64]address  // by their hash: it takes no memory for each, and few others have the places of a client that takes all
	seed maphash.Seed // so no client can choose whose
}

// address is the requests of some addresses.
type address struct {
	present chan struct{} // those that have a place, or wait for one
	inside  chan struct{} // those that have a place
}

func newPlaces() *places {
	p := &places{all: make(chan struct{}, mostSigningIn), seed: maphash.MakeSeed()}
	for i := range p.of {
		p.of[i] = address{make(chan struct{}, mostPresent), make(chan struct{}, mostOfAddress)}
	}
	return p
}

// ofAddress returns the requests of an address "host:port".
func (p *places) ofAddress(hostPort string) *address {
	host, _, _ := net.SplitHostPort(hostPort)
	return &p.of[maphash.String(p.seed, host)%uint64(len(p.of))]
}

// enter waits for a place for a request, which calls leave at its end. The error is a [busyError].
func (p *places) enter(r *http.Request) (leave func(), err error) {
	of := p.ofAddress(r.RemoteAddr)
	select {
	case of.present <- struct{}{}:
	default:
		return nil, tooManyOfAddress
	}
	if err := p.wait(r.Context(), of); err != nil {
		<-of.present
		return nil, err
	}
	return func() { <-p.all; <-of.inside; <-of.present }, nil
}

func (p *places) wait(ctx context.Context, of *address) error {
	ctx, cancel := context.WithTimeout(ctx, placeTimeout)
	defer cancel()
	if !take(ctx, of.inside) {
		return tooManyOfAddress
	}
	if !take(ctx, p.all) {
		<-of.inside
		return tooMany
	}
	return nil
}

func take(ctx context.Context, places chan<- struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// busyError says why a request cannot wait for the provider at present.
type busyError string

const (
	tooMany          busyError = "too many requests wait for the provider"
	tooManyOfAddress busyError = "too many requests of this address wait for the provider"
	again            busyError = "another request waits for the provider's answer to this sign-in"
)

func (e busyError) Error() string { return string(e) }
