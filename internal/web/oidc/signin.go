package oidc

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"

	gooidc "github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// Begin returns the URL of the provider to which the browser must be redirected.
func (p *Provider) Begin(ctx context.Context, a Attempt) (string, error) {
	m, err := p.cachedMetadata(ctx)
	if err != nil {
		return "", err
	}
	return p.oauthConfig(m).AuthCodeURL(a.State, gooidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)), nil
}

// Identify returns the person who has signed in. It exchanges the code for an ID token and verifies the token. Its errors contain no code and no token.
func (p *Provider) Identify(ctx context.Context, code string, a Attempt) (Identity, error) {
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

// errorName returns an OAuth error code from outside. If the code is malformed, it returns a fixed text.
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
