package web

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	annsToken = "ann-has-a-token-of-her-own"
	bobsToken = "bob-has-a-token-of-his-own"
)

func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func annAndBob(t *testing.T) Users {
	t.Helper()
	users, err := ParseUsers("# people\nann:operator:" + hashOf(annsToken) + "\n\n  bob:viewer:" + hashOf(bobsToken) + "\n")
	if err != nil {
		t.Fatal(err)
	}
	return users
}

func TestUsers(t *testing.T) {
	users := annAndBob(t)
	for token, want := range map[string]User{annsToken: {"ann", RoleOperator}, bobsToken: {"bob", RoleViewer}, "": {}, "ann": {}, hashOf(annsToken): {}} {
		if got, ok := users.Find(token); got != want || ok != (want != User{}) {
			t.Errorf("the token %q is of %v", token, got)
		}
	}
	if alone, err := ParseUsers("0123456789abcdef\n"); err != nil || len(alone) != 1 || alone[0].User != (User{"token", RoleViewer}) {
		t.Errorf("a token alone: %v, %v", alone, err)
	}
}

func TestFaultyUsers(t *testing.T) {
	good := "ann:operator:" + hashOf(annsToken)
	for text, want := range map[string]string{
		"":                                  "it is empty",
		"short":                             "a token of 5 characters can be guessed",
		"two words of a text":               "more than one word",
		"# nothing":                         "no line has a token",
		"ann:operator":                      "line 1: it must be NAME:ROLE:HASH",
		good + "\nann":                      "line 2: it must be NAME:ROLE:HASH",
		"a b:operator:" + hashOf(annsToken): "line 1: it must be NAME:ROLE:HASH",
		"ann:root:" + hashOf(annsToken):     "line 1: the second field must be viewer or operator",
		"ann:" + annsToken + ":operator":    "line 1: the second field must be viewer or operator",
		"ann:operator:" + hashOf(""):        "line 1: the hash of ann is that of an empty token",
		"ann:operator:" + hashOf("\n"):      "line 1: the hash of ann is that of an empty token",
		"ann:viewer:" + annsToken:           "line 1: the hash of ann is not 64 hexadecimal digits",
		good + "\n" + good:                  "line 2: ann is on line 1 already",
	} {
		users, err := ParseUsers(text)
		if err == nil || !strings.Contains(err.Error(), want) || users != nil {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if err != nil && (strings.Contains(err.Error(), annsToken[:8]) || strings.Contains(err.Error(), hashOf(annsToken))) {
			t.Errorf("the error has a secret: %v", err)
		}
	}
}

// usersServer answers each path with the user of the request.
func usersServer(t *testing.T, log io.Writer, users func() Users) *httptest.Server {
	t.Helper()
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
			return
		}
		_, _ = io.WriteString(w, UserOf(r.Context()).Name+" "+string(UserOf(r.Context()).Role))
	})
	s := httptest.NewServer(guarded(echo, Config{Listen: "127.0.0.1:0", Namespace: "shop <1>", Users: users, Log: hclog.New(&hclog.LoggerOptions{Output: log})}))
	t.Cleanup(s.Close)
	s.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return s
}

// ask sends a request with headers, each "Name: value".
func ask(t *testing.T, s *httptest.Server, method, path, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

const hour = time.Hour

// session is the cookie of a browser, signed with a token, that lasts for a while.
func session(name, token string, lasts time.Duration) string {
	u := userToken{User{Name: name}, sha256.Sum256([]byte(token))}
	return "Cookie: cronclave=" + u.signedSession(clusterSecret, time.Now().Add(lasts))
}

// clusterSecret signs the sessions of servers whose Redis does not matter.
var clusterSecret = strings.Repeat("0f", 32)

// guarded puts the checks of every request before a handler.
func guarded(next http.Handler, cfg Config) http.Handler {
	if cfg.SessionSecret == nil {
		cfg.SessionSecret = func(context.Context, string) (string, error) { return clusterSecret, nil }
	}
	return protect(next, cfg, newSessionSecret(cfg), newEndedSessions(cfg))
}

// TestUsersOfRequests has requests by API clients and browsers, of which only those with a token get anywhere.
func TestUsersOfRequests(t *testing.T) {
	users := annAndBob(t)
	var log bytes.Buffer
	s := usersServer(t, &log, func() Users { return users })
	for _, tt := range []struct {
		method, path string
		headers      []string
		code         int
		body         string
	}{
		{"GET", "/x", []string{"Authorization: Bearer " + annsToken}, 200, "ann operator"},
		{"GET", "/x", []string{session("bob", bobsToken, hour)}, 200, "bob viewer"},
		{"GET", "/x", []string{session("bob", bobsToken, -hour)}, 401, "no valid token"},
		{"GET", "/x", []string{session("ann", bobsToken, hour)}, 401, "no valid token"}, // signed by another
		{"GET", "/x", []string{"Cookie: cronclave=" + bobsToken}, 401, "no valid token"},
		{"GET", "/x", []string{"Cookie: cronclave=.."}, 401, "no valid token"},
		{"GET", "/x", []string{"Authorization: Bearer wrong", session("bob", bobsToken, hour)}, 401, "no valid token"},
		{"GET", "/x", []string{"Authorization: Bearer "}, 401, "no valid token"},
		{"GET", "/api/v1/x", []string{"Accept: text/html"}, 401, `"detail":"no valid token`},
		{"GET", "/x", nil, 401, "no valid token"},
		{"GET", "/x?a=b", []string{"Accept: text/html"}, 303, ""},
		{"POST", "/x", []string{"Accept: text/html"}, 401, "no valid token"},
		{"POST", "/x", []string{session("ann", annsToken, hour), "Sec-Fetch-Site: cross-site"}, 403, ""},
		{"POST", "/x", []string{session("ann", annsToken, hour), "Origin: https://evil.example"}, 403, ""},
		{"POST", "/x", []string{session("ann", annsToken, hour), "Sec-Fetch-Site: same-origin"}, 200, "ann operator"},
		{"GET", "/healthz", nil, 200, "ok"},
		{"GET", "/readyz", nil, 200, "ok"},
	} {
		resp, body := ask(t, s, tt.method, tt.path, "", tt.headers...)
		if resp.StatusCode != tt.code || !strings.Contains(body, tt.body) {
			t.Errorf("%s %s with %q: %d %q", tt.method, tt.path, tt.headers, resp.StatusCode, body)
		}
		if tt.code == http.StatusSeeOther && resp.Header.Get("Location") != "/login?next="+url.QueryEscape("/x?a=b") {
			t.Errorf("led to %s", resp.Header.Get("Location"))
		}
	}
	if n := strings.Count(log.String(), "their token is unknown"); n != 1 || strings.Contains(log.String(), "wrong") {
		t.Errorf("refusals are logged %d times, once a minute is enough, and without a token:\n%s", n, &log)
	}
	if resp, _ := ask(t, s, "GET", "/x", "a body", "Authorization: Bearer "+annsToken); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("GET with a body: %d", resp.StatusCode)
	}
	if resp, _ := ask(t, s, "POST", "/x", strings.Repeat("x", maxBodyBytes+1), "Authorization: Bearer "+annsToken); resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a body that is too long: %d", resp.StatusCode)
	}
	open := usersServer(t, io.Discard, nil)
	if _, body := ask(t, open, "GET", "/x", ""); body != "anonymous viewer" {
		t.Errorf("without tokens: %q", body)
	}
}

// A guess is logged also where the answer leads a browser to the login page.
func TestGuessByPageIsLogged(t *testing.T) {
	users := annAndBob(t)
	var log bytes.Buffer
	s := usersServer(t, &log, func() Users { return users })
	if resp, _ := ask(t, s, "GET", "/x", "", "Accept: text/html"); resp.StatusCode != http.StatusSeeOther || log.Len() > 0 {
		t.Errorf("without a token: %d, log %s", resp.StatusCode, &log)
	}
	if resp, _ := ask(t, s, "GET", "/x", "", "Accept: text/html", "Authorization: Bearer guess"); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("a guess: %d", resp.StatusCode)
	}
	if n := strings.Count(log.String(), "their token is unknown"); n != 1 || strings.Contains(log.String(), "guess") {
		t.Errorf("logged %d times: %s", n, &log)
	}
}

// TestLogin logs a browser in and out. The cookie is out of reach for scripts, and the page leads to no other site.
func TestLogin(t *testing.T) {
	users := annAndBob(t)
	var log bytes.Buffer
	s := usersServer(t, &log, func() Users { return users })
	form := "Content-Type: application/x-www-form-urlencoded"
	if resp, body := ask(t, s, "GET", "/login?next=/jobs", ""); resp.StatusCode != 200 || !strings.Contains(body, `value="/jobs"`) || !strings.Contains(body, "<h1>cronclave <span>shop &lt;1&gt;</span></h1>") {
		t.Errorf("the page: %d %s", resp.StatusCode, body)
	}
	if resp, body := ask(t, s, "POST", "/login", "token=wrong", form); resp.StatusCode != http.StatusUnauthorized || len(resp.Cookies()) > 0 || !strings.Contains(body, "No user has this token") {
		t.Errorf("a wrong token: %d %s", resp.StatusCode, body)
	}
	if !strings.Contains(log.String(), "their token is unknown") {
		t.Errorf("a login that fails is not logged: %s", &log)
	}
	for next, want := range map[string]string{"/jobs?x=1": "/jobs?x=1", "//evil.example": "/", "https://evil.example": "/", `/\evil.example`: "/", "/\t/evil.example": "/", "/\x7f": "/", "": "/"} {
		resp, _ := ask(t, s, "POST", "/login", url.Values{"token": {annsToken}, "next": {next}}.Encode(), form)
		if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != want {
			t.Errorf("next %q: %d to %q", next, resp.StatusCode, resp.Header.Get("Location"))
		}
		if c := resp.Cookies(); len(c) != 1 || strings.Contains(c[0].Value, annsToken) || !c[0].HttpOnly || c[0].SameSite != http.SameSiteLaxMode || c[0].Path != "/" {
			t.Errorf("cookies %v", c)
		}
	}
	resp, _ := ask(t, s, "POST", "/login", url.Values{"token": {annsToken}}.Encode(), form)
	if _, body := ask(t, s, "GET", "/x", "", "Cookie: cronclave="+resp.Cookies()[0].Value); body != "ann operator" {
		t.Errorf("logged in as %q", body)
	}
	if resp, _ := ask(t, s, "POST", "/login", "token=", form); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("an empty token: %d", resp.StatusCode)
	}
	if resp, _ := ask(t, s, "POST", "/logout", ""); len(resp.Cookies()) != 1 || resp.Cookies()[0].MaxAge >= 0 {
		t.Errorf("after logout: %v", resp.Cookies())
	}
	_, _ = ask(t, s, "GET", "/x", "", "Authorization: Bearer wrong")
	if n := strings.Count(log.String(), "their token is unknown: requests=1 address=127.0.0.1"); n != 1 || strings.Contains(log.String(), "wrong") {
		t.Errorf("refusals are logged %d times, once a minute is enough, and without a token:\n%s", n, &log)
	}
}

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

// FuzzLogin sends any form and any cookie: none makes the server fail, leads to another site, or lets a client in without a token.
func FuzzLogin(f *testing.F) {
	users, err := ParseUsers("ann:operator:" + hashOf(annsToken))
	if err != nil {
		f.Fatal(err)
	}
	var log bytes.Buffer
	reached := false
	inner := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true })
	config := Config{Listen: "127.0.0.1:0", Users: func() Users { return users }, Log: hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Error})}
	form, good := "application/x-www-form-urlencoded", users[0].signedSession(strings.Repeat("1e", 32), time.Now().Add(hour))
	for _, body := range []string{"", "token=" + annsToken, "token=" + annsToken + "&next=//evil.example", "token=" + annsToken + "&next=/%7f", "token=x&next=%2F%5Cevil", "token=%zz", "token=a;b", "next=/jobs?x=1%0d%0aSet-Cookie:x", "token=" + strings.Repeat("x", 5000)} {
		f.Add(form, body, good)
		f.Add("multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"token\"\r\n\r\n"+annsToken+"\r\n--b--", "..")
		f.Add("multipart/form-data", body, "oidc....")
		f.Add("text/plain", body, "YW5u.99999999999999999999.x")
	}
	f.Fuzz(func(t *testing.T, kind, body, cookie string) {
		reached = false
		h := guarded(inner, config) // a fresh handler has no login delay left from earlier inputs
		r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/login", strings.NewReader(body))
		r.Header.Set("Content-Type", kind)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if to := w.Header().Get("Location"); to != "" {
			if u, err := url.Parse(to); err != nil || u.Host != "" || !strings.HasPrefix(to, "/") || strings.ContainsAny(to, "\\\r\n") {
				t.Fatalf("%q leads to %q", body, to)
			}
		}
		page := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/x", nil)
		page.Header.Set("Cookie", "cronclave="+cookie)
		seen := httptest.NewRecorder()
		h.ServeHTTP(seen, page)
		if w.Code >= 500 || seen.Code != http.StatusUnauthorized || reached || log.Len() > 0 {
			t.Fatalf("%q %q: %d; with the cookie %q: %d, and the log has %s", kind, body, w.Code, cookie, seen.Code, &log)
		}
	})
}
