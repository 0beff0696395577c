package dial

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// nameserver answers on loopback. It leaves the questions of some types without an answer.
type nameserver struct {
	conn   net.PacketConn
	addrs  []netip.Addr
	silent func(dnsmessage.Type) bool
}

func serveNames(t *testing.T, n *nameserver) string {
	t.Helper()
	var err error
	if n.conn, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			size, from, err := n.conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if reply := n.answer(t, buf[:size]); reply != nil {
				_, _ = n.conn.WriteTo(reply, from)
			}
		}
	}()
	t.Cleanup(func() { _ = n.conn.Close(); <-done })
	return n.conn.LocalAddr().String()
}

func (n *nameserver) answer(t *testing.T, query []byte) []byte {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil || len(m.Questions) != 1 {
		t.Errorf("query %x: %v", query, err)
		return nil
	}
	q := m.Questions[0]
	if n.silent != nil && n.silent(q.Type) {
		return nil
	}
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	for _, a := range n.addrs {
		r := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, Type: q.Type, TTL: 1}}
		switch {
		case a.Is4() && q.Type == dnsmessage.TypeA:
			r.Body = &dnsmessage.AResource{A: a.As4()}
		case a.Is6() && q.Type == dnsmessage.TypeAAAA:
			r.Body = &dnsmessage.AAAAResource{AAAA: a.As16()}
		default:
			continue
		}
		m.Answers = append(m.Answers, r)
	}
	reply, err := m.Pack()
	if err != nil {
		t.Error(err)
	}
	return reply
}

// resolver asks the given nameservers, one for each query, and the last of them from then on.
func resolver(servers ...string) *net.Resolver {
	var queries atomic.Int64
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", servers[min(int(queries.Add(1)), len(servers))-1])
	}}
}

func listen(t *testing.T, addr string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func newDialer(t *testing.T, servers ...string) *Dialer {
	t.Helper()
	d := New(Config{Resolver: resolver(servers...)})
	t.Cleanup(d.Close)
	return d
}

const name = "redis.example.test."

// TestAnswersOfOneFamilyAreDropped: a firewall or an old resolver drops the answers for IPv6. Waiting for them takes the resolver 10 s and more.
func TestAnswersOfOneFamilyAreDropped(t *testing.T) {
	t.Parallel()
	l := listen(t, "127.0.0.1:0")
	d := newDialer(t, serveNames(t, &nameserver{addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, silent: func(q dnsmessage.Type) bool { return q == dnsmessage.TypeAAAA }}))
	began := time.Now()
	conn, err := d.DialContext(t.Context(), "tcp", net.JoinHostPort(name, port(l)))
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if took := time.Since(began); took > 4*time.Second { // the first try of the resolver for IPv6 alone takes 5 s
		t.Errorf("connected after %v", took)
	}
}

// TestLookupOutlivesItsCaller: the first nameserver is dead, which costs 5 s. Callers that have a second each get through all the same.
func TestLookupOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	l := listen(t, "127.0.0.1:0")
	dead := serveNames(t, &nameserver{silent: func(dnsmessage.Type) bool { return true }})
	alive := serveNames(t, &nameserver{addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}})
	d := newDialer(t, dead, dead, alive)
	var err error
	for range 30 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		var conn net.Conn
		conn, err = d.DialContext(ctx, "tcp", net.JoinHostPort(name, port(l)))
		cancel()
		if err == nil {
			_ = conn.Close()
			return
		}
		var step *Error
		if !errors.As(err, &step) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("not the end of a step's time: %v", err) // the lookup may end shortly before the second does, and the connection be what is late
		}
	}
	t.Errorf("never connected: %v", err)
}

// TestConnectionEndsWithItsCaller: a caller that has less time than a connection is named as the reason, however exact its timer is.
func TestConnectionEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	hole := "127.0.0.7:" + port(listen(t, "127.0.0.6:0"))
	fillBacklog(t, hole)
	d := newDialer(t, serveNames(t, &nameserver{}))
	for range 50 {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
		_, err := d.DialContext(ctx, "tcp", hole)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrSilent) {
			t.Fatalf("%v", err)
		}
	}
}

// TestBlackHole: the first address drops all packets. A full backlog does the same here: the kernel drops further packets.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	l := listen(t, "127.0.0.2:0")
	fillBacklog(t, "127.0.0.1:"+port(l))
	d := newDialer(t, serveNames(t, &nameserver{addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")}}))
	ctx, cancel := context.WithTimeout(t.Context(), ConnectTimeout) // the first address alone takes that
	defer cancel()
	var steps []string
	conn, err := d.Dial(ctx, "tcp", net.JoinHostPort(name, port(l)), func(step string) { steps = append(steps, step) })
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if to := conn.RemoteAddr().String(); !strings.HasPrefix(to, "127.0.0.2:") {
		t.Errorf("connected to %s", to)
	}
	want := []string{"look up " + name, "connect to 127.0.0.1:" + port(l) + " (" + name + ")", "connect to 127.0.0.2:" + port(l) + " (" + name + ")"}
	if strings.Join(steps, "; ") != strings.Join(want, "; ") {
		t.Errorf("steps %q, want %q", steps, want)
	}
}

// TestErrorsNameTheStep has one of each step.
func TestErrorsNameTheStep(t *testing.T) {
	t.Parallel()
	l := listen(t, "127.0.0.3:0")
	closed := port(l)
	_ = l.Close()
	nobody := serveNames(t, &nameserver{})
	hole := listen(t, "127.0.0.4:0")
	fillBacklog(t, "127.0.0.5:"+port(hole))
	for _, tc := range []struct {
		to, says string
		servers  *nameserver
	}{
		{net.JoinHostPort("127.0.0.3", closed), "connect to 127.0.0.3:" + closed + ": connect: connection refused", nil},
		{net.JoinHostPort(name, "1"), "look up " + name + ": no such host (nameserver ", &nameserver{}},
		{net.JoinHostPort(name, closed), "connect to 127.0.0.3:" + closed + " (" + name + "): connect: connection refused", &nameserver{addrs: []netip.Addr{netip.MustParseAddr("127.0.0.3")}}},
		{"127.0.0.5:" + port(hole), "connect to 127.0.0.5:" + port(hole) + ": no answer within 2s", nil},
	} {
		at := nobody
		if tc.servers != nil {
			at = serveNames(t, tc.servers)
		}
		_, err := newDialer(t, at).DialContext(t.Context(), "tcp", tc.to)
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %s", tc.to, err, tc.says)
		}
	}
}

func port(l net.Listener) string {
	_, p, _ := net.SplitHostPort(l.Addr().String())
	return p
}
