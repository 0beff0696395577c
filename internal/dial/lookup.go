package dial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// A question is one request to a resolver. network is "ip4" or "ip6".
type question struct{ network, host string }

// families is the number of lookups per name: one for IPv6, one for IPv4.
const families = 2

// lookups has the lookups of a Dialer that are in progress, or whose answers may still be used.
type lookups struct {
	ctx     context.Context // ends with Dialer.Close
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu         sync.Mutex
	byQuestion map[question]*lookup
}

// A lookup is one question and its answer. ended, addrs and err are set before done is closed.
type lookup struct {
	began time.Time
	done  chan struct{}
	ended time.Time
	addrs []netip.Addr
	err   error
}

// isUsable reports whether callers may share the lookup: it is in progress, or its answer is younger than the time that the lookup took.
func (l *lookup) isUsable(now time.Time) bool {
	select {
	case <-l.done:
		return l.err == nil && now.Sub(l.ended) < l.ended.Sub(l.began)
	default:
		return true
	}
}

// startLookup returns a usable lookup of a name, or starts a new one. The lookup continues after the caller has given up.
func (d *Dialer) startLookup(q question) *lookup {
	d.lookups.mu.Lock()
	defer d.lookups.mu.Unlock()
	now := time.Now()
	if l := d.lookups.byQuestion[q]; l != nil && l.isUsable(now) {
		return l
	}
	for old, l := range d.lookups.byQuestion {
		if !l.isUsable(now) {
			delete(d.lookups.byQuestion, old)
		}
	}
	l := &lookup{began: now, done: make(chan struct{})}
	d.lookups.byQuestion[q] = l
	d.lookups.running.Go(func() {
		ctx, cancel := context.WithTimeout(d.lookups.ctx, LookupTimeout)
		defer cancel()
		l.addrs, l.err = d.resolver.LookupNetIP(ctx, q.network, q.host)
		l.ended = time.Now()
		close(l.done)
	})
	return l
}

// An answer is the result of a lookup for one caller.
type answer struct {
	network string
	addrs   []netip.Addr
	err     error
}

// awaitAnswer waits for the lookup, or until ctx ends.
func (l *lookup) awaitAnswer(ctx context.Context, q question) answer {
	select {
	case <-l.done:
		return answer{q.network, l.addrs, lookupError(l.err)}
	case <-ctx.Done():
		return answer{q.network, nil, fmt.Errorf("%w after %v", context.Cause(ctx), time.Since(l.began).Round(time.Millisecond))}
	}
}

// lookupError removes the name from the error of a resolver, because the step already has the name.
func lookupError(err error) error {
	var dns *net.DNSError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return timeoutError(LookupTimeout)
	case !errors.As(err, &dns):
		return err
	case dns.Server == "":
		return dnsError{dns, dns.Err}
	}
	return dnsError{dns, dns.Err + " (nameserver " + dns.Server + ")"}
}

// A dnsError is the error of a resolver with a shorter text.
type dnsError struct {
	*net.DNSError
	text string
}

func (e dnsError) Error() string { return e.text }

// Unwrap returns the resolver's own error.
func (e dnsError) Unwrap() error { return e.DNSError }

// isNotFound reports whether a name has no address of a family, or does not exist.
func isNotFound(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns) && dns.IsNotFound
}
