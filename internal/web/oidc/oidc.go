// Package oidc signs people in at an OpenID Connect provider. It uses the authorization code flow with PKCE: the package redirects a browser to the provider,
// the provider sends the browser back with a code, and the package exchanges the code for a name and a role. It stores nothing about people.
package oidc

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	gooidc "github.com/coreos/go-oidc/v3/oidc"
	"github.com/cronclave/cronclave/internal/dial"
	"golang.org/x/oauth2"
)

// Config configures a [Provider].
type Config struct {
	// Namespace is the name of the cluster. [Provider.Key] depends on it, so that clusters that share one registration at the provider have different keys.
	Namespace string
	// Issuer is the provider's URL, exactly as in its ID tokens.
	Issuer string
	// ClientID and RedirectURL are the values registered at the provider.
	ClientID, RedirectURL string
	// Secret returns the current client secret.
	Secret func() string
	// Scopes are requested in addition to openid. If Scopes is nil, profile and email are requested, and also the scope with the name in RoleClaim if the
	// provider offers such a scope.
	Scopes []string
	// NameClaim is the claim with a person's name. If it is "email", the provider must have verified the address.
	NameClaim string
	// RoleClaim is the claim whose values give roles. The claim may be a string or a list of strings.
	RoleClaim string
	// Roles are in order of precedence. A person gets the first role for which the claim has a value.
	Roles []Role
}

// A Role is given to each person whose claim [Config.RoleClaim] has at least one of Values.
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

// AuthRequest holds the secrets of one sign-in. The provider returns State through the browser, and Nonce in the ID token. It sends the token only to a client
// that presents Verifier.
type AuthRequest struct{ State, Nonce, Verifier string }

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

// Host returns the host of the issuer's URL, as the name of the provider in texts for people.
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

// Begin returns the URL of the provider to which the browser must be redirected.
func (p *Provider) Begin(ctx context.Context, a AuthRequest) (string, error) {
	m, err := p.cachedMetadata(ctx)
	if err != nil {
		return "", err
	}
	return p.oauthConfig(m).AuthCodeURL(a.State, gooidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)), nil
}

// Identify returns the person who has signed in. It exchanges the code for an ID token and verifies the token. Its errors contain no code and no token.
func (p *Provider) Identify(ctx context.Context, code string, a AuthRequest) (Identity, error) {
	m, err := p.cachedMetadata(ctx)
	if err != nil {
		return Identity{}, err
	}
	tokens, err := p.oauthConfig(m).Exchange(gooidc.ClientContext(ctx, p.client), code, oauth2.VerifierOption(a.Verifier))
	if err != nil {
		return Identity{}, exchangeFault(err)
	}
	raw, ok := tokens.Extra("id_token").(string)
	if !ok {
		return Identity{}, &UnavailableError{"it sent no ID token", nil}
	}
	keys := &watchedKeys{KeySet: m.keys}
	token, err := gooidc.NewVerifier(p.cfg.Issuer, keys, m.verify).Verify(ctx, raw)
	if unavailable := (*UnavailableError)(nil); errors.As(keys.fault, &unavailable) {
		return Identity{}, unavailable
	}
	if err != nil {
		return Identity{}, fmt.Errorf("verify the ID token: %s", shortText(err))
	}
	if subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(a.Nonce)) != 1 {
		return Identity{}, errors.New("verify the ID token: its nonce is that of another sign-in")
	}
	var claims map[string]any
	if err := token.Claims(&claims); err != nil {
		return Identity{}, fmt.Errorf("read the claims of the ID token: %s", shortText(err))
	}
	if fault := p.cfg.audienceFault(token.Audience, claims["azp"]); fault != "" {
		return Identity{}, errors.New("verify the ID token: " + fault)
	}
	return p.cfg.identityOf(token.Subject, claims)
}

// audienceFault returns a fault if a token was not issued for this client alone, and "" otherwise. A token with several audiences must name the client for
// which it was issued (azp).
func (c Config) audienceFault(audience []string, party any) string {
	name, isName := party.(string)
	switch {
	case party == nil && len(audience) == 1:
		return ""
	case party == nil:
		return "it has several audiences, and does not name the one that it was issued to (azp)"
	case !isName || name != c.ClientID:
		return "it was issued to another client (azp)"
	}
	return ""
}

func (p *Provider) oauthConfig(m *metadata) *oauth2.Config {
	return &oauth2.Config{ClientID: p.cfg.ClientID, ClientSecret: p.cfg.Secret(), Endpoint: m.endpoint, RedirectURL: p.cfg.RedirectURL, Scopes: m.scopes}
}

// watchedKeys is a key set that remembers its last error. The verifier returns only the text of that error.
type watchedKeys struct {
	gooidc.KeySet
	fault error
}

func (k *watchedKeys) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	payload, err := k.KeySet.VerifySignature(ctx, token)
	k.fault = err
	return payload, err //nolint:wrapcheck // the verifier says what it did
}

// errorCode matches the well-formed error codes of OAuth 2.
var errorCode = regexp.MustCompile(`^[a-z_]{1,40}$`)

// CallbackFault returns the error for a callback that contains an OAuth error code instead of an authorization code.
func CallbackFault(name string) error {
	if slices.Contains(atFault, name) {
		return &UnavailableError{"it answered with " + name, nil}
	}
	return errors.New("the provider answered with " + errorName(name))
}

// atFault lists the OAuth error codes that mean a fault of the provider.
var atFault = []string{"server_error", "temporarily_unavailable"}

// errorName returns the OAuth error code that a provider sent, or a fixed text if the code is malformed.
func errorName(name string) string {
	if !errorCode.MatchString(name) {
		return "an error without a name"
	}
	return name
}

// exchangeFault converts an error of the token endpoint. It drops the provider's text, which may contain the code or the secret.
func exchangeFault(err error) error {
	var unavailable *UnavailableError
	var refused *oauth2.RetrieveError
	switch {
	case errors.As(err, &unavailable):
		return unavailable
	case !errors.As(err, &refused):
		return &UnavailableError{"it sent no tokens that can be read", nil}
	case slices.Contains(atFault, refused.ErrorCode):
		return &UnavailableError{"it answered with " + refused.ErrorCode, nil}
	case refused.ErrorCode == "invalid_client", refused.ErrorCode == "unauthorized_client":
		return &UnavailableError{"it does not accept the client_id and client secret of this cluster (" + refused.ErrorCode + ")", nil}
	case refused.ErrorCode != "invalid_grant" && !slices.Contains([]int{http.StatusBadRequest, http.StatusUnauthorized}, refused.Response.StatusCode):
		return &UnavailableError{fmt.Sprintf("it answered with the status %d", refused.Response.StatusCode), errors.New("exchange of the code")}
	}
	return fmt.Errorf("exchange the code: the provider refused it: %s", errorName(refused.ErrorCode))
}

// emailClaim is the claim with a person's e-mail address. It is used as a name or for roles only if verifiedClaim is true. Otherwise people could enter any
// address.
const emailClaim, verifiedClaim = "email", "email_verified"

// maxName is the maximum number of characters of a name. maxSubject is the limit of the OpenID Connect specification for a subject.
const maxName, maxSubject = 128, 255

// identityOf returns the person that the claims of a verified ID token describe. It refuses a person without a name or a role.
func (c Config) identityOf(subject string, claims map[string]any) (Identity, error) {
	if subject == "" {
		return Identity{}, &RefusedError{Reason: `your ID token has no claim "sub"`}
	}
	if !isPresentable(subject, maxSubject) {
		return Identity{}, &RefusedError{Reason: `the claim "sub" of your ID token is not well-formed`}
	}
	name, reason := c.nameOf(claims)
	if reason != "" {
		return Identity{}, &RefusedError{reason, subject}
	}
	role, reason := c.roleOf(claims)
	if reason != "" {
		return Identity{}, &RefusedError{reason, subject}
	}
	return Identity{name, role, subject}, nil
}

func (c Config) nameOf(claims map[string]any) (name, reason string) {
	if slices.Contains([]string{c.NameClaim, c.RoleClaim}, emailClaim) && claims[verifiedClaim] != true && claims[verifiedClaim] != "true" {
		return "", `the provider has not verified your e-mail address (claim "email_verified")`
	}
	name, _ = claims[c.NameClaim].(string)
	switch {
	case name == "":
		return "", fmt.Sprintf("your ID token has no claim %q, which has the name", c.NameClaim)
	case !isPresentable(name, maxName):
		return "", fmt.Sprintf("your name in the claim %q has characters that cannot be shown, or more than %d of them", c.NameClaim, maxName)
	}
	return name, ""
}

// elsewhereClaim is the claim that lists claims which the provider left out of the token. Entra ID leaves out the groups of a person with more than 200
// groups.
const elsewhereClaim = "_claim_names"

// roleOf returns the first of [Config.Roles] that the claims give, or the reason for which they give none.
func (c Config) roleOf(claims map[string]any) (role, reason string) {
	values := valuesOf(claims[c.RoleClaim])
	if elsewhere, _ := claims[elsewhereClaim].(map[string]any); len(values) == 0 && elsewhere[c.RoleClaim] != nil {
		return "", fmt.Sprintf("the claim %q has too many values, so the provider has left it out of your ID token (claim %q)", c.RoleClaim, elsewhereClaim)
	}
	if len(values) == 0 {
		return "", fmt.Sprintf("your ID token has no claim %q, which gives the role", c.RoleClaim)
	}
	for _, role := range c.Roles {
		if slices.ContainsFunc(role.Values, func(value string) bool { return slices.Contains(values, value) }) {
			return role.Name, ""
		}
	}
	return "", fmt.Sprintf("no value of your claim %q gives a role here", c.RoleClaim)
}

// isPresentable reports whether a name can be shown unchanged. Other names are refused instead of cleaned, because cleaning could make two names equal.
func isPresentable(name string, most int) bool {
	return utf8.ValidString(name) && utf8.RuneCountInString(name) <= most && strings.TrimSpace(name) == name && !strings.ContainsFunc(name, isInvisible)
}

// isInvisible reports whether a character is invisible, including invisible letters and marks. Two names that differ only in such a character would look the
// same.
func isInvisible(r rune) bool {
	const blankBraille = '\u2800'
	return !unicode.IsPrint(r) || r == blankBraille || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

func valuesOf(claim any) (values []string) {
	switch claim := claim.(type) {
	case string:
		return []string{claim}
	case []any:
		for _, item := range claim {
			if value, ok := item.(string); ok {
				values = append(values, value)
			}
		}
	}
	return values
}
