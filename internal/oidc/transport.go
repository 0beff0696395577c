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
	// requestTimeout is how long one answer of the provider may take. A sign-in takes three at most, and fits into the server's time for a request.
	requestTimeout = 5 * time.Second
	// maxAnswerBytes and maxHeaderBytes are more than any provider sends: keys with chains of certificates are the most.
	maxAnswerBytes, maxHeaderBytes = 512 << 10, 64 << 10
)

// transport reads whole answers, and makes an [UnavailableError] of an answer that does not come, is late, too long, of another status, or leads elsewhere.
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
	if refused := r.Method == http.MethodPost && resp.StatusCode/100 == 4; resp.StatusCode != http.StatusOK && !refused { // a redirection would take the secret along
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

// noAnswer says in public words why there is no answer.
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

// permitted returns whether a request may go to a URL: by https, or on this machine if the issuer itself is reached so.
func (p *Provider) permitted(u *url.URL) bool {
	return u.Host != "" && u.User == nil && (u.Scheme == "https" || u.Scheme == "http" && p.issuer.Scheme == "http" && isLoopback(u.Hostname()))
}

// isLoopback returns whether a host is this machine.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
