package oidc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const issuer = "https://id.example"

// answers is a provider without a network.
type answers func(*http.Request) (*http.Response, error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// says is an answer with a status and a body.
func says(status int, body string) (*http.Response, error) {
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.WriteString(body)
	return w.Result(), nil
}

// document is a discovery document, with more members in place of those that it has.
func document(more string) string {
	return fmt.Sprintf(`{"issuer":%q,"authorization_endpoint":"https://login.example/authorize","token_endpoint":"https://id.example/token","jwks_uri":"https://id.example/keys"%s}`, issuer, more)
}

// providerOf returns a provider whose requests are answered by a function.
func providerOf(t *testing.T, a answers) *Provider {
	t.Helper()
	p, err := New(Config{Issuer: issuer, ClientID: "cron", RedirectURL: "https://cron.example/login/oidc/callback", RoleClaim: "groups", Secret: func() string { return "the-secret-of-the-client" }})
	if err != nil {
		t.Fatal(err)
	}
	p.client.Transport.(*transport).next = a
	return p
}

func begin(t *testing.T, p *Provider) (*url.URL, error) {
	t.Helper()
	text, err := p.Begin(t.Context(), AuthRequest{"the-state", "the-nonce", strings.Repeat("v", 43)})
	if err != nil {
		return nil, err
	}
	return url.Parse(text)
}

func TestBegin(t *testing.T) {
	for more, scope := range map[string]string{
		"": "openid profile email",
		`,"scopes_supported":["openid","groups"]`:   "openid profile email groups",
		`,"scopes_supported":["openid","offline"]`:  "openid profile email",
		`,"scopes_supported":["groups","openid",7]`: "", // not well-formed
	} {
		p := providerOf(t, func(*http.Request) (*http.Response, error) { return says(200, document(more)) })
		u, err := begin(t, p)
		if scope == "" {
			if err == nil {
				t.Errorf("%s: %v", more, u)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		if u.Host != "login.example" || q.Get("scope") != scope || q.Get("state") != "the-state" || q.Get("nonce") != "the-nonce" || q.Get("response_type") != "code" ||
			q.Get("client_id") != "cron" || q.Get("redirect_uri") != "https://cron.example/login/oidc/callback" || q.Get("code_challenge_method") != "S256" || len(q.Get("code_challenge")) != 43 ||
			strings.Contains(u.String(), "vvvv") || strings.Contains(u.String(), "secret") {
			t.Errorf("%s: led to %v", more, u)
		}
	}
	p := providerOf(t, func(*http.Request) (*http.Response, error) { return says(200, document("")) })
	p.cfg.Scopes = []string{"roles", "openid"}
	if u, err := begin(t, p); err != nil || u.Query().Get("scope") != "openid roles" {
		t.Errorf("scopes of the configuration: %v, %v", u, err)
	}
}

// TestFaultyDiscovery has answers that make no provider. The errors say which.
func TestFaultyDiscovery(t *testing.T) {
	long := strings.Repeat(" ", maxAnswerBytes)
	for _, tt := range []struct {
		status int
		body   string
		want   string
	}{
		{200, `{"issuer":"https://evil.example"}`, "that of another issuer"},
		{200, `{"issuer":"https://id.example/"}`, "that of another issuer"},
		{200, "{", "cannot be read"},
		{200, document("") + long, "more than 512 KiB"},
		{404, "no <secret>", "the status 404"},
		{500, "", "the status 500"},
		{302, "", "the status 302"},
		{200, document(`,"authorization_endpoint":"http://login.example/"`), "an address that is not https"},
		{200, document(`,"authorization_endpoint":"javascript:alert(1)"`), "an address that is not https"},
		{200, document(`,"authorization_endpoint":""`), "an address that is not https"},
		{200, document(`,"token_endpoint":"http://127.0.0.1/"`), "an address that is not https"},
		{200, document(`,"jwks_uri":"https://a:b@id.example/"`), "an address that is not https"},
	} {
		asked := 0
		p := providerOf(t, func(r *http.Request) (*http.Response, error) {
			asked++
			resp, err := says(tt.status, tt.body)
			resp.Header.Set("Location", "https://elsewhere.example/")
			return resp, err
		})
		_, err := begin(t, p)
		var unavailable *UnavailableError
		if !errors.As(err, &unavailable) || !strings.Contains(unavailable.Problem, tt.want) || strings.Contains(err.Error(), "<secret>") || asked != 1 {
			t.Errorf("%d %.60s: %v after %d requests, want %q", tt.status, tt.body, err, asked, tt.want)
		}
	}
}

// TestProviderIsAway: a provider that hangs ends a sign-in in time, is not asked again by each of many, and is asked again soon.
func TestProviderIsAway(t *testing.T) {
	for name, hang := range map[string]answers{
		"headers": func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() },
		"body": func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: io.NopCloser(stuck{r.Context()})}, nil
		},
		"refused": func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") },
		"tls":     func(*http.Request) (*http.Response, error) { return nil, &tls.CertificateVerificationError{} },
	} {
		synctest.Test(t, func(t *testing.T) {
			asked, away := 0, true
			p := providerOf(t, func(r *http.Request) (*http.Response, error) {
				asked++
				if away {
					return hang(r)
				}
				return says(200, document(""))
			})
			began := time.Now()
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					_, err := begin(t, p)
					var unavailable *UnavailableError
					want := map[string]string{"headers": "did not answer within 5s", "body": "did not answer within 5s", "refused": "cannot be reached", "tls": "certificate is not valid"}[name]
					if !errors.As(err, &unavailable) || !strings.Contains(unavailable.Problem, want) {
						t.Errorf("%s: %v", name, err)
					}
				})
			}
			all.Wait()
			if took := time.Since(began); took > requestTimeout || asked != 1 {
				t.Errorf("%s: %d requests in %v", name, asked, took)
			}
			away = false
			time.Sleep(retryAfter) // fake time
			for range 3 {
				if _, err := begin(t, p); err != nil {
					t.Errorf("%s: back again: %v", name, err)
				}
			}
			if asked != 2 {
				t.Errorf("%s: %d requests", name, asked)
			}
			time.Sleep(metadataAge) // fake time
			if _, err := begin(t, p); err != nil || asked != 3 {
				t.Errorf("%s: when it is old: %v, %d requests", name, err, asked)
			}
		})
	}
}

// stuck is a body that never comes.
type stuck struct{ ctx context.Context }

func (s stuck) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

// TestExchangeFaults: no error has the text of the token endpoint, which may repeat the code or the secret.
func TestExchangeFaults(t *testing.T) {
	const code, secret = "the-code-of-the-browser", "the-secret-of-the-client"
	echo := code + " " + secret
	for _, tt := range []struct {
		status     int
		body, want string
		away       bool
	}{
		{400, `{"error":"invalid_grant","error_description":"` + echo + `"}`, "the provider refused it: invalid_grant", false},
		{400, `{"error":"` + echo + `"}`, "refused it: an error without a name", false},
		{400, echo, "refused it: an error without a name", false},
		{403, `{"error":"invalid_grant"}`, "the provider refused it: invalid_grant", false},
		{403, echo, "the status 403", true},
		{404, echo, "the status 404", true},
		{429, `{"error":"slow_down"}`, "the status 429", true},
		{400, `{"error":"temporarily_unavailable"}`, "it answered with temporarily_unavailable", true},
		{401, `{"error":"invalid_client"}`, "it does not accept the client_id and client secret", true},
		{200, echo, "no tokens that can be read", true},
		{200, `{"access_token":"` + echo + `"}`, "it sent no ID token", true},
		{200, `{"access_token":"x","id_token":"` + echo + `"}`, "verify the ID token", false},
		{200, `{"access_token":"x","id_token":"a.b.c"}`, "verify the ID token", false},
		{500, echo, "the status 500", true},
		{307, echo, "the status 307", true},
		{200, strings.Repeat(" ", maxAnswerBytes+1), "more than 512 KiB", true},
	} {
		var posted []string
		p := providerOf(t, func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet {
				return says(200, document(""))
			}
			posted = append(posted, r.URL.String())
			resp, err := says(tt.status, tt.body)
			resp.Header.Set("Location", "https://elsewhere.example/")
			return resp, err
		})
		_, err := p.Identify(t.Context(), code, AuthRequest{"s", "n", strings.Repeat("v", 43)})
		var unavailable *UnavailableError
		if err == nil || !strings.Contains(err.Error(), tt.want) || errors.As(err, &unavailable) != tt.away {
			t.Errorf("%d %.60s: %v, want %q", tt.status, tt.body, err, tt.want)
		}
		if err != nil && (strings.Contains(err.Error(), code) || strings.Contains(err.Error(), secret)) {
			t.Errorf("the error has a secret: %v", err)
		}
		if !slices.Equal(posted, []string{"https://id.example/token"}) {
			t.Errorf("the code went to %q", posted)
		}
	}
}

// TestClientAuthentication: the secret goes where the provider wants it, at the first try.
func TestClientAuthentication(t *testing.T) {
	for more, header := range map[string]bool{"": true, `,"token_endpoint_auth_methods_supported":["client_secret_post"]`: false, `,"token_endpoint_auth_methods_supported":["private_key_jwt","client_secret_basic"]`: true} {
		p := providerOf(t, func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet {
				return says(200, document(more))
			}
			if err := r.ParseForm(); err != nil {
				return nil, err
			}
			_, password, basic := r.BasicAuth()
			if basic != header || (r.PostForm.Get("client_secret") == "") != header || header && password != "the-secret-of-the-client" || r.PostForm.Get("code_verifier") != strings.Repeat("v", 43) {
				t.Errorf("%s: basic %t, form %v", more, basic, r.PostForm)
			}
			return says(400, `{"error":"invalid_grant"}`)
		})
		if _, err := p.Identify(t.Context(), "c", AuthRequest{"s", "n", strings.Repeat("v", 43)}); err == nil {
			t.Error("no error")
		}
	}
}

// TestPermitted: secrets go over TLS, or stay on this machine in trials.
func TestPermitted(t *testing.T) {
	for _, tt := range []struct {
		issuer, url string
		want        bool
	}{
		{"https://id.example", "https://other.example/x", true},
		{"https://id.example", "http://127.0.0.1/", false},
		{"https://id.example", "https://u:p@id.example/", false},
		{"https://id.example", "https:///x", false},
		{"https://id.example", "ftp://id.example/", false},
		{"http://127.0.0.1:5556", "http://127.0.0.1:5557/", true},
		{"http://127.0.0.1:5556", "http://localhost/", true},
		{"http://127.0.0.1:5556", "http://id.example/", false},
		{"http://127.0.0.1:5556", "https://id.example/", true},
	} {
		p, err := New(Config{Issuer: tt.issuer})
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(tt.url)
		if err != nil {
			t.Fatal(err)
		}
		if p.isPermitted(u) != tt.want {
			t.Errorf("%s of %s: %t", tt.url, tt.issuer, !tt.want)
		}
	}
}
