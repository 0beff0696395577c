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
	// placeTimeout is how long a request waits for its turn among the others. Turns are in the order of arrival.
	placeTimeout = time.Second
)

// places are those of the requests that wait for the provider. Each takes one of its address and one of all.
type places struct {
	all  chan struct{}
	of   [64]chan struct{} // addresses, by their hash: it takes no memory for each, and few others have the one of a client that takes all
	seed maphash.Seed      // so no client can choose whose
}

func newPlaces() *places {
	p := &places{all: make(chan struct{}, mostSigningIn), seed: maphash.MakeSeed()}
	for i := range p.of {
		p.of[i] = make(chan struct{}, mostOfAddress)
	}
	return p
}

// ofAddress returns the places of an address "host:port".
func (p *places) ofAddress(address string) chan struct{} {
	host, _, _ := net.SplitHostPort(address)
	return p.of[maphash.String(p.seed, host)%uint64(len(p.of))]
}

// enter waits for a place for a request, which calls leave at its end. The error is a [busyError].
func (p *places) enter(r *http.Request) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(r.Context(), placeTimeout)
	defer cancel()
	own := p.ofAddress(r.RemoteAddr)
	if !take(ctx, own) {
		return nil, tooMany
	}
	if !take(ctx, p.all) {
		<-own
		return nil, tooMany
	}
	return func() { <-p.all; <-own }, nil
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
	tooMany busyError = "too many wait for the provider"
	again   busyError = "another request waits for the provider's answer to this sign-in"
)

func (e busyError) Error() string { return string(e) }
