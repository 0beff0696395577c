package oidc

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
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
