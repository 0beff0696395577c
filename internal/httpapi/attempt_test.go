package httpapi

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

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

// TestManySignInsWait: while the provider hangs, few requests wait for it, others are answered, and the log has that.
func TestManySignInsWait(t *testing.T) {
	p := newProvider(t)
	hang := make(chan struct{})
	release := sync.OnceFunc(func() { close(hang) })
	p.with(func() {
		p.answer["/.well-known/openid-configuration"] = func(http.ResponseWriter, *http.Request) { <-hang }
	})
	var log bytes.Buffer
	s := signInServer(t, &log, Config{OIDC: p.client(theSecret, localCallback)})
	t.Cleanup(release) // before the servers end, which wait for their requests
	codes := make(chan int)
	for range mostSigningIn + 1 {
		go func() { codes <- statusOf(t, s, signInPath) }()
	}
	if code := <-codes; code != http.StatusServiceUnavailable { // all others wait
		t.Errorf("one too many: %d", code)
	}
	if resp, _ := ask(t, s, "GET", "/login", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("the login page: %d", resp.StatusCode)
	}
	release()
	for range mostSigningIn {
		<-codes
	}
	if n := strings.Count(log.String(), "sign-ins refused: too many wait for the provider"); n != 1 { // no handler writes it any more
		t.Errorf("logged %d times: %s", n, &log)
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

// TestCallbacksThatWait: a client that repeats its callback does not keep people from going to the provider.
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
	codes := make(chan int)
	for range mostSigningIn + 1 {
		go func() { codes <- statusOf(t, s, back, cookie) }()
	}
	if code := <-codes; code != http.StatusServiceUnavailable { // all others wait
		t.Errorf("one too many: %d", code)
	}
	if code := statusOf(t, s, signInPath); code != http.StatusSeeOther {
		t.Errorf("another person: %d", code)
	}
	release()
	for range mostSigningIn {
		<-codes
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
