package web

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
)

// dialFrom opens a connection from an address of this machine.
func dialFrom(t *testing.T, s *Server, from string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 5 * time.Second}
	conn, err := d.DialContext(t.Context(), "tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// askOver sends a request over a connection, and returns the status of the answer.
func askOver(t *testing.T, conn net.Conn, path, more string) int {
	t.Helper()
	_, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", path, more)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second)) // so that a mistake ends the test
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%s from %v: %v", path, conn.LocalAddr(), err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// entered waits until the server has accepted a number of connections.
func entered(t *testing.T, s *Server, normal int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		s.listener.mu.Lock()
		n := len(s.listener.normal)
		s.listener.mu.Unlock()
		if n >= normal {
			return
		}
	}
	t.Fatalf("%d connections were not accepted", normal)
}

const token = "s3cr3t-s3cr3t-s3cr3t"

// TestIdleConnectionsKeepOutNobody: 450 connections of one address without a request, or with a part of one, leave places for users and for health.
func TestIdleConnectionsKeepOutNobody(t *testing.T) {
	for name, begun := range map[string]string{"silent": "", "part of a request": "GET / HTTP/1.1\r\nHost: localhost\r\nX: ", "part of a body": "POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 9\r\n\r\nt"} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, token)
			early := dialFrom(t, s, "127.0.0.1") // the oldest connection is of another address, and stays
			if code := askOver(t, early, "/healthz", ""); code != http.StatusOK {
				t.Fatalf("health at first: %d", code)
			}
			for range 450 {
				_, _ = io.WriteString(dialFrom(t, s, "127.0.0.2"), begun)
			}
			entered(t, s, MaxConnections-healthConnections)
			if code := askOver(t, dialFrom(t, s, "127.0.0.1"), "/healthz", ""); code != http.StatusOK {
				t.Errorf("health: %d", code)
			}
			for range 20 {
				if code := askOver(t, dialFrom(t, s, "127.0.0.3"), "/metrics", "Authorization: Bearer "+token+"\r\n"); code != http.StatusOK {
					t.Errorf("metrics: %d", code)
				}
			}
			if code := askOver(t, early, "/metrics", "Authorization: Bearer "+token+"\r\n"); code != http.StatusOK {
				t.Errorf("the connection of another address: %d", code)
			}
		})
	}
}

// TestHealthHasPlacesOfItsOwn: if requests of users have all places, health is answered and other requests are refused.
func TestHealthHasPlacesOfItsOwn(t *testing.T) {
	s := serve(t, "")
	for i := range MaxConnections - healthConnections {
		at := &limitedConn{Conn: nowhere{}, of: s.listener, user: true, client: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})}
		if given := s.listener.addConn(at); given != nil {
			t.Fatal("a connection left although there are free places")
		}
	}
	for range 3 * healthConnections { // which are not closed
		if code := askOver(t, dialFrom(t, s, "127.0.0.1"), "/healthz", ""); code != http.StatusOK {
			t.Errorf("health: %d", code)
		}
	}
	if code := askOver(t, dialFrom(t, s, "127.0.0.1"), "/metrics", ""); code != http.StatusServiceUnavailable {
		t.Errorf("metrics: %d", code)
	}
}

// nowhere is a connection that only takes a place.
type nowhere struct{ net.Conn }

func (nowhere) Close() error { return nil }

// TestWhoLeaves: the address with the most connections has to leave first, its oldest connection without a request of a user.
func TestWhoLeaves(t *testing.T) {
	d := newConnLimiter(nil, []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")})
	add := func(from string, user bool) *limitedConn {
		at := &limitedConn{of: d, Conn: nowhere{}, client: countedAddress(netip.MustParseAddr(from)), user: user}
		d.normal = append(d.normal, at)
		return at
	}
	proxy := add("10.9.0.1", false)
	add("10.9.0.1", false)
	add("10.9.0.1", false)
	add("10.0.0.1", true)
	first := add("10.0.0.1", false)
	second := add("10.0.0.1", false)
	other := add("2001:db8::1", false)
	for _, tt := range []struct {
		newcomer string
		want     *limitedConn
	}{{"10.0.0.3", first}, {"2001:db8::2", first}, {"10.0.0.1", first}} {
		if got := d.weakestConn(&limitedConn{client: countedAddress(netip.MustParseAddr(tt.newcomer))}); got != tt.want {
			t.Errorf("%s: %v leaves, want %v", tt.newcomer, got.client, tt.want.client)
		}
	}
	add("2001:db8::3", false)
	add("2001:db8::4", false)
	add("2001:db8::5", false) // one network
	if got := d.weakestConn(&limitedConn{client: netip.MustParseAddr("10.0.0.3")}); got != other {
		t.Errorf("%v leaves, want %v", got.client, other.client)
	}
	for _, one := range d.normal {
		one.user = one != proxy && one != second
	}
	if got := d.weakestConn(&limitedConn{client: netip.MustParseAddr("10.0.0.3")}); got != second {
		t.Errorf("%v leaves before a trusted proxy, want %v", got.client, second.client)
	}
}

// TestClientOfAProxy has the forms of X-Forwarded-For by proxies and strangers.
func TestClientOfAProxy(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	for _, tt := range []struct {
		peer   string
		header []string
		want   string // the address of the request
	}{
		{"10.0.0.1:5", []string{"198.51.100.7"}, "198.51.100.7:0"},
		{"10.0.0.1:5", []string{"1.1.1.1, 198.51.100.7"}, "198.51.100.7:0"},
		{"10.0.0.1:5", []string{"1.1.1.1", "198.51.100.7, 10.0.0.2"}, "198.51.100.7:0"},
		{"10.0.0.1:5", []string{"198.51.100.7:4711"}, "198.51.100.7:0"},
		{"10.0.0.1:5", []string{"[2001:db8::1]:4711"}, "[2001:db8::1]:0"},
		{"[::1]:5", []string{"2001:db8::1"}, "[2001:db8::1]:0"},
		{"[::ffff:10.0.0.1]:5", []string{"::ffff:198.51.100.7"}, "198.51.100.7:0"},
		{"10.0.0.1:5", []string{"10.0.0.2"}, "10.0.0.2:0"}, // a client inside
		{"10.0.0.1:5", []string{"1.1.1.1, unknown, 10.0.0.2"}, "10.0.0.2:0"},
		{"10.0.0.1:5", []string{"unknown"}, "10.0.0.1:5"},
		{"10.0.0.1:5", nil, "10.0.0.1:5"},
		{"192.0.2.1:5", []string{"198.51.100.7"}, "192.0.2.1:5"}, // no proxy of ours
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = tt.peer
		r.Header["X-Forwarded-For"] = tt.header
		var got string
		believeProxies(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.RemoteAddr }), trusted).ServeHTTP(httptest.NewRecorder(), r)
		if got != tt.want {
			t.Errorf("%s with %q: %s, want %s", tt.peer, tt.header, got, tt.want)
		}
	}
}

// deadlines notes the deadlines of reading.
type deadlines struct {
	http.ResponseWriter
	set []time.Duration
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.set = append(d.set, time.Until(at).Round(time.Second))
	return nil
}

// TestBodiesMustArriveSoon: a body has ten seconds, and the handler that has read it the rest of half a minute.
func TestBodiesMustArriveSoon(t *testing.T) {
	w, r := &deadlines{ResponseWriter: httptest.NewRecorder()}, httptest.NewRequest(http.MethodPost, "/login", strings.NewReader("token=x"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	limitBody(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _ = r.ParseForm() })).ServeHTTP(w, r)
	if got := fmt.Sprint(w.set); got != "[10s 30s]" {
		t.Errorf("deadlines %s", got)
	}
}

// TestEveryAnswerIsPrivate: no cache keeps an answer, and with TLS browsers stay with it.
func TestEveryAnswerIsPrivate(t *testing.T) {
	for _, secure := range []bool{false, true} {
		cfg := Config{Listen: "127.0.0.1:0", Users: func() Users { return nil }, SessionSecret: nil}
		if secure {
			cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		for _, path := range []string{"/", "/healthz", "/readyz", "/login", "/login.css", "/metrics", "/api/v1/status", "/nothing"} {
			for _, host := range []string{"localhost", "evil.example"} {
				w := httptest.NewRecorder()
				r := httptest.NewRequest(http.MethodGet, path, nil)
				r.Host = host
				protect(http.NotFoundHandler(), cfg, nil, newEndedSessions(cfg)).ServeHTTP(w, r)
				h := w.Header()
				if h.Get("Cache-Control") != "no-store" || h.Get("X-Content-Type-Options") != "nosniff" || (h.Get("Strict-Transport-Security") != "") != secure {
					t.Errorf("%s of %s: %d %v", path, host, w.Code, h)
				}
			}
		}
	}
}

// TestSignInsWaitForAPlace: where all places are taken a request waits for a second, and is refused if none is free then.
func TestSignInsWaitForAPlace(t *testing.T) {
	p := newProvider(t)
	for name, tt := range map[string]struct {
		free time.Duration // when a place is
		code int
		logs int
	}{"free soon": {placeTimeout / 2, http.StatusSeeOther, 0}, "never free": {time.Hour, http.StatusServiceUnavailable, 1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				mux := http.NewServeMux()
				s := newSignIn(sessions{cfg: Config{OIDC: p.client(theSecret, localCallback), Log: hclog.New(&hclog.LoggerOptions{Output: &log})}})
				s.addSignInRoutes(mux)
				for range mostSigningIn {
					s.places.all <- struct{}{}
				}
				timer := time.AfterFunc(tt.free, func() { <-s.places.all })
				defer timer.Stop()
				w := httptest.NewRecorder()
				began := time.Now()
				mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, signInPath, nil))
				if waited := time.Since(began); w.Code != tt.code || waited != min(tt.free, placeTimeout) {
					t.Errorf("%d after %v: %s", w.Code, waited, w.Body)
				}
				if n := strings.Count(log.String(), "sign-ins refused: requests=1 address=192.0.2.1:1234 error=\"too many requests wait for the provider\""); n != tt.logs {
					t.Errorf("logged %d times: %s", n, &log)
				}
			})
		})
	}
}

// TestCallbackWithoutAPlace: it may be loaded again, since the provider was not asked.
func TestCallbackWithoutAPlace(t *testing.T) {
	p := newProvider(t)
	synctest.Test(t, func(t *testing.T) {
		s := newSignIn(sessions{cfg: Config{OIDC: p.client(theSecret, localCallback), Log: hclog.NewNullLogger()}})
		r := httptest.NewRequest(http.MethodGet, callbackPath, nil)
		key := s.provider.Key(signInKey)
		a := s.beginSignIn(r, "/", time.Now())
		r.URL.RawQuery = url.Values{"code": {"x"}, "state": {a.deriveSecrets(key).State}}.Encode()
		r.AddCookie(s.signInCookie(r, a.slotName(), a.signedCookie(key), 600))
		load := func() *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			s.finishSignIn(w, r)
			return w
		}
		for range mostSigningIn {
			s.places.all <- struct{}{}
		}
		if w := load(); w.Code != http.StatusServiceUnavailable || len(w.Result().Cookies()) > 0 || len(p.requests()) > 0 {
			t.Errorf("%d, cookies %v, asked for %q", w.Code, w.Result().Cookies(), p.requests())
		}
		<-s.places.all
		if w := load(); w.Code != http.StatusUnauthorized || !slices.Contains(p.requests(), "/token") {
			t.Errorf("with a place: %d, asked for %q", w.Code, p.requests())
		}
		if len(s.places.all) != mostSigningIn-1 {
			t.Errorf("%d places are taken at the end", len(s.places.all))
		}
	})
}

// TestPlacesOfAnAddress: one client leaves places for others, and its other requests wait for its own.
func TestPlacesOfAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces()
		from := func(address string) (leave func(), err error) {
			r := httptest.NewRequest(http.MethodGet, signInPath, nil)
			r.RemoteAddr = address
			return p.enterPlace(r)
		}
		another := ""
		for i := 0; another == "" || p.ofAddress(another) == p.ofAddress("192.0.2.1:1"); i++ { // few have the same hash
			another = fmt.Sprintf("[2001:db8:0:%x::]:7", i)
		}
		for i := range 8 {
			if p.ofAddress(fmt.Sprintf("[2001:db8::%x]:7", i)) != p.ofAddress("[2001:db8::ffff]:7") {
				t.Fatal("a client with an IPv6 network has the places of many clients")
			}
		}
		var leave func()
		for port := range mostOfAddress {
			var err error
			if leave, err = from(fmt.Sprintf("192.0.2.1:%d", port)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := from("192.0.2.1:99"); !errors.Is(err, tooManyOfAddress) {
			t.Errorf("one too many of an address: %v", err)
		}
		began := time.Now()
		var waiting sync.WaitGroup
		for range mostPresent - mostOfAddress {
			waiting.Go(func() {
				if _, err := from("192.0.2.1:99"); !errors.Is(err, tooManyOfAddress) {
					t.Errorf("one that waited: %v", err)
				}
			})
		}
		synctest.Wait()
		if _, err := from("192.0.2.1:99"); !errors.Is(err, tooManyOfAddress) || time.Since(began) > 0 {
			t.Errorf("beside all that wait: %v after %v", err, time.Since(began))
		}
		waiting.Wait()
		began = time.Now()
		for range mostSigningIn - mostOfAddress {
			if _, err := from(another); err != nil || time.Since(began) > 0 {
				t.Errorf("of another address: %v after %v", err, time.Since(began))
			}
		}
		leave()
		if _, err := from("192.0.2.1:99"); err != nil {
			t.Errorf("after one has left: %v", err)
		}
		if len(p.all) != mostSigningIn {
			t.Errorf("%d places are taken", len(p.all))
		}
	})
}
