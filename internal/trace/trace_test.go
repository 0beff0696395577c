package trace

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/dial"
)

var update = flag.Bool("update", false, "write the request that is sent as the wanted one")

func TestParseContext(t *testing.T) {
	t.Parallel()
	const valid = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	c, ok := ParseContext(valid)
	if !ok || !c.Sampled || c.Traceparent() != valid {
		t.Errorf("%v, %v", c, ok)
	}
	child := c.Child()
	if child.Trace != c.Trace || child.Span == c.Span || !child.Sampled {
		t.Errorf("%v is no child of %v", child, c)
	}
	for text, want := range map[string]bool{
		strings.Replace(valid, "-01", "-00", 1):            true,
		strings.Replace(valid, "00-", "01-", 1) + "-later": true,
		valid + "-more":                                           false,
		strings.Replace(valid, "00-", "ff-", 1):                   false,
		strings.ToUpper(valid):                                    false,
		strings.Replace(valid, "4bf9", "4bfx", 1):                 false,
		strings.Replace(valid, "4bf9", "4bf", 1):                  false,
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01": false,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01": false,
		"": false,
	} {
		if _, ok := ParseContext(text); ok != want {
			t.Errorf("%q is valid: %v", text, ok)
		}
	}
}

// collector records requests. It answers each with the next status, and the last one from then on.
type collector struct {
	*httptest.Server
	bodies   []string
	headers  []http.Header
	statuses []int
	answer   string
}

func newCollector(t *testing.T, statuses ...int) *collector {
	c := &collector{statuses: statuses, answer: `{"partialSuccess":{}}`}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		status := c.statuses[min(len(c.bodies), len(c.statuses)-1)]
		c.bodies, c.headers = append(c.bodies, string(body)), append(c.headers, r.Header)
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, c.answer)
	}))
	t.Cleanup(c.Close)
	return c
}

// newExporter returns an exporter to a URL, and its log.
func newExporter(url string) (*Exporter, *bytes.Buffer) {
	log := &bytes.Buffer{}
	return New(Config{Version: "v1", Resource: []Attribute{{"service.name", "cronclave"}, {"service.namespace", "prod"}}, Log: hclog.New(&hclog.LoggerOptions{Output: log}),
		Settings: func() Settings {
			return Settings{URL: url, Timeout: 20 * time.Second, Header: func(context.Context) (http.Header, error) { return http.Header{"Authorization": {"s3cr3t"}}, nil }}
		}}), log
}

func exampleSpans() []Span {
	root := Context{Trace: [16]byte{0x4b, 0xf9, 15: 0x36}, Span: [8]byte{0xAB, 7: 1}, Sampled: true}
	at := time.Date(2026, 11, 27, 3, 0, 0, 5, time.UTC)
	return []Span{
		{Context: root, Name: "run backup", Kind: Internal, Start: at, End: at.Add(time.Minute), Failed: true, Message: "failed: exit code 3",
			Attributes: []Attribute{{"cronclave.job", "backup"}, {"cronclave.token", int64(9007199254740991)}}},
		{Context: Context{Trace: root.Trace, Span: [8]byte{2}}, Parent: root.Span, Name: "backup", Kind: Client, Start: at.Add(time.Second), End: at.Add(time.Minute),
			Attributes: []Attribute{{"process.executable.name", "backup \"\u00e9\xff"}, {"process.exit.code", int64(0)}, {"long", strings.Repeat("x", 2*mostOfAText)}}},
	}
}

// TestRequest compares a whole request with testdata/request.json.
func TestRequest(t *testing.T) {
	t.Parallel()
	c := newCollector(t, http.StatusOK)
	e, log := newExporter(c.URL)
	defer e.dialer.Close()
	e.Add(exampleSpans()...)
	if _, err := e.sendWaiting(t.Context()); err != nil || len(c.bodies) != 1 || e.Dropped() != 0 || log.Len() > 0 {
		t.Fatalf("%v, %d requests, %s", err, len(c.bodies), log)
	}
	var got bytes.Buffer
	if err := json.Indent(&got, []byte(c.bodies[0]), "", "  "); err != nil {
		t.Fatal(err)
	}
	got.WriteByte('\n')
	const golden = "testdata/request.json"
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || got.String() != string(want) {
		t.Errorf("%v\n%s", err, &got)
	}
	if h := c.headers[0]; h.Get("Content-Type") != "application/json" || h.Get("Authorization") != "s3cr3t" {
		t.Errorf("headers %v", h)
	}
}

// TestAnswersOfACollector has the answers after which OTLP permits to send the same spans again, and those after which it does not.
func TestAnswersOfACollector(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{
		http.StatusOK: "sent", http.StatusTooManyRequests: "again", http.StatusBadGateway: "again", http.StatusServiceUnavailable: "again", http.StatusGatewayTimeout: "again",
		http.StatusBadRequest: "dropped", http.StatusUnauthorized: "dropped", http.StatusInternalServerError: "dropped", http.StatusFound: "dropped",
	} {
		c := newCollector(t, status)
		e, log := newExporter(c.URL + "/s3cr3t")
		e.Add(exampleSpans()...)
		wait, err := e.sendWaiting(t.Context())
		got := "sent"
		switch {
		case err != nil && len(e.waiting) == 2 && wait == 7*time.Second:
			got = "again"
		case err == nil && len(e.waiting) == 0 && e.Dropped() == 2 && strings.Contains(log.String(), "trace spans dropped"):
			got = "dropped"
		case err != nil || len(e.waiting) > 0 || e.Dropped() > 0:
			got = fmt.Sprint(wait, err, e.waiting, e.Dropped())
		}
		if got != want || strings.Contains(fmt.Sprint(err, log), "s3cr3t") {
			t.Errorf("%d: %s, want %s\n%s", status, got, want, log)
		}
		e.dialer.Close()
	}
	c := newCollector(t, http.StatusOK)
	e, _ := newExporter(c.URL)
	defer e.dialer.Close()
	for answer, dropped := range map[string]uint64{`{"partialSuccess":{"rejectedSpans":"1"}}`: 1, `{"partialSuccess":{"rejectedSpans":2}}`: 2, `{"partialSuccess":{"errorMessage":"hm"}}`: 0, "<html>": 0} {
		c.answer = answer
		before := e.Dropped()
		e.Add(exampleSpans()...)
		if _, err := e.sendWaiting(t.Context()); err != nil || e.Dropped()-before != dropped || len(e.waiting) > 0 {
			t.Errorf("%s: %v, %d dropped", answer, err, e.Dropped()-before)
		}
	}
}

// Spans that wait are bounded. Drops are counted, and logged once until the collector accepts spans again.
func TestFullQueue(t *testing.T) {
	t.Parallel()
	c := newCollector(t, http.StatusServiceUnavailable, http.StatusOK)
	e, log := newExporter(c.URL)
	defer e.dialer.Close()
	for round := range 2 {
		e.Add(make([]Span, MostWaiting-1)...)
		e.Add(make([]Span, 3)...)
		e.Add(make([]Span, 3)...)
		if n := uint64(5 * (round + 1)); e.Dropped() != n || len(e.waiting) != MostWaiting || strings.Count(log.String(), "trace spans dropped") != round+1 {
			t.Errorf("%d of %d dropped\n%s", e.Dropped(), n, log)
		}
		if _, err := e.sendWaiting(t.Context()); (err == nil) != (round == 1) {
			t.Error(err)
		}
		if round == 0 {
			_, _ = e.sendWaiting(t.Context())
		}
	}
	if want := 1 + 2*MostWaiting/mostInBatch; len(c.bodies) != want {
		t.Errorf("%d requests, want %d", len(c.bodies), want)
	}
}

// Run sends what waits at its end. A collector that is away costs a bounded time, and an exporter that is off nothing.
func TestEndOfRun(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	c := newCollector(t, http.StatusOK)
	for url, want := range map[string]uint64{c.URL: 0, "http://127.0.0.1:1": 2, "": 0} {
		e, log := newExporter(url)
		e.Add(exampleSpans()...)
		e.Run(ended)
		if e.Dropped() != want || strings.Contains(log.String(), "dropped") != (want > 0) || len(e.waiting) > 0 {
			t.Errorf("%s: %d dropped, %d waiting\n%s", url, e.Dropped(), len(e.waiting), log)
		}
	}
	if len(c.bodies) != 1 {
		t.Errorf("%d requests", len(c.bodies))
	}
	e, log := newExporter(c.URL)
	off := e.cfg.Settings()
	off.Header = func(context.Context) (http.Header, error) { return nil, errors.New("no file") }
	e.cfg.Settings = func() Settings { return off }
	e.Add(exampleSpans()...)
	if e.Run(ended); e.Dropped() != 2 || !strings.Contains(log.String(), "no file") {
		t.Errorf("%d dropped\n%s", e.Dropped(), log)
	}
}

// roundTrip answers the requests of a client.
type roundTrip func() (status int, err error)

func (f roundTrip) RoundTrip(*http.Request) (*http.Response, error) {
	status, err := f()
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: status, Body: http.NoBody}, nil
}

// A failure is a warning when it begins, long before spans are dropped, and its end is logged. In between there is no line, unless the URL changes.
func TestBeginAndEndOfAFailureAreLogged(t *testing.T) {
	t.Parallel()
	const phase = 10 * time.Minute
	refused := &dial.Error{Step: "connect to collector.example:4318", Err: errors.New("connection refused")}
	phases := []struct {
		url       string
		file, err error
		status    int
		log       string // the lines of this phase
	}{
		{url: "http://one.example/s3cr3t", file: errors.New("headers_from_file Authorization: open f: no such file or directory"),
			log: "[WARN]  trace spans not sent; trying again: error=\"headers_from_file Authorization: open f: no such file or directory\"\n"},
		{url: "http://one.example/s3cr3t", err: refused},
		{url: "http://one.example/s3cr3t", status: http.StatusOK, log: "[INFO]  trace spans are sent again\n"},
		{url: "http://one.example/s3cr3t", status: http.StatusServiceUnavailable,
			log: "[WARN]  trace spans not sent; trying again: error=\"the answer is 503 Service Unavailable\"\n"},
		{url: "http://one.example/s3cr3t", status: http.StatusOK, log: "[INFO]  trace spans are sent again\n"},
		{url: "http://one.example/s3cr3t", err: refused,
			log: "[WARN]  trace spans not sent; trying again: error=\"no answer: connect to collector.example:4318: connection refused\"\n"},
		{url: "http://two.example/s3cr3t", err: x509.UnknownAuthorityError{},
			log: "[WARN]  trace spans not sent; trying again: error=\"no answer: its certificate is of an unknown authority\"\n"},
		{url: "http://two.example/s3cr3t", status: http.StatusForbidden,
			log: "[WARN]  trace spans dropped; more are only counted until the collector takes some: dropped=N error=\"the answer is 403 Forbidden\"\n"},
		{url: "http://two.example/s3cr3t", status: http.StatusOK, log: "[INFO]  trace spans are sent again\n"},
		{}, // off
		{url: "http://two.example/s3cr3t", status: http.StatusOK},
	}
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		now := func() int { return min(int(time.Since(begin)/phase), len(phases)-1) }
		e, log := newExporter("")
		e.client.Transport = roundTrip(func() (int, error) { return phases[now()].status, phases[now()].err })
		e.cfg.Settings = func() Settings {
			p := phases[now()]
			return Settings{URL: p.url, Timeout: time.Second, Header: func(context.Context) (http.Header, error) { return http.Header{}, p.file }}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { e.Run(ctx) })
		for time.Since(begin) < time.Duration(len(phases))*phase {
			e.Add(exampleSpans()...)
			time.Sleep(10 * time.Second) // of fake time
		}
		cancel()
		running.Wait()
		got, want := "", ""
		for line := range strings.Lines(log.String()) {
			_, text, _ := strings.Cut(line, " ")
			got += regexp.MustCompile(`dropped=\d+`).ReplaceAllString(text, "dropped=N")
		}
		for _, p := range phases {
			want += p.log
		}
		if got != want {
			t.Errorf("the log is\n%s\nwant\n%s", got, want)
		}
	})
}
