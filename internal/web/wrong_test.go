package web

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
)

// TestWrongTokensWait: the answers to wrong tokens of an address come later and later. Valid tokens and other addresses do not wait.
func TestWrongTokensWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		users, err := ParseUsers(token)
		if err != nil {
			t.Fatal(err)
		}
		cfg := Config{Users: func() Users { return users }, Log: hclog.NewNullLogger()}
		server := protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), cfg, nil, newEndedSessions(cfg))
		took := func(from, sent string) time.Duration {
			r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
			r.Host, r.RemoteAddr = "localhost", from
			r.Header.Set("Authorization", "Bearer "+sent)
			began, w := time.Now(), httptest.NewRecorder()
			server.ServeHTTP(w, r)
			if (w.Code == http.StatusOK) != (sent == token) {
				t.Errorf("%s: %d", sent, w.Code)
			}
			return time.Since(began)
		}
		for i := range 20 {
			want := time.Duration(0)
			if i >= freeTries {
				want = min(firstPause<<(i-freeTries), longestPause)
			}
			if got := took("192.0.2.1:7", "wrong-wrong-wrong-wrong"); got != want {
				t.Errorf("wrong token %d waited %v, want %v", i+1, got, want)
			}
			if got := took("192.0.2.1:8", token); got != 0 {
				t.Errorf("a valid token waited %v", got)
			}
		}
		if got := took("192.0.2.2:7", "wrong-wrong-wrong-wrong"); got != 0 {
			t.Errorf("another address waited %v", got)
		}
		time.Sleep(forgetAfter + time.Second) // fake time
		if got := took("192.0.2.1:7", "wrong-wrong-wrong-wrong"); got != 0 {
			t.Errorf("after a while it waited %v", got)
		}
	})
}

// TestWrongTokensAreBounded: the addresses of strangers do not fill the memory, and those that find it full wait as one.
func TestWrongTokensAreBounded(t *testing.T) {
	w := &wrongTokens{of: map[netip.Addr]wrongCount{}}
	now := time.Now()
	for i := range 3 * mostWrong {
		wait := w.countWrong(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), now)
		if waits := i >= mostWrong+freeTries; waits != (wait > 0) {
			t.Fatalf("address %d waits %v", i+1, wait)
		}
	}
	if len(w.of) != mostWrong+1 {
		t.Errorf("%d addresses", len(w.of))
	}
	if w.countWrong(netip.MustParseAddr("192.0.2.1"), now.Add(forgetAfter+time.Second)); len(w.of) != 1 {
		t.Errorf("%d addresses later", len(w.of))
	}
}

// TestEveryCookieIsTried: a cookie that a page of a sibling domain has set before ours does not lock a browser out.
func TestEveryCookieIsTried(t *testing.T) {
	users, err := ParseUsers(token)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Users: func() Users { return users }, Log: hclog.NewNullLogger()}
	secret := newSessionSecret(cfg)
	known := clusterSecret
	secret.known.Store(&known)
	secret.asked = time.Now()
	server := protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), cfg, secret, newEndedSessions(cfg))
	good := users[0].signedSession(clusterSecret, time.Now().Add(time.Hour))
	for _, cookies := range [][]string{{good}, {"junk", good}, {good, "junk"}, {"a.b.c", "oidc.a.b.c.d", good}} {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Host = "localhost"
		for _, value := range cookies {
			r.AddCookie(&http.Cookie{Name: "cronclave", Value: value})
		}
		w := httptest.NewRecorder()
		if server.ServeHTTP(w, r); w.Code != http.StatusOK {
			t.Errorf("%q: %d", cookies, w.Code)
		}
	}
}
