package web

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/web/oidc"
)

// TestPersonSessions has cookies with which a person is let in or not.
func TestPersonSessions(t *testing.T) {
	p := newProvider(t)
	var secret atomic.Value
	secret.Store(clientSecret)
	client := p.client(func() string { return secret.Load().(string) }, localCallback)
	users := annAndBob(t)
	s := signInServer(t, io.Discard, Config{OIDC: client, Users: func() Users { return users }})
	key := client.Key(sessionKey)
	viewer := User{"oidc:vic", RoleViewer}
	good := personSession(key, viewer, time.Now().Add(hour))
	part := strings.Split(good, ".")
	for what, tt := range map[string]struct {
		cookie string
		code   int
	}{
		"good":              {good, 200},
		"another role":      {strings.Join([]string{part[0], part[1], "operator", part[3], part[4]}, "."), 401},
		"another name":      {strings.Join([]string{part[0], "b2lkYzphbm4", part[2], part[3], part[4]}, "."), 401},
		"a later end":       {strings.Join([]string{part[0], part[1], part[2], part[3] + "0", part[4]}, "."), 401},
		"no signature":      {strings.Join(part[:4], ".") + ".", 401},
		"a shorter one":     {strings.Join(part[1:], "."), 401},
		"ended":             {personSession(key, viewer, time.Now().Add(-time.Second)), 401},
		"another key":       {personSession(client.Key(attemptKey), viewer, time.Now().Add(hour)), 401},
		"for too long":      {personSession(key, viewer, time.Now().Add(personSessionLength+2*clockTolerance)), 401},
		"another mapping":   {personSession(otherRoles(p).Key(sessionKey), viewer, time.Now().Add(hour)), 401},
		"a token's":         {session("ann", annsToken, hour)[len("Cookie: cronclave="):], 200},
		"signed by a token": {personSession([]byte(hashOf(annsToken)), User{"ann", RoleOperator}, time.Now().Add(hour)), 401},
	} {
		resp, body := ask(t, s, "GET", "/x", "", "Cookie: cronclave="+tt.cookie)
		if resp.StatusCode != tt.code || tt.code == 200 && what == "good" && body != "oidc:vic viewer" {
			t.Errorf("%s: %d %s", what, resp.StatusCode, body)
		}
	}
	if resp, _ := ask(t, s, "POST", "/x", "", "Cookie: cronclave="+good, "Origin: https://evil.example"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("from another site: %d", resp.StatusCode)
	}
	secret.Store("the-next-secret-of-the-client")
	if resp, _ := ask(t, s, "GET", "/x", "", "Cookie: cronclave="+good); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("after the secret was replaced: %d", resp.StatusCode)
	}
}

// otherRoles is a provider as a replica knows it that makes other people operators.
func otherRoles(p *provider) *oidc.Provider {
	client, err := oidc.New(oidc.Config{Issuer: p.URL, ClientID: clientID, RedirectURL: localCallback, Secret: theSecret, NameClaim: "email", RoleClaim: "groups",
		Roles: []oidc.Role{{Name: string(RoleOperator), Values: []string{"staff"}}}})
	if err != nil {
		p.t.Fatal(err)
	}
	return client
}

// TestRefusalEndsTheSession: a person that the provider has signed in anew, and that has no role any more, is out at once.
func TestRefusalEndsTheSession(t *testing.T) {
	p := newProvider(t)
	s := signInServer(t, io.Discard, Config{OIDC: p.client(theSecret, localCallback)})
	v := newVisitor(t)
	if v.signIn(s, p); v.cookies["cronclave"] == "" {
		t.Fatal("no session")
	}
	p.with(func() { p.claims["groups"] = "sales" })
	if resp, _ := v.signIn(s, p); resp.StatusCode != http.StatusForbidden || len(v.cookies) != 0 {
		t.Errorf("refused: %d, cookies %v", resp.StatusCode, v.cookies)
	}
}

// TestSessionIsRenewed: a browser whose session has ended is led through the provider without a click. A script of the page is not.
func TestSessionIsRenewed(t *testing.T) {
	p := newProvider(t)
	client := p.client(theSecret, localCallback)
	s := signInServer(t, io.Discard, Config{OIDC: client})
	over := "Cookie: cronclave=" + personSession(client.Key(sessionKey), User{"oidc:ann", RoleOperator}, time.Now().Add(-time.Second))
	for _, tt := range []struct {
		method, path string
		headers      []string
		code         int
		want         string
	}{
		{"GET", "/jobs", []string{over, "Accept: text/html"}, 303, "/login/oidc?next=%2Fjobs"},
		{"GET", "/jobs", []string{over, "Accept: text/html", "Sec-Fetch-Mode: navigate"}, 303, "/login/oidc?next=%2Fjobs"},
		{"GET", "/jobs", []string{over, "Accept: text/html", "Sec-Fetch-Mode: cors"}, 303, "/login?next=%2Fjobs"},
		{"GET", "/jobs", []string{over + "; cronclave-sign-in-3=x", "Accept: text/html"}, 303, "/login?next=%2Fjobs"}, // it has not come back from the provider
		{"GET", "/jobs", []string{over + "x", "Accept: text/html"}, 303, "/login?next=%2Fjobs"},
		{"POST", "/pause", []string{over, "Accept: text/html", "Sec-Fetch-Mode: navigate"}, 401, "the session has ended"},
		{"GET", "/api/v1/status", []string{over, "Accept: text/html"}, 401, "the session has ended"},
		{"GET", "/metrics", nil, 401, "sign in at /login; for programs [server] needs a token_file"},
		{"GET", "/metrics", []string{"Authorization: Bearer " + clientSecret}, 401, "sign in at /login"},
		{"POST", "/login", []string{"Content-Type: application/x-www-form-urlencoded"}, 401, "sign in at /login"},
		{"POST", "/login/oidc", nil, 401, "sign in at /login"},
		{"GET", "/login/oidc/other", nil, 401, "sign in at /login"},
		{"GET", "/healthz", nil, 200, "ok"},
	} {
		resp, body := ask(t, s, tt.method, tt.path, "", tt.headers...)
		if resp.StatusCode != tt.code || !strings.Contains(resp.Header.Get("Location")+body, tt.want) {
			t.Errorf("%s %s with %q: %d to %s %s", tt.method, tt.path, tt.headers, resp.StatusCode, resp.Header.Get("Location"), body)
		}
	}
	v := newVisitor(t)
	if v.signIn(s, p); v.cookies["cronclave"] == "" {
		t.Fatal("no session")
	}
	_, until := personOf(client.Key(sessionKey), v.cookies["cronclave"], time.Now().Add(personSessionLength-time.Minute))
	if _, later := personOf(client.Key(sessionKey), v.cookies["cronclave"], time.Now().Add(personSessionLength+time.Second)); until != known || later != ended {
		t.Errorf("within the hour %v, after it %v", until, later)
	}
}

// TestViewersOfTheProviderMayNotAct: the role is a part of the session.
func TestViewersOfTheProviderMayNotAct(t *testing.T) {
	p := newProvider(t)
	for group, may := range map[string]bool{"sre": true, "staff": false} {
		var user User
		p.with(func() { p.claims["groups"] = group })
		s := httptest.NewServer(guarded(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { user = UserOf(r.Context()) }),
			Config{Listen: "127.0.0.1:0", OIDC: p.client(theSecret, localCallback), Log: hclog.NewNullLogger()}))
		defer s.Close()
		s.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		v := newVisitor(t)
		v.signIn(s, p)
		if v.get(s, "/x"); user.Name != "oidc:ann@example.com" || user.MayAct() != may {
			t.Errorf("%s: %+v may act: %t", group, user, user.MayAct())
		}
	}
}
