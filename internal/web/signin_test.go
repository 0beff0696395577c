package web

import (
	"bytes"
	"crypto/rand"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/hashicorp/go-hclog"
)

const localCallback = "http://127.0.0.1" + callbackPath

// signInServer is a replica at which people of a provider sign in. Each path answers with the user.
func signInServer(t *testing.T, log io.Writer, cfg Config) *httptest.Server {
	t.Helper()
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, UserOf(r.Context()).Name+" "+string(UserOf(r.Context()).Role))
	})
	cfg.Listen, cfg.Log = "127.0.0.1:0", hclog.New(&hclog.LoggerOptions{Output: log})
	s := httptest.NewServer(guarded(echo, cfg))
	t.Cleanup(s.Close)
	s.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return s
}

func theSecret() string { return clientSecret }

// TestSignIn signs a person in. The session is good on another replica, the cookie of the attempt is gone, and nothing secret is in the log.
func TestSignIn(t *testing.T) {
	p := newProvider(t)
	var log bytes.Buffer
	s := signInServer(t, &log, Config{OIDC: p.client(theSecret, localCallback)})
	v := newVisitor(t)
	resp, _ := v.get(s, "/jobs?x=1")
	if to := resp.Header.Get("Location"); resp.StatusCode != http.StatusSeeOther || to != "/login?next="+url.QueryEscape("/jobs?x=1") {
		t.Fatalf("without a session: %d to %s", resp.StatusCode, to)
	}
	host := strings.TrimPrefix(p.URL, "http://")
	if _, page := v.get(s, resp.Header.Get("Location")); !strings.Contains(page, `href="/login/oidc?next=%2fjobs%3fx%3d1">Sign in with `+host+"<") || strings.Contains(page, "Token") {
		t.Errorf("the page: %s", page)
	}
	resp, body := v.signIn(s, p)
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/jobs?x=1" || resp.Header.Get("Cache-Control") != "no-store" || resp.Header.Get("Referrer-Policy") != "no-referrer" {
		t.Fatalf("back from the provider: %d %v %s", resp.StatusCode, resp.Header, body)
	}
	if len(v.cookies) != 1 || v.cookies["cronclave"] == "" {
		t.Errorf("cookies %v", v.cookies)
	}
	another := signInServer(t, io.Discard, Config{OIDC: p.client(theSecret, localCallback)})
	for _, replica := range []*httptest.Server{s, another} {
		if _, body := v.get(replica, "/x"); body != "oidc:ann@example.com operator" {
			t.Errorf("signed in as %q", body)
		}
	}
	if !strings.Contains(log.String(), "user signed in: user=oidc:ann@example.com role=operator subject=subject-7") {
		t.Errorf("log %s", &log)
	}
	for _, secret := range []string{clientSecret, "code-", "an-access-token", v.cookies["cronclave"]} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log has %q: %s", secret, &log)
		}
	}
	p.with(func() { p.claims["groups"] = "staff" })
	if v.signIn(s, p); len(v.cookies) != 1 {
		t.Errorf("cookies %v", v.cookies)
	}
	if _, body := v.get(s, "/x"); body != "oidc:ann@example.com viewer" {
		t.Errorf("signed in as %q", body)
	}
	if resp, _ := ask(t, s, "POST", "/logout", ""); len(resp.Cookies()) != 1 || resp.Cookies()[0].MaxAge >= 0 || resp.Header.Get("Location") != "/login" {
		t.Errorf("after logout: %v", resp.Cookies())
	}
}

// TestSignInIsRefused has ID tokens and answers of the provider with which no person may be let in.
func TestSignInIsRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		wrong func(*provider)
		code  int
		page  string
	}{
		"nonce":      {func(p *provider) { p.claims["nonce"] = "of another" }, 401, "did not complete the sign-in"},
		"no nonce":   {func(p *provider) { p.claims["nonce"] = nil }, 401, "did not complete the sign-in"},
		"audience":   {func(p *provider) { p.claims["aud"] = "another" }, 401, "did not complete the sign-in"},
		"odd party":  {func(p *provider) { p.claims["azp"] = []string{clientID} }, 401, "did not complete the sign-in"},
		"null party": {func(p *provider) { p.claims["aud"], p.claims["azp"] = []string{clientID, "another"}, nil }, 401, "did not complete the sign-in"},
		"no client":  {func(p *provider) { p.claims["azp"] = "" }, 401, "did not complete the sign-in"},
		"audiences":  {func(p *provider) { p.claims["aud"] = []string{clientID, "another"} }, 401, "did not complete the sign-in"},
		"party":      {func(p *provider) { p.claims["aud"], p.claims["azp"] = []string{clientID, "another"}, "another" }, 401, "did not complete the sign-in"},
		"expired":    {func(p *provider) { p.claims["exp"] = time.Now().Add(-time.Second).Unix() }, 401, "did not complete the sign-in"},
		"no expiry":  {func(p *provider) { p.claims["exp"] = nil }, 401, "did not complete the sign-in"},
		"issuer":     {func(p *provider) { p.claims["iss"] = "https://evil.example" }, 401, "did not complete the sign-in"},
		"key":        {func(p *provider) { p.signer = rsaKeys()[2] }, 401, "did not complete the sign-in"},
		"unknown id": {func(p *provider) { p.signer, p.kid = rsaKeys()[2], "other" }, 401, "did not complete the sign-in"},
		"none":       {func(p *provider) { p.forge = unsigned }, 401, "did not complete the sign-in"},
		"HS256": {func(p *provider) {
			p.signer = []byte(clientSecret + "-that-is-long-enough")
			p.public = []jose.JSONWebKey{{Key: p.signer, KeyID: p.kid}}
		}, 401, "did not complete the sign-in"},
		"HS256 with the published key": {func(p *provider) {
			p.signer = rsaKeys()[0].N.Bytes()
		}, 401, "did not complete the sign-in"},
		"no role":       {func(p *provider) { p.claims["groups"] = []string{"sales"} }, 403, "no value of your claim &#34;groups&#34;"},
		"no groups":     {func(p *provider) { p.claims["groups"] = nil }, 403, "no claim &#34;groups&#34;"},
		"no name":       {func(p *provider) { p.claims["email"] = nil }, 403, "no claim &#34;email&#34;"},
		"unverified":    {func(p *provider) { p.claims["email_verified"] = false }, 403, "claim &#34;email_verified&#34;"},
		"control":       {func(p *provider) { p.claims["email"] = "ann\x1b[2J" }, 403, "cannot be shown"},
		"huge token":    {func(p *provider) { p.answer["/token"] = huge }, 503, "more than 512 KiB"},
		"huge keys":     {func(p *provider) { p.answer["/keys"] = huge }, 503, "more than 512 KiB"},
		"no keys":       {func(p *provider) { p.answer["/keys"] = http.NotFound }, 503, "the status 404"},
		"token fails":   {func(p *provider) { p.answer["/token"] = broken }, 503, "the status 500"},
		"other secret":  {func(p *provider) { p.answer["/token"] = invalidClient }, 503, "does not accept the client_id and client secret"},
		"code is used":  {func(p *provider) { clear(p.codes) }, 401, "did not complete the sign-in"},
		"elsewhere":     {func(p *provider) { p.answer["/token"] = elsewhere }, 503, "the status 307"},
		"token is text": {func(p *provider) { p.forge = func(string) string { return "x" } }, 401, "did not complete the sign-in"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProvider(t)
			var log bytes.Buffer
			s := signInServer(t, &log, Config{OIDC: p.client(theSecret, localCallback)})
			v := newVisitor(t)
			back := v.begin(s, p, "/jobs")
			p.with(func() { tt.wrong(p) })
			resp, page := v.get(s, back)
			if resp.StatusCode != tt.code || !strings.Contains(page, tt.page) || len(v.cookies) != map[bool]int{true: 1}[tt.code == 503] { // after which the callback may be loaded again
				t.Errorf("%d, cookies %v: %s", resp.StatusCode, v.cookies, page)
			}
			if !strings.Contains(page, "/login/oidc?next=%2fjobs") || !strings.Contains(resp.Header.Get("Content-Security-Policy"), "default-src 'none'") || resp.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%v %s", resp.Header, page)
			}
			if n := strings.Count(log.String(), "[WARN]"); n != 1 {
				t.Errorf("%d warnings: %s", n, &log)
			}
			for _, secret := range []string{clientSecret, "code-", "sales", "an-access-token"} {
				if strings.Contains(log.String(), secret) || strings.Contains(page, secret) {
					t.Errorf("%q is shown: %s\n%s", secret, page, &log)
				}
			}
			if strings.Contains(page, "subject-7") || strings.Contains(log.String(), "subject=subject-7") != (tt.code == 403) {
				t.Errorf("the account: %s\n%s", page, &log)
			}
			if resp, _ := v.get(s, "/x"); resp.StatusCode != http.StatusSeeOther {
				t.Errorf("let in: %d", resp.StatusCode)
			}
		})
	}
}

func huge(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) }
func broken(w http.ResponseWriter, r *http.Request) {
	http.Error(w, r.FormValue("code"), http.StatusInternalServerError)
}
func invalidClient(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusUnauthorized)
	_, _ = io.WriteString(w, `{"error":"invalid_client"}`)
}
func elsewhere(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, "https://evil.example/", http.StatusTemporaryRedirect)
}

// TestCallbacks has callbacks that no browser with a sign-in under way sends. None of them reaches the provider.
func TestCallbacks(t *testing.T) {
	p := newProvider(t)
	s := signInServer(t, io.Discard, Config{OIDC: p.client(theSecret, localCallback)})
	key := p.client(theSecret, localCallback).Key(signInKey)
	late := pendingSignIn{"0" + rand.Text(), time.Now().Unix(), "/"}
	forged := pendingSignIn{"0" + rand.Text(), time.Now().Add(signInTimeout).Unix(), "/"}
	name := func(a pendingSignIn) string { return "cronclave-sign-in-" + a.slotName() }
	for what, tt := range map[string]func(v *visitor, back string) string{
		"another state": func(_ *visitor, back string) string { return back + "x" },
		"no state":      func(_ *visitor, back string) string { return strings.Replace(back, "state=", "other=", 1) },
		"no cookie":     func(v *visitor, back string) string { clear(v.cookies); return back },
		"another browser's": func(v *visitor, back string) string {
			other := newVisitor(t)
			other.begin(s, p, "/")
			for name := range v.cookies { // one
				for _, cookie := range other.cookies {
					v.cookies[name] = cookie
				}
			}
			return back
		},
		"too late": func(v *visitor, _ string) string {
			v.cookies[name(late)] = late.signedCookie(key)
			return callbackPath + "?code=x&state=" + late.deriveSecrets(key).State
		},
		"forged": func(v *visitor, _ string) string {
			v.cookies[name(forged)] = forged.signedCookie([]byte("another key"))
			return callbackPath + "?code=x&state=" + forged.deriveSecrets([]byte("another key")).State
		},
		"prolonged": func(v *visitor, _ string) string {
			v.cookies[name(late)] = strings.Replace(late.signedCookie(key), ".1", ".2", 1)
			return callbackPath + "?code=x&state=" + late.deriveSecrets(key).State
		},
	} {
		v := newVisitor(t)
		back := tt(v, v.begin(s, p, "/"))
		asked := len(p.requests())
		if resp, page := v.get(s, back); resp.StatusCode != http.StatusBadRequest || !strings.Contains(page, "began in another browser") || v.cookies["cronclave"] != "" {
			t.Errorf("%s: %d %s", what, resp.StatusCode, page)
		}
		if now := p.requests(); len(now) != asked {
			t.Errorf("%s: the provider was asked for %q", what, now[asked:])
		}
	}
}

// TestReplayedCallback sends a callback again. To the replica that has signed the person in, the sign-in has ended; at another one the provider refuses the code.
func TestReplayedCallback(t *testing.T) {
	p := newProvider(t)
	s := signInServer(t, io.Discard, Config{OIDC: p.client(theSecret, localCallback)})
	v, thief := newVisitor(t), newVisitor(t)
	back := v.begin(s, p, "/jobs")
	for name, value := range v.cookies {
		thief.cookies[name] = value
	}
	if resp, _ := v.get(s, back); resp.StatusCode != http.StatusSeeOther {
		t.Fatal(resp.StatusCode)
	}
	if resp, _ := thief.get(s, back); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("with the cookie: %d", resp.StatusCode)
	}
	another := signInServer(t, io.Discard, Config{OIDC: p.client(theSecret, localCallback)})
	if resp, _ := thief.get(another, back); resp.StatusCode != http.StatusUnauthorized || len(thief.cookies) != 0 {
		t.Errorf("with the cookie, at another replica: %d", resp.StatusCode)
	}
	if resp, _ := newVisitor(t).get(s, back); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("without: %d", resp.StatusCode)
	}
	if resp, _ := v.get(s, back); resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/" {
		t.Errorf("of the person that is signed in: %d", resp.StatusCode)
	}
}

// TestProviderRefuses: the name of the provider's error goes to the log, and its text nowhere.
func TestProviderRefuses(t *testing.T) {
	p := newProvider(t)
	var log bytes.Buffer
	s := signInServer(t, &log, Config{OIDC: p.client(theSecret, localCallback)})
	v := newVisitor(t)
	back, err := url.Parse(v.begin(s, p, "/"))
	if err != nil {
		t.Fatal(err)
	}
	resp, page := v.get(s, callbackPath+"?error=access_denied&error_description=%3Cb%3E&state="+url.QueryEscape(back.Query().Get("state")))
	if resp.StatusCode != http.StatusUnauthorized || strings.Contains(page, "&lt;b") || strings.Contains(page, "<b>") || !strings.Contains(log.String(), "access_denied") || strings.Contains(log.String(), "<b>") {
		t.Errorf("%d %s\n%s", resp.StatusCode, page, &log)
	}
}

// TestKeyRotation: the provider's new key counts at once, and one that it has withdrawn no more.
func TestKeyRotation(t *testing.T) {
	p := newProvider(t)
	s := signInServer(t, io.Discard, Config{OIDC: p.client(theSecret, localCallback)})
	for _, kid := range []string{"first", "second"} {
		p.rotate(kid)
		resp, page := newVisitor(t).signIn(s, p)
		for tries := 1; resp.StatusCode != http.StatusSeeOther && tries < 100; tries++ { // go-oidc shares a reading of keys for a moment after its end
			resp, page = newVisitor(t).signIn(s, p)
		}
		if resp.StatusCode != http.StatusSeeOther {
			t.Errorf("%s: %d %s", kid, resp.StatusCode, page)
		}
	}
	p.with(func() { p.signer, p.kid = rsaKeys()[0], "first" })
	if resp, _ := newVisitor(t).signIn(s, p); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("with the withdrawn key: %d", resp.StatusCode)
	}
	if n := len(slices.DeleteFunc(p.requests(), func(path string) bool { return path != "/.well-known/openid-configuration" })); n != 1 {
		t.Errorf("the discovery document was read %d times", n)
	}
}

// TestProviderIsDown: a replica starts and answers without its provider. Its login names the fault, and tokens go on.
func TestProviderIsDown(t *testing.T) {
	p := newProvider(t)
	p.Close()
	var log bytes.Buffer
	users := annAndBob(t)
	s := signInServer(t, &log, Config{OIDC: p.client(theSecret, localCallback), Users: func() Users { return users }})
	for range 3 {
		resp, page := newVisitor(t).get(s, signInPath+"?next=/jobs")
		if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(page, "it cannot be reached") || !strings.Contains(page, `name="token"`) || !strings.Contains(page, `value="/jobs"`) || len(resp.Cookies()) > 0 {
			t.Errorf("%d %s", resp.StatusCode, page)
		}
	}
	if n := strings.Count(log.String(), "the provider cannot be used"); n != 1 {
		t.Errorf("logged %d times, once a minute is enough: %s", n, &log)
	}
	if _, body := ask(t, s, "GET", "/x", "", "Authorization: Bearer "+annsToken); body != "ann operator" {
		t.Errorf("a token: %s", body)
	}
}

// TestNextIsLocal: after the sign-in no browser is led to another site, and a path that is too long for a cookie becomes the first page.
func TestNextIsLocal(t *testing.T) {
	p := newProvider(t)
	s := signInServer(t, io.Discard, Config{OIDC: p.client(theSecret, localCallback)})
	for next, want := range map[string]string{"/jobs/a?b=c": "/jobs/a?b=c", "//evil.example": "/", "https://evil.example": "/", `/\evil.example`: "/", "": "/", "/" + strings.Repeat("x", maxNext): "/"} {
		v := newVisitor(t)
		if resp, _ := v.get(s, v.begin(s, p, next)); resp.Header.Get("Location") != want {
			t.Errorf("%.40q: led to %.40q", next, resp.Header.Get("Location"))
		}
	}
}
