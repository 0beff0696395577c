// Package dial connects to servers by name. Each step has its own time-out, and an error names the step that failed.
//
// The addresses of a name are tried as RFC 8305 describes: IPv6 and IPv4 addresses are looked up separately, and the first answer starts the attempts. The
// next address is tried when the one before has failed, or has been silent for a moment. A lookup continues after its caller has given up, and its answer
// serves the next caller: a caller with little time gets through as soon as the name is known.
package dial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// The times of the steps.
const (
	// LookupTimeout is the time limit of a lookup. It is long because a dead nameserver costs 5 s for each name of the search list.
	LookupTimeout = 30 * time.Second
	// ConnectTimeout is the time limit of a connection attempt to one address.
	ConnectTimeout = 2 * time.Second
	// NextAddress is the time without an answer after which the next address is tried too.
	NextAddress = 250 * time.Millisecond
	// otherFamily is the time that IPv4 addresses wait for the IPv6 lookup, because IPv6 addresses go first.
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

// New returns a Dialer. Its lookups run until they end or [Dialer.Close] is called.
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

// ErrSilent is the cause of the error of a step that took too long.
var ErrSilent = errors.New("no answer")

// timeoutError returns the error of a step that reached its own time limit.
func timeoutError(after time.Duration) error { return fmt.Errorf("%w within %v", ErrSilent, after) }

// DialContext connects to an address, as [net.Dialer.DialContext] does.
func (d *Dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	return d.Dial(ctx, network, addr, func(string) {})
}

// Dial does what DialContext does, and calls note when a step begins, with a text such as "look up redis.example.org".
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

// dialAddress opens a connection to one address.
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
		err = op.Err // the step has the address
	}
	return nil, &Error{step, err}
}

// endReason returns the reason if ctx has ended. It also checks the deadline itself, because a connection attempt ends at the deadline of ctx, which may be
// before the timer of ctx fires.
func endReason(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok && ctx.Err() == nil && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return context.Cause(ctx)
}
