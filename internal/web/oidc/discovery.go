package oidc

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	gooidc "github.com/coreos/go-oidc/v3/oidc"
	"github.com/cronclave/cronclave/internal/dial"
	"golang.org/x/oauth2"
)

const (
	// metadataAge is the time for which a discovery document is cached. During this time, a signing key that the provider has withdrawn stays valid, and
	// browsers are redirected even if the provider is down.
	metadataAge = time.Minute
	// retryAfter is the time after which a failed discovery is repeated. A provider that hangs gets at most one request in this time.
	retryAfter = 5 * time.Second
)

type metadata struct {
	endpoint oauth2.Endpoint
	scopes   []string
	keys     gooidc.KeySet
	verify   *gooidc.Config
}

// asymmetric lists the signature algorithms for which only the provider has the key. With HS256, everybody who has the client secret could sign a token, and
// with "none" anybody could.
var asymmetric = []string{gooidc.RS256, gooidc.RS384, gooidc.RS512, gooidc.ES256, gooidc.ES384, gooidc.ES512, gooidc.PS256, gooidc.PS384, gooidc.PS512, gooidc.EdDSA}

// A discovery is the result of a request for the discovery document: metadata or a fault. It is valid until the time in until.
type discovery struct {
	metadata *metadata
	fault    error
	until    time.Time
}

// Fresh reports whether a discovery is cached, so that [Provider.Begin] needs no request to the provider.
func (p *Provider) Fresh() bool {
	last := p.found.Load()
	return last != nil && time.Now().Before(last.until)
}

// cachedMetadata returns the provider's metadata. If no valid result is cached, it requests the discovery document; concurrent callers share one request.
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
	if !p.Fresh() { // otherwise another sign-in has renewed the result in the meantime
		m, err := p.readDiscovery(context.WithoutCancel(ctx)) // a client that disconnects must not cancel a request whose result others share
		age := metadataAge
		if err != nil {
			age = retryAfter
		}
		p.found.Store(&discovery{m, err, time.Now().Add(age)})
	}
	last := p.found.Load()
	return last.metadata, last.fault
}

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
	m.endpoint.AuthStyle = oauth2.AuthStyleInHeader // set explicitly, because automatic detection may send the code twice, and the provider accepts a code only once
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

// requestScopes returns the scopes to request. By default it requests the scope of the role claim only if the provider offers it, because a provider may
// refuse a request with an unknown scope.
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

const (
	// requestTimeout is the time limit for one answer of the provider. A sign-in needs at most three answers, which together take less than the time limit of
	// the server for a request.
	requestTimeout = 5 * time.Second
	// maxAnswerBytes and maxHeaderBytes are the size limits of an answer. They exceed the longest regular answers, which are sets of keys with certificate
	// chains.
	maxAnswerBytes, maxHeaderBytes = 512 << 10, 64 << 10
)

// A transport reads each answer completely. It returns an [UnavailableError] if the answer is missing, late or too long, or if its status is unexpected, such
// as a redirection.
type transport struct {
	permitted func(*url.URL) bool
	next      http.RoundTripper
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !t.permitted(r.URL) {
		return nil, &UnavailableError{"it names an address that is not https", errors.New(r.URL.Redacted())}
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	resp, err := t.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		return nil, noAnswer(err)
	}
	defer resp.Body.Close()
	// A redirection is refused, because its target would get the client secret.
	if refused := r.Method == http.MethodPost && resp.StatusCode/100 == 4; resp.StatusCode != http.StatusOK && !refused {
		return nil, &UnavailableError{fmt.Sprintf("it answered with the status %d", resp.StatusCode), errors.New(r.Method + " " + r.URL.Path)}
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	switch {
	case err != nil:
		return nil, noAnswer(err)
	case len(body) > maxAnswerBytes:
		return nil, &UnavailableError{fmt.Sprintf("it answered with more than %d KiB", maxAnswerBytes>>10), errors.New(r.Method + " " + r.URL.Path)}
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return resp, nil
}

// noAnswer returns an [UnavailableError] for a missing answer. Its Problem has no details of the network, because anybody may read it.
func noAnswer(err error) error {
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &UnavailableError{fmt.Sprintf("it did not answer within %v", requestTimeout), nil}
	case errors.As(err, &certificate):
		return &UnavailableError{"its certificate is not valid", errors.New(dial.FailureReason(err))}
	}
	return &UnavailableError{"it cannot be reached", errors.New(dial.FailureReason(err))}
}

// isPermitted reports whether a request may go to a URL. It requires https, except that http to this machine is permitted if the issuer's URL is http.
func (p *Provider) isPermitted(u *url.URL) bool {
	return u.Host != "" && u.User == nil && (u.Scheme == "https" || u.Scheme == "http" && p.issuer.Scheme == "http" && isLoopback(u.Hostname()))
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
