// Package dial connects to servers by name. Each step has a time-out of its own, and an error names the step that failed.
//
// The addresses of a name are tried as RFC 8305 says: each family is looked up for itself, the first answer begins, and the next address is tried when the
// one before has failed or is silent for a moment. A lookup goes on when its caller gives up, and its answer serves the next caller: a caller with little
// time gets through as soon as the name is known.
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
	// LookupTimeout is how long the lookup of a name may take: with a dead nameserver each name of the search list costs 5 s.
	LookupTimeout = 30 * time.Second
	// ConnectTimeout is how long one address may take.
	ConnectTimeout = 2 * time.Second
	// NextAddress is how long an address may be silent before the next one is tried as well.
	NextAddress = 250 * time.Millisecond
	// otherFamily is how long an IPv4 address waits for those of IPv6, which go first.
	otherFamily = 50 * time.Millisecond
	// MostAddresses is how many addresses of a name are tried.
	MostAddresses = 16
	// Timeout bounds all steps together.
	Timeout = LookupTimeout + ConnectTimeout + MostAddresses*NextAddress
)

// Config configures a Dialer.
type Config struct {
	// Resolver looks names up. Defaults to [net.DefaultResolver].
	Resolver *net.Resolver
}

// Dialer connects to servers. It is safe for concurrent use.
type Dialer struct {
	resolver *net.Resolver
	net      net.Dialer
	lookups  lookups
}

// New makes a Dialer. [Dialer.Close] ends its lookups.
func New(cfg Config) *Dialer {
	d := &Dialer{resolver: cmp.Or(cfg.Resolver, net.DefaultResolver), net: net.Dialer{Timeout: ConnectTimeout}}
	d.lookups.byQuestion = map[question]*lookup{}
	d.lookups.ctx, d.lookups.cancel = context.WithCancel(context.Background())
	return d
}

// Close ends the lookups under way and waits for them.
func (d *Dialer) Close() {
	d.lookups.cancel()
	d.lookups.running.Wait()
}

// Error is the failure of one step.
type Error struct {
	Step string // such as "look up redis.example.org"
	Err  error
}

func (e *Error) Error() string { return e.Step + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ErrSilent is the cause of a step that took too long.
var ErrSilent = errors.New("no answer")

// silence returns the cause of a step that ended with its own time.
func silence(after time.Duration) error { return fmt.Errorf("%w within %v", ErrSilent, after) }

// DialContext connects to an address, as [net.Dialer.DialContext] does.
func (d *Dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	return d.Dial(ctx, network, addr, func(string) {})
}

// Dial is DialContext. It calls note at the begin of each step, with words such as "look up redis.example.org".
func (d *Dialer) Dial(ctx context.Context, network, addr string, note func(step string)) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if network != "tcp" || err != nil {
		note("connect to " + addr)
		return d.connect(ctx, network, addr, "connect to "+addr)
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

// connect makes one connection.
func (d *Dialer) connect(ctx context.Context, network, addr, step string) (net.Conn, error) {
	began := time.Now()
	conn, err := d.net.DialContext(ctx, network, addr)
	if err == nil {
		return conn, nil
	}
	var op *net.OpError
	var timeout net.Error
	switch {
	case ended(ctx) != nil:
		err = fmt.Errorf("%w after %v", ended(ctx), time.Since(began).Round(time.Millisecond))
	case errors.As(err, &timeout) && timeout.Timeout():
		err = silence(ConnectTimeout)
	case errors.As(err, &op):
		err = op.Err // the step has the rest
	}
	return nil, &Error{step, err}
}

// ended returns why ctx has ended. A connection that waits ends at the deadline of ctx, which may be before the timer of ctx fires.
func ended(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok && ctx.Err() == nil && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return context.Cause(ctx)
}
