package web

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/web/oidc"
	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"
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
		"another role":      {strings.Replace(good, part[2], "operator", 1), 401},
		"another name":      {strings.Replace(good, part[1], "b2lkYzphbm4", 1), 401},
		"a later end":       {strings.Replace(good, part[3], part[3]+"0", 1), 401},
		"another id":        {strings.Replace(good, part[4], part[4]+"0", 1), 401},
		"no signature":      {strings.TrimSuffix(good, part[5]), 401},
		"a shorter one":     {strings.Join(part[1:], "."), 401},
		"ended":             {personSession(key, viewer, time.Now().Add(-time.Second)), 401},
		"another key":       {personSession(client.Key(signInKey), viewer, time.Now().Add(hour)), 401},
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

// TestPersonLogsOutOfOneBrowser: two browsers in which a person signed in during the same second have two sessions.
func TestPersonLogsOutOfOneBrowser(t *testing.T) {
	client := newProvider(t).client(theSecret, localCallback)
	s := signInServer(t, io.Discard, Config{OIDC: client})
	cookie := func(until time.Time) string {
		return "Cookie: cronclave=" + personSession(client.Key(sessionKey), User{"oidc:ann", RoleOperator}, until)
	}
	until := time.Now().Add(personSessionLength)
	one, other := cookie(until), cookie(until)
	ask(t, s, "POST", "/logout", "", one)
	for cookie, code := range map[string]int{one: http.StatusUnauthorized, other: http.StatusOK} {
		if resp, _ := ask(t, s, "GET", "/x", "", cookie); resp.StatusCode != code {
			t.Errorf("%s: %d, want %d", cookie, resp.StatusCode, code)
		}
	}
}

// TestLoginAfterLogoutInTheSameSecond: a logout ends neither the next session of the user, nor the session in another browser.
func TestLoginAfterLogoutInTheSameSecond(t *testing.T) {
	inCluster(t, func(c *secretCluster) { // fake time stands still
		replica := c.replica()
		first, other := c.cookie(replica), c.cookie(replica)
		if w := c.send(replica, "POST", "/logout", "", first); w.Code != http.StatusSeeOther {
			t.Fatalf("logout: %d %s", w.Code, w.Body)
		}
		c.wants(replica, "the session that was logged out", first, 401, "no valid token")
		c.wants(replica, "the session of another browser", other, 200, "ann")
		c.wants(replica, "a login after the logout", c.cookie(replica), 200, "ann")
	})
}

// secretCluster is an embedded Redis and the servers of the replicas on it, in fake time.
type secretCluster struct {
	t      *testing.T
	ctx    context.Context
	redis  *embedded.Server
	client *redis.Client
	users  Users
	log    bytes.Buffer
	reads  atomic.Int64 // of the secret
}

func inCluster(t *testing.T, test func(*secretCluster)) {
	synctest.Test(t, func(t *testing.T) {
		s, err := embedded.Start(embedded.Config{DialOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		client := redis.NewClient(&redis.Options{Addr: s.Addr(), Dialer: s.Dial, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1})
		defer client.Close()
		ctx, end := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer end()
		test(&secretCluster{t: t, ctx: ctx, redis: s, client: client, users: annAndBob(t)})
	})
}

// replica starts a server that has read nothing yet.
func (c *secretCluster) replica() http.Handler {
	c.t.Helper()
	j, err := journal.New(journal.Config{Redis: c.client, Namespace: "default"})
	if err != nil {
		c.t.Fatal(err)
	}
	cfg := Config{Listen: "127.0.0.1:0", Users: func() Users { return c.users }, Log: hclog.New(&hclog.LoggerOptions{Output: &c.log, Level: hclog.Debug}),
		SessionSecret: func(ctx context.Context, known string) (string, error) {
			c.reads.Add(1)
			return j.SessionSecret(ctx, known)
		}}
	secret := newSessionSecret(cfg)
	go keepRenewed(c.ctx, func(ctx context.Context) { secret.renewSecret(ctx) }) // until the test ends
	synctest.Wait()
	return protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, UserOf(r.Context()).Name) }), cfg, secret, newEndedSessions(cfg))
}

// send sends a request with headers, each "Name: value".
func (c *secretCluster) send(replica http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://127.0.0.1"+path, strings.NewReader(body))
	if body == "" {
		r = httptest.NewRequest(method, "http://127.0.0.1"+path, nil)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	replica.ServeHTTP(w, r)
	return w
}

func (c *secretCluster) logIn(replica http.Handler) *httptest.ResponseRecorder {
	return c.send(replica, "POST", "/login", url.Values{"token": {annsToken}}.Encode(), "Content-Type: application/x-www-form-urlencoded")
}

// cookie logs ann in at a replica.
func (c *secretCluster) cookie(replica http.Handler) string {
	c.t.Helper()
	w := c.logIn(replica)
	for _, cookie := range w.Result().Cookies() {
		return "Cookie: cronclave=" + cookie.Value
	}
	c.t.Fatalf("login: %d %s", w.Code, w.Body)
	return ""
}

// wants demands the code of an answer to a page, and a text in it.
func (c *secretCluster) wants(replica http.Handler, what, header string, code int, text string) {
	c.t.Helper()
	if w := c.send(replica, "GET", "/api/x", "", header); w.Code != code || !strings.Contains(w.Body.String(), text) {
		c.t.Errorf("%s: %d %s, want %d %s", what, w.Code, w.Body, code, text)
	}
}

// secret is what Redis has.
func (c *secretCluster) secret() string {
	c.t.Helper()
	secret, err := c.client.Get(c.ctx, "cronclave:default:session-secret").Result()
	if err != nil {
		c.t.Fatal(err)
	}
	return secret
}

// TestForgedSessions: neither a reader of the token file alone, nor one of Redis alone, can make a cookie, and none lasts for longer than a login.
func TestForgedSessions(t *testing.T) {
	inCluster(t, func(c *secretCluster) {
		replica := c.replica()
		ann, secret := &c.users[0], c.secret()
		until := func(d time.Duration) string {
			return base64.RawURLEncoding.EncodeToString([]byte("ann")) + "." + strconv.FormatInt(time.Now().Add(d).Unix(), 10) + ".id"
		}
		with := func(key []byte) string { return until(hour) + "." + signText(key, until(hour)) }
		for what, tt := range map[string]struct {
			cookie string
			code   int
		}{
			"a good one":            {ann.signedSession(secret, time.Now().Add(sessionLength)), 200},
			"of a clock ahead":      {ann.signedSession(secret, time.Now().Add(sessionLength+clockTolerance)), 200},
			"for too long":          {ann.signedSession(secret, time.Now().Add(sessionLength+clockTolerance+time.Second)), 401},
			"for ever":              {ann.signedSession(secret, time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)), 401},
			"ended":                 {ann.signedSession(secret, time.Now()), 401},
			"by the hash alone":     {with(ann.hash[:]), 401},
			"by the hash, no text":  {ann.signedSession("", time.Now().Add(hour)), 401},
			"by the secret alone":   {with([]byte(secret)), 401},
			"by no key":             {with(nil), 401},
			"of another secret":     {ann.signedSession(clusterSecret, time.Now().Add(hour)), 401},
			"of another user":       {(&userToken{User{Name: "ann"}, c.users[1].hash}).signedSession(secret, time.Now().Add(hour)), 401},
			"an expiry of nonsense": {"YW5u.x.id." + ann.signSession(secret, "YW5u.x.id"), 401},
		} {
			if w := c.send(replica, "GET", "/x", "", "Cookie: cronclave="+tt.cookie); w.Code != tt.code {
				t.Errorf("%s: %d %s", what, w.Code, w.Body)
			}
		}
		if strings.Contains(c.log.String(), secret) {
			t.Errorf("the log has the secret: %s", &c.log)
		}
	})
}

// TestSessionsOfACluster: each replica accepts the sessions of all others, also after Redis has lost its data.
func TestSessionsOfACluster(t *testing.T) {
	inCluster(t, func(c *secretCluster) {
		first, second := c.replica(), c.replica()
		cookie, secret := c.cookie(first), c.secret()
		c.wants(second, "another replica", cookie, 200, "ann")
		c.client.FlushAll(c.ctx)
		time.Sleep(secretEvery) // fake time
		synctest.Wait()
		if c.secret() != secret {
			t.Error("the secret is not restored")
		}
		c.wants(c.replica(), "a replica that started after the loss", cookie, 200, "ann")

		c.client.FlushAll(c.ctx)
		time.Sleep(secretPause)        // fake time
		newer := c.cookie(c.replica()) // before the others have restored the old secret
		if c.secret() == secret {
			t.Fatal("the secret is the old one")
		}
		c.wants(first, "a session of the new secret", newer, 200, "ann")

		c.client.FlushAll(c.ctx)
		time.Sleep(secretPause) // fake time
		third := c.replica()
		_ = c.cookie(third)
		time.Sleep(secretPause) // fake time
		c.wants(third, "a login at a replica that has not noticed the loss", c.cookie(first), 200, "ann")
		c.wants(first, "a session of the old one", cookie, 401, "no valid token")
	})
}

// TestRedisIsAwayForSessions: sessions go on with the secret that a replica knows. One that knows none does not log users out.
func TestRedisIsAwayForSessions(t *testing.T) {
	inCluster(t, func(c *secretCluster) {
		first := c.replica()
		cookie, secret := c.cookie(first), c.secret()
		c.redis.Close()
		time.Sleep(secretEvery) // fake time
		synctest.Wait()
		c.wants(first, "a replica that knows the secret", cookie, 200, "ann")
		if strings.Contains(c.log.String(), "[WARN]") {
			t.Errorf("log %s", &c.log)
		}
		second := c.replica()
		c.wants(second, "a replica that does not", cookie, 503, "cannot read from Redis")
		c.wants(second, "a token", "Authorization: Bearer "+annsToken, 200, "ann")
		c.wants(second, "nothing", "", 401, "no valid token")
		c.wants(second, "a cookie of nonsense", "Cookie: cronclave=x.y.z", 401, "no valid token")
		if w := c.send(second, "GET", "/x", "", cookie, "Accept: text/html"); w.Code != 503 || !strings.Contains(w.Body.String(), "cannot read from Redis") {
			t.Errorf("a page: %d %s", w.Code, w.Body)
		}
		if w := c.logIn(second); w.Code != 503 || len(w.Result().Cookies()) > 0 || !strings.Contains(w.Body.String(), "cannot read from Redis") {
			t.Errorf("login: %d %s", w.Code, w.Body)
		}
		if w := c.send(second, "POST", "/logout", "", cookie); w.Code != 503 || len(w.Result().Cookies()) != 1 || !strings.Contains(w.Body.String(), "a copy of it stays valid") {
			t.Errorf("logout: %d %s", w.Code, w.Body)
		}
		c.wants(first, "the session that could not be ended", cookie, 200, "ann")
		if n := strings.Count(c.log.String(), "cannot read the secret of sessions; logins with a token fail"); n != 1 || strings.Contains(c.log.String(), secret) {
			t.Errorf("logged %d times: %s", n, &c.log)
		}
	})
}

// A replica that waits for Redis reads and writes no secret, and warns of nothing. A login at the moment in which it is ready is not turned away.
func TestWaitingReplicaMakesNoSecret(t *testing.T) {
	var log bytes.Buffer
	secret := ""
	s := newSessionSecret(Config{Log: hclog.New(&hclog.LoggerOptions{Output: &log}), SessionSecret: func(context.Context, string) (string, error) { return secret, nil }})
	if got := s.readAgain(t.Context()); got != "" || log.Len() > 0 || s.known.Load() != nil {
		t.Errorf("%q, log %s", got, &log)
	}
	secret = clusterSecret
	if got := s.knownOrRead(t.Context()); got != secret {
		t.Errorf("%q as soon as Redis may be asked", got)
	}
}

// TestMadeUpCookiesCostRedisNothing but one reading a second.
func TestMadeUpCookiesCostRedisNothing(t *testing.T) {
	inCluster(t, func(c *secretCluster) {
		replica := c.replica()
		made := "Cookie: cronclave=" + c.users[0].signedSession(clusterSecret, time.Now().Add(hour))
		for range 3 {
			time.Sleep(secretPause) // fake time
			before := c.reads.Load()
			for range 100 {
				c.wants(replica, "made up", made, 401, "no valid token")
			}
			if c.reads.Load() != before+1 {
				t.Errorf("%d readings", c.reads.Load()-before)
			}
		}
	})
}

// countedEnds is the list in Redis, and the number of additions to it.
type countedEnds struct {
	*journal.Journal
	calls int
}

func (c *countedEnds) EndSessions(ctx context.Context, ended map[string]time.Time) error {
	c.calls++
	return c.Journal.EndSessions(ctx, ended)
}

// TestMoreEndedSessionsThanTheListKeeps: those that end first are forgotten here too, and the others are added at once when Redis has lost them, and once.
func TestMoreEndedSessionsThanTheListKeeps(t *testing.T) {
	server, err := embedded.Start(embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	options, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	options.ContextTimeoutEnabled = true
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	j, err := journal.New(journal.Config{Redis: client, Namespace: "test", Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	list := &countedEnds{Journal: j}
	e := newEndedSessions(Config{Ended: list, Log: hclog.NewNullLogger()})
	const surplus = 50
	began := time.Now()
	for i := range maxEnded + surplus { // pairs end at one time
		e.until[fmt.Sprintf("session-%05d", i)] = began.Add(time.Hour + time.Duration(i/2)*time.Second)
	}
	for range 3 {
		e.syncList(t.Context())
	}
	if list.calls != 1 || len(e.until) != maxEnded {
		t.Errorf("%d additions, %d sessions; want one of %d", list.calls, len(e.until), maxEnded)
	}
	listed, err := j.EndedSessions(t.Context())
	if err != nil || len(listed) != maxEnded {
		t.Fatalf("%d sessions are listed, %v", len(listed), err)
	}
	if !maps.EqualFunc(listed, e.until, func(a, b time.Time) bool { return a.UnixMilli() == b.UnixMilli() }) {
		t.Error("this replica and Redis know different sessions")
	}
	if err := e.endSession(t.Context(), "cookie", began.Add(24*time.Hour)); err != nil || !e.hasEnded("cookie") || len(e.until) != maxEnded {
		t.Errorf("one more: %v, of %d", err, len(e.until))
	}
	if _, there := e.until[fmt.Sprintf("session-%05d", surplus)]; there {
		t.Error("the session that ends first is still there")
	}
}
