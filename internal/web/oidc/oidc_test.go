package oidc

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestKeys: a key depends on its purpose, the cluster, the registration, the secret and all that gives names and roles, and on nothing that differs between
// replicas. So no cluster takes a cookie of another one, and none outlives a change of the roles.
func TestKeys(t *testing.T) {
	of := func(purpose string, change func(*Config)) string {
		cfg := Config{Namespace: "a", Issuer: "https://id.example", ClientID: "b", RedirectURL: "https://c", NameClaim: "email", RoleClaim: "groups",
			Secret: func() string { return "d" }, Roles: []Role{{"operator", []string{"sre"}}, {"viewer", []string{"staff"}}}}
		change(&cfg)
		p, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return string(p.Key(purpose))
	}
	same := func(*Config) {}
	base := of("session", same)
	if len(base) != 32 || base != of("session", same) {
		t.Error("replicas derive different keys")
	}
	if of("sign-in", same) == base {
		t.Error("two purposes have the same key")
	}
	for what, change := range map[string]func(*Config){
		"namespace":    func(c *Config) { c.Namespace = "x" },
		"issuer":       func(c *Config) { c.Issuer = "https://x" },
		"client":       func(c *Config) { c.ClientID = "x" },
		"redirect URL": func(c *Config) { c.RedirectURL = "https://x" },
		"secret":       func(c *Config) { c.Secret = func() string { return "x" } },
		"name claim":   func(c *Config) { c.NameClaim = "sub" },
		"role claim":   func(c *Config) { c.RoleClaim = "roles" },
		"operators":    func(c *Config) { c.Roles[0].Values = []string{"staff"} },
		"viewers":      func(c *Config) { c.Roles[1].Values = nil },
	} {
		if of("session", change) == base {
			t.Errorf("the key does not depend on the %s", what)
		}
	}
}

// TestSilentProvider: a connection to a provider that says nothing in the TLS handshake is closed, though the request for which it was made is over.
func TestSilentProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := New(Config{Issuer: issuer, Secret: func() string { return "" }})
		if err != nil {
			t.Fatal(err)
		}
		near, far := net.Pipe()
		p.client.Transport.(*transport).next.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) { return near, nil }
		if err := far.SetDeadline(time.Now().Add(2 * requestTimeout)); err != nil {
			t.Fatal(err)
		}
		read := make(chan error)
		go func() {
			_, err := io.Copy(io.Discard, far)
			read <- err
		}()
		_, err = begin(t, p)
		var unavailable *UnavailableError
		if !errors.As(err, &unavailable) {
			t.Error(err)
		}
		if err := <-read; err != nil { // nil at the end of the connection
			t.Errorf("the connection stays open: %v", err)
		}
		_ = near.Close()
	})
}

// TestIdentify has claims of verified ID tokens, which make a person with a role or are refused with the claim that is wrong.
func TestIdentify(t *testing.T) {
	roles := []Role{{"operator", []string{"sre", "boss@example.com"}}, {"viewer", []string{"staff"}}}
	type claims = map[string]any
	list := func(values ...any) []any { return values }
	for _, tt := range []struct {
		name, role string // of the claims
		claims     claims
		want       Identity
		refused    string
	}{
		{"email", "groups", claims{"email": "ann@example.com", "email_verified": true, "groups": list("staff", "sre")}, Identity{"ann@example.com", "operator", "s"}, ""},
		{"email", "groups", claims{"email": "ann@example.com", "email_verified": "true", "groups": list("staff", 7.0)}, Identity{"ann@example.com", "viewer", "s"}, ""},
		{"preferred_username", "groups", claims{"preferred_username": "Änn Müller", "groups": "sre"}, Identity{"Änn Müller", "operator", "s"}, ""},
		{"sub", "email", claims{"sub": "s", "email": "boss@example.com", "email_verified": true}, Identity{"s", "operator", "s"}, ""},
		{"sub", "email", claims{"sub": "s", "email": "boss@example.com"}, Identity{}, `claim "email_verified"`},
		{"email", "groups", claims{"email": "ann@example.com", "groups": list("sre")}, Identity{}, `claim "email_verified"`},
		{"email", "groups", claims{"email": "ann@example.com", "email_verified": false, "groups": list("sre")}, Identity{}, `claim "email_verified"`},
		{"email", "groups", claims{"email": "ann@example.com", "email_verified": 1.0, "groups": list("sre")}, Identity{}, `claim "email_verified"`},
		{"email", "groups", claims{"email_verified": true, "groups": list("sre")}, Identity{}, `no claim "email"`},
		{"name", "groups", claims{"name": list("ann"), "groups": list("sre")}, Identity{}, `no claim "name"`},
		{"name", "groups", claims{"name": "ann"}, Identity{}, `no claim "groups"`},
		{"name", "groups", claims{"name": "ann", "groups": list()}, Identity{}, `no claim "groups"`},
		{"name", "groups", claims{"name": "ann", "groups": claims{"sre": true}}, Identity{}, `no claim "groups"`},
		{"name", "groups", claims{"name": "ann", "groups": list("SRE", "sr", "sre ", "")}, Identity{}, `no value of your claim "groups"`},
		{"name", "groups", claims{"name": "ann", "groups": "sre,staff"}, Identity{}, `no value of your claim "groups"`},
		{"name", "groups", claims{"name": "a\nb", "groups": "sre"}, Identity{}, "cannot be shown"},
		{"name", "groups", claims{"name": "a\u202eb", "groups": "sre"}, Identity{}, "cannot be shown"},
		{"name", "groups", claims{"name": "a\u200bb", "groups": "sre"}, Identity{}, "cannot be shown"},
		{"name", "groups", claims{"name": "ann\ufe0f", "groups": "sre"}, Identity{}, "cannot be shown"},
		{"name", "groups", claims{"name": "ann\u3164", "groups": "sre"}, Identity{}, "cannot be shown"},
		{"name", "groups", claims{"name": "a\u034fnn", "groups": "sre"}, Identity{}, "cannot be shown"},
		{"name", "groups", claims{"name": "a\u2800nn", "groups": "sre"}, Identity{}, "cannot be shown"},
		{"name", "groups", claims{"name": "ann", "_claim_names": claims{"groups": "src1"}}, Identity{}, `"groups" has too many values`},
		{"name", "groups", claims{"name": "ann", "_claim_names": claims{"groups": "src1"}, "groups": "sre"}, Identity{"ann", "operator", "s"}, ""},
		{"name", "groups", claims{"name": "ann", "_claim_names": claims{"other": "src1"}}, Identity{}, `no claim "groups"`},
		{"name", "groups", claims{"name": "ann ", "groups": "sre"}, Identity{}, "cannot be shown"},
		{"name", "groups", claims{"name": strings.Repeat("ä", 129), "groups": "sre"}, Identity{}, "more than 128"},
		{"name", "groups", claims{"name": strings.Repeat("ä", 128), "groups": "sre"}, Identity{strings.Repeat("ä", 128), "operator", "s"}, ""},
	} {
		got, err := Config{NameClaim: tt.name, RoleClaim: tt.role, Roles: roles}.identityOf("s", tt.claims)
		var refused *RefusedError
		if tt.refused == "" {
			if err != nil || got != tt.want {
				t.Errorf("%v: %+v, %v", tt.claims, got, err)
			}
		} else if !errors.As(err, &refused) || !strings.Contains(refused.Reason, tt.refused) || got != (Identity{}) || refused.Subject != "s" {
			t.Errorf("%v: %+v, %v, want %q", tt.claims, got, err, tt.refused)
		}
	}
	for _, subject := range []string{"", "a\x00", strings.Repeat("x", 256)} {
		_, err := Config{NameClaim: "name", RoleClaim: "groups", Roles: roles}.identityOf(subject, claims{"name": "ann", "groups": "sre"})
		var refused *RefusedError
		if !errors.As(err, &refused) || !strings.Contains(refused.Reason, `claim "sub"`) {
			t.Errorf("subject %.20q: %v", subject, err)
		}
	}
}

func TestParseSecret(t *testing.T) {
	for text, want := range map[string]string{"": "it is empty", " \n": "it is empty", "two words of a text": "more than one word", "fifteen-letters": "15 characters can be guessed", "0123456789abcdef\n": ""} {
		secret, err := ParseSecret(text)
		if want == "" {
			if err != nil || secret != "0123456789abcdef" {
				t.Errorf("%q: %q, %v", text, secret, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) || secret != "" || len(text) > 2 && strings.Contains(err.Error(), text) {
			t.Errorf("%q: %q, %v, want %q", text, secret, err, want)
		}
	}
}

// TestCallbackFault: text from outside is shown only if it can be the name of an error. Two of them say that the provider is the cause.
func TestCallbackFault(t *testing.T) {
	for name, want := range map[string]string{"access_denied": "access_denied", "server_error": "server_error", "temporarily_unavailable": "temporarily_unavailable", "": "an error without a name", "<b>": "an error without a name", "x y": "an error without a name", strings.Repeat("a", 41): "an error without a name"} {
		err := CallbackFault(name)
		var unavailable *UnavailableError
		if !strings.HasSuffix(err.Error(), " with "+want) || errors.As(err, &unavailable) != (name == "server_error" || name == "temporarily_unavailable") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
