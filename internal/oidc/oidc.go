// Package oidc signs people in at an OpenID Connect provider, by the authorization code flow with PKCE: it leads a browser there, and makes a name and a
// role of the code with which the browser comes back. It keeps nothing of a person.
package oidc

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/cronclave/cronclave/internal/dial"
)

// Config of a [Provider].
type Config struct {
	// Namespace is the cluster's name. Clusters that share a registration at the provider have different keys by it.
	Namespace string
	// Issuer is the provider's URL, as its ID tokens name it.
	Issuer string
	// ClientID and RedirectURL are those that are registered there.
	ClientID, RedirectURL string
	// Secret returns the client secret that is registered there at present.
	Secret func() string
	// Scopes are asked for; nil for openid, profile, email, and the role's claim if the provider offers a scope of that name.
	Scopes []string
	// NameClaim has a person's name. An address in "email" counts only if the provider has verified it.
	NameClaim string
	// RoleClaim has values that give roles: a string, or a list of them.
	RoleClaim string
	// Roles are in order: a person has the first of which the claim has a value.
	Roles []Role
}

// Role is a role, and the values of [Config.RoleClaim] that give it.
type Role struct {
	Name   string
	Values []string
}

// Identity is a person that has signed in.
type Identity struct {
	Name    string // at most 128 printable characters
	Role    string // the name of one of [Config.Roles]
	Subject string // the provider's lasting identifier of the account
}

// Attempt are the secrets of one sign-in. The provider returns State by the browser and Nonce in the ID token, and releases that only to the client that
// knows Verifier.
type Attempt struct{ State, Nonce, Verifier string }

// UnavailableError says that the provider cannot be used at present.
type UnavailableError struct {
	// Problem completes a sentence that begins with the provider, in words that are for everybody.
	Problem string
	// Err is for the log; nil if it has nothing to add.
	Err error
}

func (e *UnavailableError) Error() string {
	if e.Err == nil {
		return e.Problem
	}
	return e.Problem + ": " + brief(e.Err)
}

func (e *UnavailableError) Unwrap() error { return e.Err }

// RefusedError says why a person that the provider has signed in is not let in.
type RefusedError struct {
	Reason  string // for the person
	Subject string // the account, for the log; "" if it is not well-formed
}

func (e *RefusedError) Error() string { return e.Reason }

// mostOfAnError is how much of an error a message has: some of them repeat what the provider answered.
const mostOfAnError = 300

// brief is the text of an error without a long answer of the provider.
func brief(err error) string {
	text := strings.ToValidUTF8(err.Error(), "")
	if len(text) > mostOfAnError {
		text = strings.ToValidUTF8(text[:mostOfAnError], "") + "…"
	}
	return text
}

// Provider is an OpenID Connect provider. Nothing is asked of it until somebody signs in. Its methods may be called by several goroutines.
type Provider struct {
	cfg    Config
	issuer *url.URL
	client *http.Client

	turn  chan struct{}             // holds one while a discovery is under way
	found atomic.Pointer[discovery] // the last one; nil before the first
}

// New returns a provider, and asks nothing of it.
func New(cfg Config) (*Provider, error) {
	issuer, err := url.Parse(cfg.Issuer)
	if err != nil {
		return nil, fmt.Errorf("issuer: %w", err)
	}
	p := &Provider{cfg: cfg, issuer: issuer, turn: make(chan struct{}, 1)}
	p.client = &http.Client{Transport: &transport{p.permitted, &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeaderBytes,
		// A request that ends leaves the making of its connection behind, so that has time-outs of its own.
		DialContext: dial.New(dial.Config{}).DialContext, TLSHandshakeTimeout: requestTimeout}}}
	return p, nil
}

// Host is the host of the issuer, by which people know the provider.
func (p *Provider) Host() string { return p.issuer.Host }

// RedirectURL is where browsers come back to.
func (p *Provider) RedirectURL() *url.URL {
	u, err := url.Parse(p.cfg.RedirectURL)
	if err != nil {
		return &url.URL{} // the configuration was checked
	}
	return u
}

// Key returns a key for a purpose. It is an HMAC by the client secret of all that replicas agree on which accept each other's cookies: so a cookie counts in
// its cluster only, and ends when the secret or a setting that gives names or roles is changed.
func (p *Provider) Key(purpose string) []byte {
	c := p.cfg
	mac := hmac.New(sha256.New, []byte(c.Secret()))
	_, _ = fmt.Fprintf(mac, "cronclave %+q", []any{purpose, c.Namespace, c.Issuer, c.ClientID, c.RedirectURL, c.NameClaim, c.RoleClaim, c.Roles}) // a hash takes all
	return mac.Sum(nil)
}

// minSecretLength is too long to be found by trying, if the secret is random: the cookie of a sign-in is signed with a key that is derived from it, and
// every client gets one, so that anybody can try secrets against it.
const minSecretLength = 16

// ParseSecret reads the content of a file with a client secret. No error shows it.
func ParseSecret(text string) (string, error) {
	secret := strings.TrimSpace(text)
	switch {
	case secret == "":
		return "", fmt.Errorf("it is empty: write the client secret into it that the provider shows")
	case strings.ContainsAny(secret, " \t\r\n"):
		return "", fmt.Errorf("it has more than one word: write only the client secret into it")
	case len(secret) < minSecretLength:
		return "", fmt.Errorf("a client secret of %d characters can be guessed; have the provider make one of %d or more", len(secret), minSecretLength)
	}
	return secret, nil
}
