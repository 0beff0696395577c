// Package dial connects to servers by name. Each step has its own time-out, and an error names the step that failed.
//
// The addresses of a name are tried as in RFC 8305. IPv6 and IPv4 addresses are looked up separately, and the first answer starts the connection
// attempts. The next address is tried when the previous one has failed, or has not answered for [NextAddress]. A lookup continues after its caller
// has given up, and later callers use its answer. A caller with a short deadline may fail at first, but a later call finds the name resolved.
package dial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// The time limits of the steps.
const (
	// LookupTimeout is the time limit of a lookup. It is long because a dead nameserver delays the lookup by 5 s for each name of the search list.
	LookupTimeout = 30 * time.Second
	// ConnectTimeout is the time limit of a connection attempt to one address.
	ConnectTimeout = 2 * time.Second
	// NextAddress is the time without an answer after which the next address is tried in parallel.
	NextAddress = 250 * time.Millisecond
	// otherFamily is the time for which IPv4 addresses wait for the IPv6 lookup, because IPv6 addresses are tried first.
	otherFamily = 50 * time.Millisecond
	// MostAddresses is the maximum number of addresses of a name that are tried.
	MostAddresses = 16
	// Timeout is the time limit of all steps together.
	Timeout = LookupTimeout + ConnectTimeout + MostAddresses*NextAddress
)

// Config configures a Dialer.
type Config struct {
	// Resolver looks names up. Defaults to [net.DefaultResolver].
	Resolver *net.Resolver
}

// A Dialer connects to servers. It is safe for concurrent use.
type Dialer struct {
	resolver *net.Resolver
	net      net.Dialer
	lookups  lookups
}

// New returns a Dialer. The caller must call [Dialer.Close] to end its lookups.
func New(cfg Config) *Dialer {
	d := &Dialer{resolver: cmp.Or(cfg.Resolver, net.DefaultResolver), net: net.Dialer{Timeout: ConnectTimeout}}
	d.lookups.byQuestion = map[question]*lookup{}
	d.lookups.ctx, d.lookups.cancel = context.WithCancel(context.Background())
	return d
}

// Close cancels the lookups in progress and waits until they have returned.
func (d *Dialer) Close() {
	d.lookups.cancel()
	d.lookups.running.Wait()
}

// An Error is the failure of one step.
type Error struct {
	Step string // such as "look up redis.example.org"
	Err  error
}

func (e *Error) Error() string { return e.Step + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ErrSilent reports that a step reached its time limit.
var ErrSilent = errors.New("no answer")

func timeoutError(after time.Duration) error { return fmt.Errorf("%w within %v", ErrSilent, after) }

// DialContext connects to an address, like [net.Dialer.DialContext].
func (d *Dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	return d.Dial(ctx, network, addr, func(string) {})
}

// Dial connects like [Dialer.DialContext]. It calls note at the start of each step with a description such as "look up redis.example.org".
func (d *Dialer) Dial(ctx context.Context, network, addr string, note func(step string)) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if network != "tcp" || err != nil {
		note("connect to " + addr)
		return d.dialAddress(ctx, network, addr, "connect to "+addr)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &race{Dialer: d, host: host, port: port, note: note, answers: make(chan answer, families), results: make(chan result, MostAddresses)}
	if ip, err := netip.ParseAddr(host); err == nil {
		r.queue, r.host = []netip.Addr{ip}, ""
	} else {
		r.lookUp(ctx)
	}
	conn, err := r.run(ctx)
	cancel()
	r.closeLosers()
	return conn, err
}

func (d *Dialer) dialAddress(ctx context.Context, network, addr, step string) (net.Conn, error) {
	began := time.Now()
	conn, err := d.net.DialContext(ctx, network, addr)
	if err == nil {
		return conn, nil
	}
	var op *net.OpError
	var timeout net.Error
	switch {
	case endReason(ctx) != nil:
		err = fmt.Errorf("%w after %v", endReason(ctx), time.Since(began).Round(time.Millisecond))
	case errors.As(err, &timeout) && timeout.Timeout():
		err = timeoutError(ConnectTimeout)
	case errors.As(err, &op):
		err = op.Err // op would repeat the address, which step already contains
	}
	return nil, &Error{step, err}
}

// endReason returns the cause if ctx has ended, and nil otherwise. It compares the deadline with the time, because a connection attempt may end at
// the deadline a moment before ctx does.
func endReason(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok && ctx.Err() == nil && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return context.Cause(ctx)
}

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

// isUsable reports whether callers may share the lookup: it is in progress, or its answer is no older than the duration of the lookup.
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

type answer struct {
	network string
	addrs   []netip.Addr
	err     error
}

func (l *lookup) awaitAnswer(ctx context.Context, q question) answer {
	select {
	case <-l.done:
		return answer{q.network, l.addrs, lookupError(l.err)}
	case <-ctx.Done():
		return answer{q.network, nil, fmt.Errorf("%w after %v", context.Cause(ctx), time.Since(l.began).Round(time.Millisecond))}
	}
}

// lookupError removes the name from a resolver's error, because the step in [Error] already contains the name.
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

type dnsError struct {
	*net.DNSError
	text string
}

func (e dnsError) Error() string { return e.text }

func (e dnsError) Unwrap() error { return e.DNSError }

// isNotFound reports whether a name has no address of a family, or does not exist.
func isNotFound(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns) && dns.IsNotFound
}
