// Package oidc signs people in at an OpenID Connect provider, by the authorization code flow with PKCE. It redirects a browser to the provider, and exchanges
// the code with which the browser returns for a name and a role. It stores nothing about a person.
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
	// Namespace is the cluster's name. It separates the keys of clusters that share a registration at the provider.
	Namespace string
	// Issuer is the provider's URL, as its ID tokens contain it.
	Issuer string
	// ClientID and RedirectURL are the ones registered at the provider.
	ClientID, RedirectURL string
	// Secret returns the client secret that is registered there now.
	Secret func() string
	// Scopes are requested. If they are nil, openid, profile and email are, and RoleClaim if the provider offers a scope of that name.
	Scopes []string
	// NameClaim is the claim with a person's name. An address in "email" is accepted only if the provider has verified it.
	NameClaim string
	// RoleClaim is the claim with the values that give roles: a string or a list of strings.
	RoleClaim string
	// Roles are in order of precedence: a person gets the first role that has a value of the claim.
	Roles []Role
}

// A Role is a role and the values of [Config.RoleClaim] that give it.
type Role struct {
	Name   string
	Values []string
}

// An Identity is a person after a sign-in.
type Identity struct {
	Name    string // at most 128 printable characters
	Role    string // name of one of [Config.Roles]
	Subject string // the provider's permanent identifier of the account
}

// Attempt holds the secrets of one sign-in. The provider returns State through the browser and Nonce in the ID token, and gives that token only to the client
// that knows Verifier.
type Attempt struct{ State, Nonce, Verifier string }

// An UnavailableError reports that the provider cannot be used at present.
type UnavailableError struct {
	// Problem completes a sentence that begins with "the provider". It may be shown to anybody.
	Problem string
	// Err is for the log. It is nil if there is nothing to add.
	Err error
}

func (e *UnavailableError) Error() string {
	if e.Err == nil {
		return e.Problem
	}
	return e.Problem + ": " + shortText(e.Err)
}

func (e *UnavailableError) Unwrap() error { return e.Err }

// A RefusedError is the reason that a person is not admitted after a sign-in at the provider.
type RefusedError struct {
	Reason  string // for the person
	Subject string // the account, for the log; "" if it is not well-formed
}

func (e *RefusedError) Error() string { return e.Reason }

// mostOfAnError is the maximum length of an error in a message, in bytes, because some errors repeat the provider's answer.
const mostOfAnError = 300

// shortText returns the text of an error, cut to mostOfAnError bytes.
func shortText(err error) string {
	text := strings.ToValidUTF8(err.Error(), "")
	if len(text) > mostOfAnError {
		text = strings.ToValidUTF8(text[:mostOfAnError], "") + "…"
	}
	return text
}

// A Provider is an OpenID Connect provider. It receives no request before the first sign-in. Its methods are safe for concurrent use.
type Provider struct {
	cfg    Config
	issuer *url.URL
	client *http.Client

	turn  chan struct{}             // holds a value while a discovery is in progress
	found atomic.Pointer[discovery] // the last result; nil before the first
}

// New returns a provider. It sends no request.
func New(cfg Config) (*Provider, error) {
	issuer, err := url.Parse(cfg.Issuer)
	if err != nil {
		return nil, fmt.Errorf("issuer: %w", err)
	}
	p := &Provider{cfg: cfg, issuer: issuer, turn: make(chan struct{}, 1)}
	p.client = &http.Client{Transport: &transport{p.isPermitted, &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeaderBytes,
		// The dialer continues to connect after a request has ended, so it needs its own time-outs.
		DialContext: dial.New(dial.Config{}).DialContext, TLSHandshakeTimeout: requestTimeout}}}
	return p, nil
}

// Host returns the host of the issuer, by which people know the provider.
func (p *Provider) Host() string { return p.issuer.Host }

// RedirectURL returns the URL to which the provider sends browsers back.
func (p *Provider) RedirectURL() *url.URL {
	u, err := url.Parse(p.cfg.RedirectURL)
	if err != nil {
		return &url.URL{} // not reached: the configuration was validated
	}
	return u
}

// Key returns a key for a purpose: an HMAC, by the client secret, of everything that replicas must have in common to accept each other's cookies. A cookie is
// therefore valid in its cluster only, and becomes invalid when the secret, or a setting that decides names or roles, changes.
func (p *Provider) Key(purpose string) []byte {
	c := p.cfg
	mac := hmac.New(sha256.New, []byte(c.Secret()))
	// writing to a hash never fails
	_, _ = fmt.Fprintf(mac, "cronclave %+q", []any{purpose, c.Namespace, c.Issuer, c.ClientID, c.RedirectURL, c.NameClaim, c.RoleClaim, c.Roles})
	return mac.Sum(nil)
}

// minSecretLength is the minimum length of a client secret, in bytes. A random secret of this length cannot be found by trying. Anybody can try offline,
// because every client gets a cookie that is signed with a key derived from the secret.
const minSecretLength = 16

// ParseSecret parses the content of a client secret file. Its errors do not contain the secret.
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
