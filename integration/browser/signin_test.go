//go:build browser

package browser

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// signedIn is the configuration of a replica at which people of a provider sign in.
const signedIn = `
[redis]
url = "redis://127.0.0.1:%d/0"

[server]
listen = "%s"

[server.oidc]
issuer             = "%s"
client_id          = "cronclave"
client_secret_file = "secret"
redirect_url       = "http://%s/login/oidc/callback"
operators          = ["sre"]
viewers            = ["staff"]

[jobs.beat]
schedule = "* * * * * *"
command  = ["true"]
`

// TestSignInAtAProvider has people sign in with Chromium at a real provider, and act on a real replica as far as their role allows.
func TestSignInAtAProvider(t *testing.T) {
	address := freeAddress(t)
	p := startProvider(t, "http://"+address+"/login/oidc/callback")
	c := startSignedIn(t, address, p.URL)
	browser := newBrowser(t)
	for _, off := range []bool{false, true} {
		t.Run(fmt.Sprintf("Operator/%v", off), func(t *testing.T) {
			b := newTab(t, browser, "http://"+address, 390)
			b.scripts(off)
			operates(b, p, off)
		})
	}
	t.Run("Viewer", func(t *testing.T) { looks(newTab(t, browser, "http://"+address, 1280), p) })
	t.Run("Stranger", func(t *testing.T) {
		b := newTab(t, browser, "http://"+address, 1280)
		b.open("/")
		b.signIn(p, "eve")
		b.shows(`your ID token has no claim "groups"`, "Sign in with")
		b.open("/cluster")
		b.shows("Sign in with")
	})
	t.Run("Renewal", func(t *testing.T) { renews(newTab(t, browser, "http://"+address, 1280), p) })
	t.Run("Audit", func(t *testing.T) {
		if out := c.run("audit"); !strings.Contains(out, "oidc:ann@example.com") || strings.Contains(out, "vic") {
			t.Errorf("the audit log: %s", out)
		}
	})
	t.Run("ProviderAway", func(t *testing.T) {
		p.Close()
		c.start("r3")
		goesOn(newTab(t, browser, c.urls["r3"], 390), p, c)
	})
}

// freeAddress is one at which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, l.Close())
	return l.Addr().String()
}

// startSignedIn starts a Redis and a replica.
func startSignedIn(t *testing.T, address, issuer string) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir(), replicas: map[string]*exec.Cmd{}, urls: map[string]string{}}
	c.binary = built(t, c.dir)
	must(t, os.WriteFile(filepath.Join(c.dir, "secret"), []byte(clientSecret+"\n"), 0o600))
	redis := startRedis(t)
	for file, listen := range map[string]string{"jobs.toml": address, "other.toml": "127.0.0.1:0"} { // the latter of r3
		must(t, os.WriteFile(filepath.Join(c.dir, file), fmt.Appendf(nil, signedIn, redis, listen, issuer, address), 0o600))
	}
	c.start("r1")
	eventually(t, "the job runs", patience, func() bool { return c.recorded("beat", "ok", 1) })
	return c
}

// signIn follows the link of the login page, and fills in the form of the provider.
func (b *tab) signIn(p *httptest.Server, name string) {
	b.t.Helper()
	b.shows("Sign in with " + strings.TrimPrefix(p.URL, "http://"))
	b.click("a", "Sign in with")
	b.shows("Username:")
	b.fill("username", name)
	b.fill("password", password)
	b.click("button", "Login")
}

// operates signs an operator in, pauses a job, and logs out.
func operates(b *tab, p *httptest.Server, off bool) {
	reason := fmt.Sprintf("the disk is full, %v", off)
	b.open("/jobs/beat")
	b.shows("Sign in with")
	b.fits()
	b.controlsHaveNames(1)
	b.tabOrder()
	b.signIn(p, "ann")
	b.shows("oidc:ann@example.com", "Job beat", "Log out")
	b.fits()
	b.click("summary", "Pause…")
	b.fill("reason-pause", reason)
	b.click("button", "Pause")
	b.shows("by oidc:ann@example.com: " + reason)
	b.click("summary", "Resume…")
	b.click("button", "Resume")
	b.shows("Resumed")
	b.open("/audit")
	b.shows("oidc:ann@example.com pause", reason)
	b.click("button", "Log out")
	b.shows("Sign in with")
	b.open("/audit")
	b.shows("Sign in with")
}

// looks signs a viewer in, to whom no form is shown, and whose acts are refused.
func looks(b *tab, p *httptest.Server) {
	b.open("/jobs/beat")
	b.signIn(p, "vic")
	b.shows("oidc:vic@example.com may look only", "Job beat")
	b.do(chromedp.Evaluate[chromedp.Void](`fetch('/pause', { method: 'POST', headers: { 'Content-Type': 'application/x-www-form-urlencoded' }, body: 'job=beat' }).then((r) => { document.title = 'answered ' + r.status; }), undefined`))
	eventually(b.t, "the act is refused", 10*time.Second, func() bool {
		title, err := ask[string](b, "document.title")
		return err == nil && title == "answered 403"
	})
	b.click("button", "Log out")
	b.shows("Sign in with")
}

// renews has sessions that end: a page that is loaded then, and one that renews itself, lead to the provider without a click. The session of another user reloads it.
func renews(b *tab, p *httptest.Server) {
	b.setSession(p, b.base, "ann", -time.Minute)
	b.open("/jobs/beat")
	b.shows("Username:")
	b.fill("username", "ann")
	b.fill("password", password)
	b.click("button", "Login")
	b.shows("oidc:ann@example.com", "Job beat")
	b.setSession(p, b.base, "ann", 3*time.Second)
	b.open("/")
	b.shows("oidc:ann@example.com", "Live")
	b.shows("Username:")
	b.fill("username", "ann")
	b.fill("password", password)
	b.click("button", "Login")
	b.shows("oidc:ann@example.com", "Overview", "Live")
	_, err := ask[bool](b, withoutUser+", true")
	must(b.t, err)
	b.setSession(p, b.base, "vic", time.Hour) // as if she logged in in another tab
	time.Sleep(4 * time.Second)               // two renewals
	b.shows("oidc:ann@example.com", "Live")
	b.open("/jobs/beat")
	b.shows("oidc:vic@example.com", "Live")
	b.click("summary", "Pause…")
	b.fill("reason-pause", "the disk is full")
	b.setSession(p, b.base, "ann", time.Hour)
	b.shows("oidc:vic@example.com", "Another user has logged in: reload this page")
	if kept, err := ask[string](b, "document.getElementById('reason-pause').value"); err != nil || kept != "the disk is full" {
		b.t.Errorf("the form has %q, %v", kept, err)
	}
	b.open("/")
	b.shows("Overview", "oidc:ann@example.com", "Live")
	b.setSession(p, b.base, "vic", time.Hour)
	b.shows("Overview", "oidc:vic@example.com")
}

// withoutUser removes the user from fetched pages. The pages of older replicas name none.
const withoutUser = `(window.fetch = ((get) => async (...args) => {
  const answer = await get(...args);
  return new Response(answer.status === 304 ? null : (await answer.text()).replace(/ data-user="[^"]*"/, ""), { status: answer.status, headers: answer.headers });
})(window.fetch))`

// setSession gives the browser the session of an operator that ends after a time, signed as replicas do. redirect is the beginning of their redirect_url.
func (b *tab) setSession(p *httptest.Server, redirect, name string, lasts time.Duration) {
	b.t.Helper()
	type role struct {
		name   string
		values []string
	}
	key := hmac.New(sha256.New, []byte(clientSecret))
	_, err := fmt.Fprintf(key, "cronclave %+q", []any{"session", "default", p.URL, clientID, redirect + "/login/oidc/callback", "email", "groups",
		[]role{{"operator", []string{"sre"}}, {"viewer", []string{"staff"}}}})
	must(b.t, err)
	encode := base64.RawURLEncoding.EncodeToString
	text := fmt.Sprintf("oidc.%s.operator.%d.ID", encode([]byte("oidc:"+name+"@example.com")), time.Now().Add(lasts).Unix())
	mac := hmac.New(sha256.New, key.Sum(nil))
	mac.Write([]byte(text))
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, network.SetCookie, network.SetCookieParams{Name: "cronclave", Value: text + "." + encode(mac.Sum(nil)), URL: b.base, HTTPOnly: new(true)})
		return err
	}))
}

// goesOn looks at a replica that was started without its provider: it takes the session of another one, its login names the fault, and jobs run.
func goesOn(b *tab, p *httptest.Server, c *cluster) {
	b.setSession(p, c.urls["r1"], "ann", time.Hour)
	b.open("/jobs/beat")
	b.shows("oidc:ann@example.com", "Job beat")
	b.click("button", "Log out")
	b.shows("Sign in with")
	b.open("/login?next=/jobs/beat")
	b.click("a", "Sign in with")
	b.shows("You cannot sign in with "+strings.TrimPrefix(p.URL, "http://")+": ", "it cannot be reached")
	b.fits()
	b.shoot("login-phone", 390, 500, false)
	began := time.Now()
	eventually(c.t, "the job runs on", patience, func() bool {
		return strings.Contains(c.run("history", "beat", "--since", began.UTC().Format(time.RFC3339)), "ok")
	})
}
