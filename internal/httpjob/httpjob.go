// Package httpjob sends the requests of jobs that call a URL instead of a command. Its errors contain no URL, header or body, which may be secrets, and no
// text from the server except a status code.
package httpjob

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/dial"
	"github.com/cronclave/cronclave/internal/process"
	"github.com/cronclave/cronclave/internal/units"
)

const (
	// MaxAnswer is the number of bytes of an answer after which the connection is closed, and the run fails. The server may still be at work then.
	MaxAnswer = 64 << 20
	// handshakeTimeout bounds the TLS handshake. Package dial bounds the connection attempt, and the timeout of the job bounds the wait for the answer.
	handshakeTimeout = 10 * time.Second
	maxHeaderBytes   = 64 << 10
)

// A Request is one request of a run.
type Request struct {
	Method, URL string
	Header      http.Header
	Body        []byte
	// Expected reports whether a status code means success. Required.
	Expected func(status int) bool
	// Redirects is the maximum number of redirects to follow.
	Redirects int
	// Proxy is the URL of the proxy, or "none"; "" means the proxy of the environment.
	Proxy string
	TLS   TLS
	// Keep is the number of bytes at the end of the answer's body to keep. Line receives each line of the body.
	Keep int64
	Line func(stream string, line []byte)
}

// TLS has certificates in PEM. The authorities of the machine replace an empty CA. Cert and Key are the client's own, and may be empty.
type TLS struct {
	CA, Cert, Key []byte
	ServerName    string
}

// An Answer is the result of a request.
type Answer struct {
	// Status is the status code, or 0 without an answer.
	Status int
	// Err is nil if the whole answer arrived, with an expected status.
	Err error
	// Tail is the end of the body, and Cut the number of bytes before it.
	Tail []byte
	Cut  int64
}

// Send sends a request, and reads the answer until its end. It sends the request once: each call has its own connection, and net/http repeats a failed
// request only on a connection that was used before.
func Send(ctx context.Context, r Request) (a Answer) {
	transport, err := r.newTransport()
	if err != nil {
		return Answer{Err: err}
	}
	dialer := dial.New(dial.Config{})
	defer dialer.Close()
	transport.DialContext = dialer.DialContext
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, r.Method, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return Answer{Err: errors.New("the URL or the method is wrong")} // the error itself contains the URL
	}
	request.Header = r.Header.Clone()
	request.Host = r.Header.Get("Host")
	response, err := (&http.Client{Transport: transport, CheckRedirect: r.checkRedirect}).Do(request)
	if err != nil {
		return Answer{Err: errors.New("no answer: " + failureReason(err))}
	}
	defer response.Body.Close()
	output, body := process.NewOutput(r.Keep, r.Line), &io.LimitedReader{R: response.Body, N: MaxAnswer + 1}
	err = output.PassLines("stdout", body)
	a.Status = response.StatusCode
	a.Tail, a.Cut = output.Tail()
	switch {
	case !r.Expected(a.Status) && a.Status/100 == 3:
		a.Err = fmt.Errorf("the answer is %s, which was not followed", StatusText(a.Status))
	case !r.Expected(a.Status):
		a.Err = errors.New("the answer is " + StatusText(a.Status))
	case err != nil:
		a.Err = errors.New("the answer broke off: " + failureReason(err))
	case body.N == 0:
		a.Err = errors.New("the answer is longer than " + units.FormatSize(MaxAnswer))
	}
	return a
}

// StatusText returns a status code with its name, such as "404 Not Found". The name is the standard one, because the server's may be any text.
func StatusText(status int) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", status, http.StatusText(status)))
}

func (r *Request) newTransport() (*http.Transport, error) {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, DisableCompression: true, TLSHandshakeTimeout: handshakeTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, ServerName: r.TLS.ServerName},
		OnProxyConnectResponse: func(_ context.Context, _ *url.URL, _ *http.Request, answer *http.Response) error {
			if answer.StatusCode != http.StatusOK {
				return proxyError(answer.StatusCode)
			}
			return nil
		}}
	if len(r.TLS.CA) > 0 {
		t.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(r.TLS.CA) {
			return nil, errors.New("ca_file holds no certificate")
		}
	}
	if len(r.TLS.Cert) > 0 {
		pair, err := tls.X509KeyPair(r.TLS.Cert, r.TLS.Key)
		if err != nil {
			return nil, fmt.Errorf("read cert_file and key_file: %w", err)
		}
		t.TLSClientConfig.Certificates = []tls.Certificate{pair}
	}
	switch r.Proxy {
	case "":
	case "none":
		t.Proxy = nil
	default:
		proxy, err := url.Parse(r.Proxy)
		if err != nil {
			return nil, errors.New("the URL of the proxy is wrong") // the error itself contains the URL
		}
		t.Proxy = http.ProxyURL(proxy)
	}
	return t, nil
}

// checkRedirect stops at the permitted number of redirects; the redirect is then the answer. A redirect to another host, or to one without TLS, loses all
// headers of the job, because they may be secrets. With a body, a client certificate or a ServerName it is not followed: the body may be a secret, the
// certificate would sign this client in at a server that the job does not name, and a ServerName is the name of the job's server alone.
func (r *Request) checkRedirect(next *http.Request, via []*http.Request) error {
	if len(via) > r.Redirects {
		return http.ErrUseLastResponse
	}
	next.Header.Del("Referer") // net/http has set it to the last URL
	for _, hop := range slices.Concat(via[1:], []*http.Request{next}) {
		if from, to := via[0].URL, hop.URL; from.Host == to.Host && (from.Scheme == to.Scheme || to.Scheme == "https") {
			continue
		}
		if next.Body != nil && next.Body != http.NoBody || len(r.TLS.Cert) > 0 || r.TLS.ServerName != "" {
			return http.ErrUseLastResponse
		}
		next.Header = http.Header{"User-Agent": r.Header["User-Agent"]}
		next.Host = ""
	}
	return nil
}

// proxyError is the status code of a proxy that did not open a connection.
type proxyError int

func (e proxyError) Error() string { return "the proxy answered " + StatusText(int(e)) }

func failureReason(err error) string {
	if refused, ok := errors.AsType[proxyError](err); ok {
		return refused.Error()
	}
	return dial.FailureReason(err)
}
