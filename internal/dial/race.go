package dial

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// A race connects to the addresses of a name and returns the first connection.
type race struct {
	*Dialer
	host, port string // host is "" if the address needs no lookup
	note       func(step string)
	answers    chan answer // one answer per lookup
	results    chan result // one result per attempt

	asked, trying, tried int // lookups in progress, attempts in progress, attempts so far
	queue                []netip.Addr
	faults               []error // errors of the attempts
	lookupFault          error
}

type result struct {
	conn net.Conn
	err  error
}

// lookUp starts one lookup for each address family, because a nameserver may answer for one family and never for the other.
func (r *race) lookUp(ctx context.Context) {
	r.note("look up " + r.host)
	for _, network := range []string{"ip6", "ip4"} {
		r.asked++
		q := question{network, r.host}
		l := r.startLookup(q)
		go func() { r.answers <- l.awaitAnswer(ctx, q) }() // awaitAnswer returns when ctx ends, and the channel has room for the answer
	}
}

func (r *race) run(ctx context.Context) (net.Conn, error) {
	next := time.NewTimer(0) // the time to try the next address
	defer next.Stop()
	for r.asked+r.trying+len(r.queue) > 0 {
		due := next.C
		if len(r.queue) == 0 || r.tried == MostAddresses {
			due = nil
		}
		if due == nil && r.asked+r.trying == 0 {
			break
		}
		select {
		case a := <-r.answers:
			r.asked--
			next.Reset(r.queueAddresses(a))
		case done := <-r.results:
			r.trying--
			if done.err == nil {
				return done.conn, nil
			}
			r.faults = append(r.faults, done.err)
			next.Reset(0)
		case <-due:
			r.startAttempt(ctx)
			next.Reset(NextAddress)
		}
	}
	return nil, r.connectError()
}

// queueAddresses queues the addresses of an answer and returns the time until the next address is tried.
func (r *race) queueAddresses(a answer) time.Duration {
	if a.err != nil && (r.lookupFault == nil || !isNotFound(a.err)) {
		r.lookupFault = a.err
	}
	r.queue = interleaveFamilies(r.queue, a.addrs)
	switch {
	case r.trying > 0:
		return NextAddress
	case a.network == "ip4" && r.asked > 0 && r.tried == 0:
		return otherFamily
	}
	return 0
}

// interleaveFamilies merges the addresses of two families in alternation. The first address is from more.
func interleaveFamilies(waiting, more []netip.Addr) []netip.Addr {
	var all []netip.Addr
	for i := range max(len(waiting), len(more)) {
		for _, list := range [][]netip.Addr{more, waiting} {
			if i < len(list) && !slices.Contains(all, list[i]) {
				all = append(all, list[i])
			}
		}
	}
	return all
}

func (r *race) startAttempt(ctx context.Context) {
	addr := net.JoinHostPort(r.queue[0].Unmap().String(), r.port)
	r.queue = r.queue[1:]
	r.trying++
	r.tried++
	step := "connect to " + addr
	if r.host != "" {
		step += " (" + r.host + ")"
	}
	r.note(step)
	go func() {
		conn, err := r.dialAddress(ctx, "tcp", addr, step)
		r.results <- result{conn, err}
	}()
}

// closeLosers waits for the attempts in progress and closes their connections. The caller must have canceled their context.
func (r *race) closeLosers() {
	for ; r.trying > 0; r.trying-- {
		if late := <-r.results; late.conn != nil {
			_ = late.conn.Close()
		}
	}
}

func (r *race) connectError() error {
	if len(r.faults) == 0 {
		return &Error{"look up " + r.host, r.lookupFault}
	}
	if len(r.faults) == 1 {
		return r.faults[0]
	}
	return attemptErrors(r.faults)
}

// attemptErrors has the errors of several addresses. Its text is one line.
type attemptErrors []error

func (a attemptErrors) Error() string {
	texts := make([]string, len(a))
	for i, err := range a {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (a attemptErrors) Unwrap() []error { return a }
