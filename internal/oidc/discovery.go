package oidc

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	gooidc "github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

const (
	// metadataAge is the time that a discovery document is cached. For up to this time a key stays valid that the provider has withdrawn, and browsers are
	// redirected to a provider that is down.
	metadataAge = time.Minute
	// retryAfter is the time until a failed discovery is repeated. A provider that hangs delays at most one sign-in in this time.
	retryAfter = 5 * time.Second
)

// metadata is a provider as its discovery document describes it.
type metadata struct {
	endpoint oauth2.Endpoint
	scopes   []string
	keys     gooidc.KeySet
	verify   *gooidc.Config
}

// asymmetric lists the algorithms whose signatures only the provider can make. With HS256 every holder of the client secret could, and with "none" anybody.
var asymmetric = []string{gooidc.RS256, gooidc.RS384, gooidc.RS512, gooidc.ES256, gooidc.ES384, gooidc.ES512, gooidc.PS256, gooidc.PS384, gooidc.PS512, gooidc.EdDSA}

// A discovery is the result of reading a discovery document: metadata or a fault. It expires at until.
type discovery struct {
	metadata *metadata
	fault    error
	until    time.Time
}

// Fresh reports whether [Provider.Begin] returns at once, without a request to the provider.
func (p *Provider) Fresh() bool {
	last := p.found.Load()
	return last != nil && time.Now().Before(last.until)
}

// cachedMetadata returns the provider's metadata. It requests them if the cached ones have expired; concurrent callers share one request.
func (p *Provider) cachedMetadata(ctx context.Context) (*metadata, error) {
	if p.Fresh() {
		last := p.found.Load()
		return last.metadata, last.fault
	}
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the discovery of another sign-in: %w", context.Cause(ctx))
	}
	if !p.Fresh() { // otherwise another sign-in has done this meanwhile
		m, err := p.readDiscovery(context.WithoutCancel(ctx)) // others wait for the answer too
		age := metadataAge
		if err != nil {
			age = retryAfter
		}
		p.found.Store(&discovery{m, err, time.Now().Add(age)})
	}
	last := p.found.Load()
	return last.metadata, last.fault
}

// readDiscovery reads the discovery document.
func (p *Provider) readDiscovery(ctx context.Context) (*metadata, error) {
	ctx = gooidc.ClientContext(ctx, p.client)
	found, err := gooidc.NewProvider(ctx, p.cfg.Issuer)
	if err != nil {
		return nil, discoveryFault(err)
	}
	var document struct {
		Keys        string   `json:"jwks_uri"`
		Scopes      []string `json:"scopes_supported"`
		Algorithms  []string `json:"id_token_signing_alg_values_supported"`
		AuthMethods []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err := found.Claims(&document); err != nil {
		return nil, discoveryFault(err)
	}
	m := &metadata{endpoint: found.Endpoint(), scopes: p.requestScopes(document.Scopes), keys: gooidc.NewRemoteKeySet(ctx, document.Keys),
		verify: &gooidc.Config{ClientID: p.cfg.ClientID, SupportedSigningAlgs: slices.DeleteFunc(document.Algorithms, func(name string) bool { return !slices.Contains(asymmetric, name) })}}
	m.endpoint.AuthStyle = oauth2.AuthStyleInHeader // not detected by trying both: a code can be used once
	if document.AuthMethods != nil && !slices.Contains(document.AuthMethods, "client_secret_basic") {
		m.endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	for _, address := range []string{m.endpoint.AuthURL, m.endpoint.TokenURL, document.Keys} {
		if u, err := url.Parse(address); err != nil || !p.isPermitted(u) {
			return nil, &UnavailableError{"its discovery document names an address that is not https", errors.New(address)}
		}
	}
	return m, nil
}

// requestScopes returns the scopes to request. The default omits a scope that is not offered, because a provider may refuse a request with an unknown one.
func (p *Provider) requestScopes(offered []string) []string {
	scopes := []string{gooidc.ScopeOpenID}
	wanted := p.cfg.Scopes
	if wanted == nil {
		wanted = []string{gooidc.ScopeProfile, gooidc.ScopeEmail}
		if slices.Contains(offered, p.cfg.RoleClaim) {
			wanted = append(wanted, p.cfg.RoleClaim)
		}
	}
	for _, scope := range wanted {
		if !slices.Contains(scopes, scope) {
			scopes = append(scopes, scope)
		}
	}
	return scopes
}

// discoveryFault returns an [UnavailableError] for a failed discovery.
func discoveryFault(err error) error {
	var unavailable *UnavailableError
	var mismatch *gooidc.IssuerMismatchError
	switch {
	case errors.As(err, &unavailable):
		return unavailable
	case errors.As(err, &mismatch):
		return &UnavailableError{"its discovery document is that of another issuer", err}
	}
	return &UnavailableError{"its discovery document cannot be read", err}
}
