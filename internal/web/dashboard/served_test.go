package dashboard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/internal/web"
	"github.com/cronclave/cronclave/internal/web/api"
	"github.com/cronclave/cronclave/internal/web/oidc"
)

const (
	annsToken = "ann-has-a-token-of-her-own" // an operator
	bobsToken = "bob-has-a-token-of-his-own" // a viewer
)

// served is a site with its API behind the checks of every request, as a replica serves it.
type served struct {
	*site
	url string
}

// serve serves a site until the test ends.
func (s *site) serve(provider *oidc.Provider) served {
	s.t.Helper()
	line := func(name, role, token string) string {
		sum := sha256.Sum256([]byte(token))
		return name + ":" + role + ":" + hex.EncodeToString(sum[:]) + "\n"
	}
	users, err := web.ParseUsers(line("ann", "operator", annsToken) + line("bob", "viewer", bobsToken))
	s.must(err)
	pages, err := New(Config{Operator: s.operator, BasePath: s.base, Actor: func(r *http.Request) (string, bool) { u := web.UserOf(r.Context()); return u.Name, u.MayAct() }})
	s.must(err)
	programs, err := api.New(api.Config{Operator: s.operator, Version: "v1", Log: hclog.NewNullLogger(), Stopping: web.Stopping,
		User: func(ctx context.Context) (string, bool) { u := web.UserOf(ctx); return u.Name, u.MayAct() }})
	s.must(err)
	server, err := web.New(web.Config{Listen: "127.0.0.1:0", Users: func() web.Users { return users }, SessionSecret: s.journal.SessionSecret, OIDC: provider, Ended: s.journal, BasePath: s.base,
		Metrics: http.NotFoundHandler(), API: programs, Pages: pages})
	s.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		s.must(<-ended)
	})
	return served{s, server.URL()}
}

// send sends a request with headers, each "Name: value".
func (s served) send(method, path, body string, headers ...string) (*http.Response, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	s.must(err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if req.Header.Set(name, value); name == "Host" {
			req.Host = value
		}
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	s.must(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	s.must(err)
	return resp, string(text)
}

// logIn returns the header with the session of a user.
func (s served) logIn(token string) string {
	s.t.Helper()
	resp, body := s.send(http.MethodPost, "/login", "token="+token, "Content-Type: application/x-www-form-urlencoded")
	if len(resp.Cookies()) != 1 {
		s.t.Fatalf("login: %d %s", resp.StatusCode, body)
	}
	return "Cookie: cronclave=" + resp.Cookies()[0].Value
}

// route is one that acts, with a body that it accepts.
type route struct{ path, kind, body string }

// actingRoutes are all routes that act, of the pages and of the API, for a job that is not enabled.
func (s served) actingRoutes() (routes []route) {
	s.t.Helper()
	for pattern := range (&handler{}).actionRoutes() {
		routes = append(routes, route{strings.TrimPrefix(pattern, "POST "), "application/x-www-form-urlencoded", "job=off&run=none"})
	}
	_, text := s.send(http.MethodGet, "/api/v1/openapi.json", "", "Authorization: Bearer "+bobsToken)
	var described struct {
		Paths map[string]map[string]any
	}
	s.must(json.Unmarshal([]byte(text), &described))
	for path, operations := range described.Paths {
		for method := range operations {
			if method == "post" {
				routes = append(routes, route{path, "application/json", map[bool]string{true: `{}`, false: `{"jobs":["off"]}`}[strings.Contains(path, "{job}")]})
			} else if method != "get" {
				s.t.Errorf("%s %s: the test knows no such method", method, path)
			}
		}
	}
	for i := range routes {
		routes[i].path = strings.ReplaceAll(routes[i].path, "{job}", "off")
	}
	if len(routes) < 10 {
		s.t.Errorf("%d routes act: the test looks in the wrong place", len(routes))
	}
	return routes
}

// TestEveryActingRouteRefuses whatever is not an operator's own wish, by a token and by a session, and does nothing then.
func TestEveryActingRouteRefuses(t *testing.T) {
	t.Parallel()
	site := newSite(t, "")
	site.fill()
	s := site.serve(nil)
	ann, bob := s.logIn(annsToken), s.logIn(bobsToken)
	for _, r := range s.actingRoutes() {
		for _, tt := range []struct {
			headers []string
			code    int
		}{
			{nil, 401},
			{[]string{"Accept: text/html"}, 401},
			{[]string{"Authorization: Bearer of-somebody-else-unknown"}, 401},
			{[]string{ann + "x"}, 401},
			{[]string{"Authorization: Bearer " + bobsToken}, 403},
			{[]string{bob, "Sec-Fetch-Site: same-origin"}, 403},
			{[]string{ann, "Origin: https://evil.example"}, 403},
			{[]string{ann, "Sec-Fetch-Site: cross-site"}, 403},
			{[]string{ann, "Sec-Fetch-Site: same-site"}, 403},
			{[]string{"Authorization: Bearer " + annsToken, "Origin: null"}, 403},
			{[]string{ann, "Host: evil.example"}, 421},
			{[]string{"Authorization: Bearer " + annsToken, "Host: evil.example:7377"}, 421},
		} {
			if resp, body := s.send(http.MethodPost, r.path, r.body, append(tt.headers, "Content-Type: "+r.kind)...); resp.StatusCode != tt.code {
				t.Errorf("%s with %q: %d, want %d: %s", r.path, tt.headers, resp.StatusCode, tt.code, body)
			}
		}
	}
	acts, _, err := s.operator.Acts(t.Context(), 100)
	requests, failed := s.journal.Requests(t.Context())
	if len(acts)+len(requests) > 0 || err != nil || failed != nil {
		t.Errorf("acts %+v %v, requests %+v %v", acts, err, requests, failed)
	}
	for _, r := range s.actingRoutes() { // the same requests of an operator arrive
		if resp, body := s.send(http.MethodPost, r.path, r.body, ann, "Content-Type: "+r.kind); slices.Contains([]int{401, 403, 421}, resp.StatusCode) || resp.StatusCode >= 500 {
			t.Errorf("%s by an operator: %d %s", r.path, resp.StatusCode, body)
		}
	}
	if acts, _, err := s.operator.Acts(t.Context(), 100); len(acts) == 0 || err != nil {
		t.Errorf("acts of an operator: %+v %v", acts, err)
	}
}

// TestPagesNeedAUser: each page leads to the login, which knows where to go then.
func TestPagesNeedAUser(t *testing.T) {
	t.Parallel()
	s := newSite(t, "").serve(nil)
	for pattern := range (&handler{}).viewRoutes() {
		path := strings.NewReplacer("GET ", "", "{$}", "", "{job}", "report", "{id}", "run-0").Replace(pattern)
		if resp, _ := s.send(http.MethodGet, path, "", "Accept: text/html"); resp.StatusCode != http.StatusSeeOther || !strings.HasPrefix(resp.Header.Get("Location"), "/login?next=%2F") {
			t.Errorf("%s: %d %v", path, resp.StatusCode, resp.Header)
		}
		if resp, _ := s.send(http.MethodGet, path, ""); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s for a program: %d", path, resp.StatusCode)
		}
	}
}

// acting is a pattern of a route that may act.
var acting = regexp.MustCompile(`"((?:POST|PUT|PATCH|DELETE) [^"]*)"`)

// TestActingRoutesAreListed: no file of this package has a route that acts beside those that the tests enumerate, and each pattern has a method.
func TestActingRoutesAreListed(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range acting.FindAllStringSubmatch(string(text), -1) {
			found = append(found, m[1])
		}
		if m := regexp.MustCompile(`mux\.Handle(?:Func)?\("[^G]`).Find(text); m != nil {
			t.Errorf("%s has %s: a route that is not of the tables must be a GET", file, m)
		}
	}
	slices.Sort(found)
	if want := slices.Sorted(maps.Keys((&handler{}).actionRoutes())); !slices.Equal(found, want) {
		t.Errorf("routes %q, want %q", found, want)
	}
}

// TestLoginPageIsSound holds the rules of all pages for that of the login, with each way to log in, and after a fault.
func TestLoginPageIsSound(t *testing.T) {
	t.Parallel()
	provider, err := oidc.New(oidc.Config{Issuer: "https://id.invalid", ClientID: "cron", RedirectURL: "https://cron.example/login/oidc/callback", Secret: func() string { return "the-secret-of-the-client" }})
	if err != nil {
		t.Fatal(err)
	}
	site := newSite(t, "")
	for name, tt := range map[string]struct {
		server  served
		buttons int
	}{"token": {site.serve(nil), 1}, "oidc": {site.serve(provider), 2}} {
		for path, send := range map[string]func() (*http.Response, string){
			"the page": func() (*http.Response, string) {
				return tt.server.send(http.MethodGet, "/login?next=/jobs/%3Cb%3E", "")
			},
			"after a fault": func() (*http.Response, string) {
				return tt.server.send(http.MethodPost, "/login", "token=wrong", "Content-Type: application/x-www-form-urlencoded")
			},
		} {
			resp, body := send()
			nodes, err := parse(body)
			if err != nil {
				t.Errorf("%s, %s: not well-formed: %v\n%s", name, path, err, body)
				continue
			}
			for _, fault := range pageFaults(nodes) {
				t.Errorf("%s, %s: %s", name, path, fault)
			}
			if n := len(withName(nodes, "button", "a")); n != tt.buttons {
				t.Errorf("%s, %s: %d buttons and links, want %d", name, path, n, tt.buttons)
			}
			if policy := resp.Header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'; style-src 'self'; form-action 'self'") {
				t.Errorf("%s, %s: policy %s", name, path, policy)
			}
		}
	}
}

// TestLoginContrast computes the contrast of the login page in both themes.
func TestLoginContrast(t *testing.T) {
	t.Parallel()
	_, css := newSite(t, "").serve(nil).send(http.MethodGet, "/login.css", "")
	wantContrast(t, css, [][2]string{{"text", "bg"}, {"bad", "bg"}, {"text", "surface"}, {"on-fill", "accent"}})
}

// TestLogOutEndsASessionEverywhere: a copy of its cookie is refused by the replica at once, and by others within seconds. Another session of the user stays.
func TestLogOutEndsASessionEverywhere(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	site := newSite(t, "")
	here, there := site.serve(nil), site.serve(nil)
	session, other := here.logIn(annsToken), here.logIn(annsToken)
	code := func(s served, cookie string) int {
		resp, _ := s.send(http.MethodGet, "/cluster", "", cookie)
		return resp.StatusCode
	}
	if code(here, session) != http.StatusOK || code(there, session) != http.StatusOK {
		t.Fatal("the session does not count")
	}
	if resp, _ := here.send(http.MethodPost, "/logout", "", session); resp.StatusCode != http.StatusSeeOther {
		t.Fatalf("log out: %d", resp.StatusCode)
	}
	if got := code(here, session); got != http.StatusUnauthorized {
		t.Errorf("a copy of the session here: %d", got)
	}
	site.await("the end of the session on the other replica", func() bool { return code(there, session) == http.StatusUnauthorized })
	if code(here, other) != http.StatusOK || code(there, other) != http.StatusOK {
		t.Error("another session of the user has ended")
	}
	if ended, err := site.journal.EndedSessions(t.Context()); err != nil || len(ended) != 1 || strings.Contains(fmt.Sprint(ended), strings.TrimPrefix(session, "Cookie: cronclave=")) {
		t.Errorf("the list has %v, %v", ended, err)
	}
}

// TestLogOutOfAnotherUser ends no session: the page was opened before another user logged in in the same browser.
func TestLogOutOfAnotherUser(t *testing.T) {
	t.Parallel()
	site := newSite(t, "")
	s := site.serve(nil)
	site.name = "ann"
	form, bob := site.form("/cluster", "/logout").Encode(), s.logIn(bobsToken)
	logOut := func(session string) (*http.Response, string) {
		return s.send(http.MethodPost, "/logout", form, session, "Content-Type: application/x-www-form-urlencoded")
	}
	if resp, body := logOut(bob); resp.StatusCode != http.StatusConflict || len(resp.Cookies()) > 0 || !strings.Contains(body, "this page was opened by ann, and you are logged in as bob") {
		t.Errorf("%d %v %s", resp.StatusCode, resp.Cookies(), body)
	}
	if resp, _ := s.send(http.MethodGet, "/cluster", "", bob); resp.StatusCode != http.StatusOK {
		t.Errorf("the session of bob: %d", resp.StatusCode)
	}
	for name, session := range map[string]string{"her own session": s.logIn(annsToken), "no session": "Cookie: cronclave=ended"} {
		if resp, body := logOut(session); resp.StatusCode != http.StatusSeeOther || len(resp.Cookies()) != 1 {
			t.Errorf("%s: %d %s", name, resp.StatusCode, body)
		}
	}
}
