package web

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// TestSeveralTabs: sign-ins of one browser do not disturb each other, as many as there are slots, and their cookies are few.
func TestSeveralTabs(t *testing.T) {
	p := newProvider(t)
	s := signInServer(t, io.Discard, Config{OIDC: p.client(theSecret, localCallback)})
	v := newVisitor(t)
	var back []string
	for range len(slots) {
		back = append(back, v.begin(s, p, "/jobs"))
	}
	for range 2 {
		v.begin(s, p, "/")
	}
	if len(v.cookies) > len(slots) {
		t.Errorf("%d cookies", len(v.cookies))
	}
	finished := 0
	for _, path := range back {
		if resp, _ := v.get(s, path); resp.StatusCode == http.StatusSeeOther && resp.Header.Get("Location") == "/jobs" {
			finished++
		}
	}
	if finished < len(slots)-2 { // two have lost their slots
		t.Errorf("%d tabs of %d have signed in", finished, len(slots))
	}
}

// TestCookiesAreSmall: other sites can have a browser begin sign-ins, with paths as long as they like. Its requests must still be read.
func TestCookiesAreSmall(t *testing.T) {
	p := newProvider(t)
	replica, err := New(Config{Listen: "127.0.0.1:0", Metrics: http.NotFoundHandler(), OIDC: p.client(theSecret, localCallback), Log: hclog.NewNullLogger()})
	if err != nil {
		t.Fatal(err)
	}
	if err := replica.Close(); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(nil)
	s.Config = replica.http
	s.Start()
	t.Cleanup(s.Close)
	s.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	v := newVisitor(t)
	for _, long := range []int{maxNext, maxNext + 1, 2000, 8000} {
		for range 3 * len(slots) {
			v.get(s, signInPath+"?next=/"+strings.Repeat("x", long-1))
		}
	}
	size := 0
	for name, value := range v.cookies {
		size += len(name) + len(value) + len("=; ")
	}
	if len(v.cookies) != len(slots) || size > 6000 {
		t.Errorf("%d cookies of %d bytes", len(v.cookies), size)
	}
	if resp, body := v.get(s, "/login"); resp.StatusCode != http.StatusOK {
		t.Errorf("with %d bytes of cookies: %d %s", size, resp.StatusCode, body)
	}
}

func statusOf(t *testing.T, s *httptest.Server, path string, headers ...string) int {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
	if err != nil {
		t.Error(err)
		return 0
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Error(err)
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// TestCallbacksThatWait: of a client that repeats its callback one request waits for the provider. So it does not keep people from going there.
func TestCallbacksThatWait(t *testing.T) {
	p := newProvider(t)
	s := signInServer(t, io.Discard, Config{OIDC: p.client(theSecret, localCallback)})
	v := newVisitor(t)
	back := v.begin(s, p, "/")
	hang := make(chan struct{})
	release := sync.OnceFunc(func() { close(hang) })
	t.Cleanup(release) // before the servers end, which wait for their requests
	p.with(func() { p.answer["/token"] = func(http.ResponseWriter, *http.Request) { <-hang } })
	var cookie string
	for name, value := range v.cookies {
		cookie = "Cookie: " + name + "=" + value
	}
	const requests = 5
	codes := make(chan int)
	for range requests {
		go func() { codes <- statusOf(t, s, back, cookie) }()
	}
	for range requests - 1 { // all but the one that waits
		if code := <-codes; code != http.StatusServiceUnavailable {
			t.Errorf("again: %d", code)
		}
	}
	if code := statusOf(t, s, signInPath); code != http.StatusSeeOther {
		t.Errorf("another person: %d", code)
	}
	release()
	<-codes
}

// TestHungUpSignInIsUsedUp: a client that closes its connection while the provider is asked cannot have it asked again.
func TestHungUpSignInIsUsedUp(t *testing.T) {
	p := newProvider(t)
	s := newSignIn(sessions{cfg: Config{OIDC: p.client(theSecret, localCallback), Log: hclog.NewNullLogger()}})
	r := httptest.NewRequest(http.MethodGet, callbackPath, nil)
	key := s.provider.Key(signInKey)
	a := s.beginSignIn(r, "/", time.Now())
	r.URL.RawQuery = url.Values{"code": {"x"}, "state": {a.deriveSecrets(key).State}}.Encode()
	r.AddCookie(s.signInCookie(r, a.slotName(), a.signedCookie(key), 600))
	ctx, hangUp := context.WithCancel(t.Context())
	hang := make(chan struct{})
	p.with(func() {
		p.answer["/token"] = func(http.ResponseWriter, *http.Request) {
			hangUp()
			<-hang
		}
	})
	s.finishSignIn(httptest.NewRecorder(), r.WithContext(ctx))
	close(hang)
	p.with(func() { delete(p.answer, "/token") })
	w := httptest.NewRecorder()
	if s.finishSignIn(w, r); w.Code != http.StatusBadRequest {
		t.Errorf("again: %d, want that the sign-in has ended: %s", w.Code, w.Body)
	}
}

// TestSecureCookies: browsers that come by HTTPS, by the name in redirect_url, have cookies for HTTPS alone. Others, which come to the server behind the proxy
// by plain HTTP, have those that they would send back: else a login with a token would silently come to nothing there.
func TestSecureCookies(t *testing.T) {
	p := newProvider(t)
	users := annAndBob(t)
	for host, secure := range map[string]bool{"cron.example.com": true, "CRON.example.com.": true, "cron.example.com:443": true, "cron.example.com:7377": false, "localhost:7377": false, "127.0.0.1:7377": false} {
		cfg := Config{Listen: ":7377", OIDC: p.client(theSecret, "https://cron.example.com"+callbackPath), Users: func() Users { return users }, Log: hclog.NewNullLogger()}
		h := guarded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, UserOf(r.Context()).Name) }), cfg)
		send := func(method, path, body string, cookies ...*http.Cookie) *httptest.ResponseRecorder {
			r := httptest.NewRequest(method, path, strings.NewReader(body))
			if r.Host = host; method == http.MethodGet {
				r.ContentLength = 0
			}
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			for _, c := range cookies {
				if !c.Secure || secure { // as browsers do
					r.AddCookie(c)
				}
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w
		}
		login := send("POST", "/login", url.Values{"token": {annsToken}}.Encode()).Result().Cookies()
		if len(login) != 1 || login[0].Secure != secure || strings.HasPrefix(login[0].Name, "__Host-") != secure {
			t.Fatalf("%s: %v", host, login)
		}
		if page := send("GET", "/x", "", login...); page.Code != http.StatusOK || page.Body.String() != "ann" {
			t.Errorf("%s: after the login %d %s", host, page.Code, page.Body)
		}
		for _, c := range send("GET", signInPath, "").Result().Cookies() {
			if strings.HasPrefix(c.Name, "__Host-cronclave-sign-in-") != secure || c.Secure != secure || !c.HttpOnly || c.MaxAge != 600 {
				t.Errorf("%s: cookie %v", host, c)
			}
		}
	}
	h := guarded(http.NotFoundHandler(), Config{Listen: ":7377", OIDC: p.client(theSecret, "https://cron.example.com"+callbackPath), Log: hclog.NewNullLogger()})
	r := httptest.NewRequest(http.MethodGet, signInPath, nil)
	r.Host = "evil.example"
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusMisdirectedRequest {
		t.Errorf("another host: %d", w.Code)
	}
}

// TestCallbackAgain: while the provider cannot be used, the page of a callback may be loaded again until it works.
func TestCallbackAgain(t *testing.T) {
	p := newProvider(t)
	s := signInServer(t, io.Discard, Config{OIDC: p.client(theSecret, localCallback)})
	v := newVisitor(t)
	back := v.begin(s, p, "/jobs")
	p.with(func() { p.answer["/token"] = broken })
	if resp, _ := v.get(s, back); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("while it is broken: %d", resp.StatusCode)
	}
	p.with(func() { delete(p.answer, "/token") })
	if resp, page := v.get(s, back); resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/jobs" || len(v.cookies) != 1 {
		t.Errorf("again: %d %s", resp.StatusCode, page)
	}
}

// TestAttemptIsUsedUp: the provider is asked once for each sign-in, and not at all without a code. Else one sign-in were enough to have it asked without end.
func TestAttemptIsUsedUp(t *testing.T) {
	p := newProvider(t)
	s := signInServer(t, io.Discard, Config{OIDC: p.client(theSecret, localCallback)})
	exchanges := func() int {
		return len(slices.DeleteFunc(p.requests(), func(path string) bool { return path != "/token" }))
	}
	v := newVisitor(t)
	back, err := url.Parse(v.begin(s, p, "/"))
	if err != nil {
		t.Fatal(err)
	}
	kept := maps.Clone(v.cookies)
	for _, tt := range []struct {
		code      string
		answer    int
		exchanges int
	}{{"", http.StatusUnauthorized, 0}, {"x", http.StatusUnauthorized, 1}, {"x", http.StatusBadRequest, 1}, {back.Query().Get("code"), http.StatusBadRequest, 1}} {
		v.cookies = maps.Clone(kept)
		resp, page := v.get(s, callbackPath+"?"+url.Values{"code": {tt.code}, "state": {back.Query().Get("state")}}.Encode())
		if resp.StatusCode != tt.answer || exchanges() != tt.exchanges {
			t.Errorf("code %.5q: %d after %d exchanges, want %d after %d: %s", tt.code, resp.StatusCode, exchanges(), tt.answer, tt.exchanges, page)
		}
	}
	if resp, page := newVisitor(t).signIn(s, p); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("another sign-in: %d %s", resp.StatusCode, page)
	}
}

// TestAttemptsAreBounded: the memory of a replica is, and attempts that are over or answered make room for new ones.
func TestAttemptsAreBounded(t *testing.T) {
	p := pendingSignIns{state: map[pendingSignIn]signInState{}}
	now := time.Now()
	waits := pendingSignIn{id: "waits", until: now.Add(signInTimeout).Unix()}
	if !p.claimCode(waits, now) || p.claimCode(waits, now) {
		t.Error("a claim is not for one request")
	}
	for i := range maxPending + 100 {
		a := pendingSignIn{id: strconv.Itoa(i), until: now.Add(signInTimeout).Unix()}
		if !p.claimCode(a, now) {
			t.Fatalf("attempt %d is not a new one", i)
		}
		if p.settleClaim(a, answered); p.stateOf(a) != answered {
			t.Fatalf("attempt %d: %d", i, p.stateOf(a))
		}
	}
	if n := len(p.state); n > maxPending || p.stateOf(waits) != asking {
		t.Errorf("%d attempts, and the one that waits is %d", n, p.stateOf(waits))
	}
	later := now.Add(signInTimeout)
	if p.claimCode(pendingSignIn{id: "later", until: later.Add(signInTimeout).Unix()}, later); len(p.state) != 1 {
		t.Errorf("%d attempts are remembered after their end", len(p.state))
	}
}
