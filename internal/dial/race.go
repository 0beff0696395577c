package dial

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// race connects to the first address of a name that answers.
type race struct {
	*Dialer
	host, port string // host is "" for an address
	note       func(step string)
	answers    chan answer // one of each lookup
	results    chan result // one of each attempt

	asked, trying, tried int // lookups and attempts under way; attempts so far
	queue                []netip.Addr
	faults               []error // of the attempts
	lookupFault          error
}

// result is the end of an attempt.
type result struct {
	conn net.Conn
	err  error
}

// lookUp asks for the addresses of each family for itself, since one of the two answers may never come.
func (r *race) lookUp(ctx context.Context) {
	r.note("look up " + r.host)
	for _, network := range []string{"ip6", "ip4"} {
		r.asked++
		q := question{network, r.host}
		l := r.start(q)
		go func() { r.answers <- l.await(ctx, q) }() // which ends with ctx, and never blocks
	}
}

// run returns the first connection, or why there is none.
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
			next.Reset(r.take(a))
		case done := <-r.results:
			r.trying--
			if done.err == nil {
				return done.conn, nil
			}
			r.faults = append(r.faults, done.err)
			next.Reset(0)
		case <-due:
			r.try(ctx)
			next.Reset(NextAddress)
		}
	}
	return nil, r.fault()
}

// take adds the addresses of an answer and returns when the next address is to be tried.
func (r *race) take(a answer) time.Duration {
	if a.err != nil && (r.lookupFault == nil || !isNotFound(a.err)) {
		r.lookupFault = a.err
	}
	r.queue = interleave(r.queue, a.addrs)
	switch {
	case r.trying > 0:
		return NextAddress
	case a.network == "ip4" && r.asked > 0 && r.tried == 0:
		return otherFamily
	}
	return 0
}

// interleave puts the addresses of another family between those that wait.
func interleave(waiting, more []netip.Addr) []netip.Addr {
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

// try begins an attempt with the next address.
func (r *race) try(ctx context.Context) {
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
		conn, err := r.connect(ctx, "tcp", addr, step)
		r.results <- result{conn, err}
	}()
}

// closeLosers waits for the attempts that are still under way, whose context has ended.
func (r *race) closeLosers() {
	for ; r.trying > 0; r.trying-- {
		if late := <-r.results; late.conn != nil {
			_ = late.conn.Close()
		}
	}
}

// fault returns why there is no connection.
func (r *race) fault() error {
	if len(r.faults) == 0 {
		return &Error{"look up " + r.host, r.lookupFault}
	}
	if len(r.faults) == 1 {
		return r.faults[0]
	}
	return attemptErrors(r.faults)
}

// attemptErrors are those of several addresses, in one line.
type attemptErrors []error

func (a attemptErrors) Error() string {
	texts := make([]string, len(a))
	for i, err := range a {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns all.
func (a attemptErrors) Unwrap() []error { return a }
