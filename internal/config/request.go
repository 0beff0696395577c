package config

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// HTTP is the request of a job without a command.
type HTTP struct {
	// Method is GET, or POST with a body, if it is not set.
	Method string
	URL    Written
	HeaderTable
	Body, BodyFile Written // at most one of them is set
	// Expect has the status codes of an ok run.
	Expect []StatusRange
	// Redirects is the maximum number of redirects to follow.
	Redirects int
	// Proxy is a URL, "none", or "" for the proxy of the environment.
	Proxy Written
	// TLS has the certificates. The digest covers its paths as they are written in the file.
	TLS TLS `json:"-"`
}

// A HeaderTable has the headers of a request.
type HeaderTable struct {
	Headers map[string]Written
	// HeadersFromFile maps headers to files with their values. No header is in both.
	HeadersFromFile map[string]Written

	named map[string]bool // the headers in `headers` of the table that is being read
}

// A Written is a value, and its text in the file, without variables replaced or paths resolved. Digests cover this text. The value may be a secret, so a
// Written prints as ***.
type Written struct{ Value, text string }

// String returns a mask.
func (Written) String() string { return "***" }

// MarshalJSON returns the text in the file.
func (w Written) MarshalJSON() ([]byte, error) { return strconv.AppendQuote(nil, w.text), nil }

// A StatusRange is a range of status codes, with both ends.
type StatusRange struct{ From, To int }

// Expects reports whether a status code is one of an ok run.
func (h *HTTP) Expects(status int) bool {
	return slices.ContainsFunc(h.Expect, func(r StatusRange) bool { return r.From <= status && status <= r.To })
}

// Origin returns the scheme and the host of the URL, which may be shown.
func (h *HTTP) Origin() string {
	u, err := url.Parse(h.URL.Value)
	if err != nil {
		return "?"
	}
	return u.Scheme + "://" + u.Host
}

// HeaderNames returns the names of all headers, sorted.
func (h *HeaderTable) HeaderNames() []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(h.Headers)), maps.Keys(h.HeadersFromFile))
	slices.Sort(names)
	return names
}

func newHTTP() *HTTP {
	return &HTTP{HeaderTable: newHeaderTable(), Expect: []StatusRange{{200, 299}}}
}

func newHeaderTable() HeaderTable {
	return HeaderTable{Headers: map[string]Written{}, HeadersFromFile: map[string]Written{}}
}

func (h *HTTP) clone() *HTTP {
	if h == nil {
		return nil
	}
	c := *h
	c.Headers, c.HeadersFromFile, c.named = maps.Clone(h.Headers), maps.Clone(h.HeadersFromFile), nil
	return &c
}

// Traces is the OpenTelemetry collector that receives traces of runs.
type Traces struct {
	// URL is the traces endpoint of the collector; "" means no traces. It may be a secret.
	URL string
	HeaderTable
	// Timeout bounds a request. Defaults to 10s.
	Timeout time.Duration
}

// TLS has the paths of PEM files, and the name that the certificate of the Redis server must contain. Each may be "".
type TLS struct {
	CAFile, CertFile, KeyFile, ServerName string
}
