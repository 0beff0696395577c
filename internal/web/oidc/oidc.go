// Package oidc signs people in at an OpenID Connect provider. It uses the authorization code flow with PKCE: it redirects a browser to the provider, which
// sends the browser back with a code, and exchanges the code for a name and a role. It stores nothing about people.
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

// Config configures a [Provider].
type Config struct {
	// Namespace is the name of the cluster. Clusters that share a registration at the provider still have different keys.
	Namespace string
	// Issuer is the provider's URL, exactly as in its ID tokens.
	Issuer string
	// ClientID and RedirectURL are the values registered at the provider.
	ClientID, RedirectURL string
	// Secret returns the current client secret.
	Secret func() string
	// Scopes are the scopes to request. If Scopes is nil, they are openid, profile and email and, if the provider offers a scope with the name in RoleClaim,
	// that scope too.
	Scopes []string
	// NameClaim is the claim with a person's name. If it is "email", the provider must have verified the address.
	NameClaim string
	// RoleClaim is the claim whose values give roles. The claim may be a string or a list of strings.
	RoleClaim string
	// Roles are in order of precedence. A person gets the first role for which the claim has a value.
	Roles []Role
}

// A Role is a role, with the values of [Config.RoleClaim] that give it.
type Role struct {
	Name   string
	Values []string
}

// An Identity is a person who has signed in.
type Identity struct {
	Name    string // at most 128 printable characters
	Role    string // name of one of [Config.Roles]
	Subject string // permanent identifier of the account at the provider
}

// Attempt holds the secrets of one sign-in. The provider returns State through the browser, and Nonce in the ID token. It sends the token only to a client
// that presents Verifier.
type Attempt struct{ State, Nonce, Verifier string }

// An UnavailableError reports that the provider cannot be used at the moment.
type UnavailableError struct {
	// Problem is a clause about the provider, such as "it did not answer within 5s". Anybody may read it.
	Problem string
	// Err has details for the log. It may be nil.
	Err error
}

func (e *UnavailableError) Error() string {
	if e.Err == nil {
		return e.Problem
	}
	return e.Problem + ": " + shortText(e.Err)
}

func (e *UnavailableError) Unwrap() error { return e.Err }

// A RefusedError reports that a person has signed in at the provider, but is not admitted to the cluster.
type RefusedError struct {
	Reason  string // text for the person
	Subject string // identifier of the account, for the log; "" if it is malformed
}

func (e *RefusedError) Error() string { return e.Reason }

// mostOfAnError is the maximum length of an error's text in bytes, because some errors contain the provider's answer.
const mostOfAnError = 300

// shortText returns the text of an error, shortened to mostOfAnError bytes.
func shortText(err error) string {
	text := strings.ToValidUTF8(err.Error(), "")
	if len(text) > mostOfAnError {
		text = strings.ToValidUTF8(text[:mostOfAnError], "") + "…"
	}
	return text
}

// A Provider is the access to an OpenID Connect provider. It sends no request before the first sign-in. Its methods are safe for concurrent use.
type Provider struct {
	cfg    Config
	issuer *url.URL
	client *http.Client

	turn  chan struct{}             // full while a discovery is in progress
	found atomic.Pointer[discovery] // last result of a discovery; nil before the first
}

// New returns a provider. It sends no request.
func New(cfg Config) (*Provider, error) {
	issuer, err := url.Parse(cfg.Issuer)
	if err != nil {
		return nil, fmt.Errorf("issuer: %w", err)
	}
	p := &Provider{cfg: cfg, issuer: issuer, turn: make(chan struct{}, 1)}
	p.client = &http.Client{Transport: &transport{p.isPermitted, &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeaderBytes,
		// A dialer may continue to connect after the request has ended, so it needs its own time limits.
		DialContext: dial.New(dial.Config{}).DialContext, TLSHandshakeTimeout: requestTimeout}}}
	return p, nil
}

// Host returns the host of the issuer's URL. Texts for people name the provider by it.
func (p *Provider) Host() string { return p.issuer.Host }

// RedirectURL returns the URL to which the provider sends browsers back.
func (p *Provider) RedirectURL() *url.URL {
	u, err := url.Parse(p.cfg.RedirectURL)
	if err != nil {
		return &url.URL{} // not reached, because the configuration was validated
	}
	return u
}

// Key returns the key for a purpose, such as signing sessions. The key is derived from the client secret, the cluster's namespace and the settings that
// determine names and roles. Replicas that agree on all of these accept each other's cookies. If one of them changes, all cookies become invalid.
func (p *Provider) Key(purpose string) []byte {
	c := p.cfg
	mac := hmac.New(sha256.New, []byte(c.Secret()))
	// writing to a hash never fails
	_, _ = fmt.Fprintf(mac, "cronclave %+q", []any{purpose, c.Namespace, c.Issuer, c.ClientID, c.RedirectURL, c.NameClaim, c.RoleClaim, c.Roles})
	return mac.Sum(nil)
}

// minSecretLength is the minimum length of a client secret, in bytes. Every client gets a cookie whose signature depends on the secret, so an attacker can
// guess secrets offline. A random secret of this length cannot be guessed.
const minSecretLength = 16

// ParseSecret parses the content of a file with a client secret. Its errors do not contain the secret.
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
