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
	"time"

	"github.com/cronclave/cronclave/internal/outgoing"
)

const (
	// requestTimeout is the time limit for one answer of the provider. A sign-in needs at most three answers, in total less than the time limit of the server
	// for a request.
	requestTimeout = 5 * time.Second
	// maxAnswerBytes and maxHeaderBytes are the size limits of an answer. The longest regular answers are sets of keys with certificate chains, and are
	// shorter.
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
	// a redirection is not followed, because the other address would get the secret
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

// noAnswer returns an [UnavailableError] for a missing answer. Anybody may read its Problem.
func noAnswer(err error) error {
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &UnavailableError{fmt.Sprintf("it did not answer within %v", requestTimeout), nil}
	case errors.As(err, &certificate):
		return &UnavailableError{"its certificate is not valid", errors.New(outgoing.Reason(err))}
	}
	return &UnavailableError{"it cannot be reached", errors.New(outgoing.Reason(err))}
}

// isPermitted reports whether a request may go to a URL. It requires https, except that http to this machine is permitted if the issuer's URL is http.
func (p *Provider) isPermitted(u *url.URL) bool {
	return u.Host != "" && u.User == nil && (u.Scheme == "https" || u.Scheme == "http" && p.issuer.Scheme == "http" && isLoopback(u.Hostname()))
}

// isLoopback reports whether a host is this machine.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
