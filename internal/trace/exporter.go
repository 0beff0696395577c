package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/dial"
)

const (
	// MostWaiting is the number of spans that may wait to be sent. Further spans are dropped.
	MostWaiting = 4096
	// mostInBatch is the number of spans in one request, and sendEvery the time after which fewer spans are sent.
	mostInBatch = 512
	sendEvery   = 2 * time.Second
	// lastFlush bounds the time to send the rest at the end of Run, because the process is about to end.
	lastFlush = 2 * time.Second
	// The pauses after a failure. A longer Retry-After of the collector is cut.
	firstPause, longestPause = time.Second, time.Minute
	maxAnswer                = 64 << 10
)

// Settings are the settings of an [Exporter] that may change while it runs.
type Settings struct {
	// URL is the traces endpoint of a collector. "" turns the exporter off. It may be a secret.
	URL string
	// Header returns the headers of a request. Its error must contain no secret.
	Header func(ctx context.Context) (http.Header, error)
	// Timeout bounds a request.
	Timeout time.Duration
}

// Config configures an [Exporter].
type Config struct {
	// Settings returns the current settings. It is called often.
	Settings func() Settings
	// Resource describes this process. Version is its version.
	Resource []Attribute
	Version  string
	Log      hclog.Logger
}

// An Exporter sends spans in batches. It is safe for concurrent use.
type Exporter struct {
	cfg    Config
	dialer *dial.Dialer
	client *http.Client
	wake   chan struct{} // of capacity 1; holds a value while a whole batch is waiting

	mu      sync.Mutex
	waiting []Span
	dropped uint64
	failing bool   // spans were dropped since the last success
	silent  string // the URL at which an attempt has failed since the last success, or ""
}

// New returns an Exporter. It sends nothing until [Exporter.Run].
func New(cfg Config) *Exporter {
	e := &Exporter{cfg: cfg, dialer: dial.New(dial.Config{}), wake: make(chan struct{}, 1)}
	e.client = &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: e.dialer.DialContext},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }} // headers may be secrets
	return e
}

// Enabled reports whether spans are sent.
func (e *Exporter) Enabled() bool { return e.cfg.Settings().URL != "" }

// Add queues spans. It never waits: if too many spans are waiting, the new ones are dropped.
func (e *Exporter) Add(spans ...Span) {
	if !e.Enabled() {
		return
	}
	e.mu.Lock()
	fit := min(len(spans), MostWaiting-len(e.waiting))
	e.waiting = append(e.waiting, spans[:fit]...)
	full := len(e.waiting) >= mostInBatch
	e.mu.Unlock()
	e.noteDropped(len(spans)-fit, errors.New("too many spans wait for the collector"))
	if full {
		select {
		case e.wake <- struct{}{}:
		default:
		}
	}
}

// Dropped returns the number of spans that were dropped.
func (e *Exporter) Dropped() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.dropped
}

// noteDropped counts dropped spans. It logs the first ones after a success.
func (e *Exporter) noteDropped(n int, why error) {
	if n <= 0 {
		return
	}
	e.mu.Lock()
	first := !e.failing
	e.dropped, e.failing = e.dropped+uint64(n), true
	e.mu.Unlock()
	if first {
		e.cfg.Log.Warn("trace spans dropped; more are only counted until the collector takes some", "dropped", n, "error", why)
	}
}

// noteFailure logs a failed attempt to send spans. Only the first one after a success, or at another URL, is a warning. Without it, a wrong setting would
// show only when the queue of spans is full.
func (e *Exporter) noteFailure(why error) {
	url, level := e.cfg.Settings().URL, hclog.Debug
	e.mu.Lock()
	if e.silent != url {
		e.silent, level = url, hclog.Warn
	}
	e.mu.Unlock()
	e.cfg.Log.Log(level, "trace spans not sent; trying again", "error", why)
}

// noteSuccess logs the first success after a failure.
func (e *Exporter) noteSuccess() {
	e.mu.Lock()
	first := e.failing || e.silent != ""
	e.failing, e.silent = false, ""
	e.mu.Unlock()
	if first {
		e.cfg.Log.Info("trace spans are sent again")
	}
}

// Run sends spans until ctx ends, and then the rest, within lastFlush.
func (e *Exporter) Run(ctx context.Context) {
	defer e.dialer.Close()
	defer e.client.CloseIdleConnections()
	pauses := backoff.New(firstPause, longestPause)
	for {
		timer := time.NewTimer(sendEvery)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-e.wake:
		}
		timer.Stop()
		if ctx.Err() != nil {
			break
		}
		if wait, err := e.sendWaiting(ctx); err != nil {
			if ctx.Err() == nil { // otherwise the end of ctx is the reason, and the spans are sent below
				e.noteFailure(err)
			}
			backoff.Sleep(ctx, min(max(wait, pauses.Next()), longestPause))
			continue
		}
		pauses.Reset()
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastFlush)
	defer cancel()
	if _, err := e.sendWaiting(last); err != nil {
		e.mu.Lock()
		n := len(e.waiting)
		e.waiting = nil
		e.mu.Unlock()
		e.noteDropped(n, err)
	}
}

// sendWaiting sends the waiting spans, batch by batch. After an error, the spans wait for the next call. wait is the pause that the collector asked for.
func (e *Exporter) sendWaiting(ctx context.Context) (wait time.Duration, err error) {
	for {
		e.mu.Lock()
		batch := e.waiting[:min(len(e.waiting), mostInBatch)]
		e.mu.Unlock()
		settings := e.cfg.Settings()
		if len(batch) == 0 {
			return 0, nil
		}
		if settings.URL == "" { // a reload has turned the exporter off
			e.mu.Lock()
			e.waiting, e.failing, e.silent = nil, false, ""
			e.mu.Unlock()
			return 0, nil
		}
		var rejected int
		rejected, wait, err = e.sendBatch(ctx, settings, batch)
		if err != nil && rejected == 0 {
			return wait, err
		}
		e.mu.Lock()
		e.waiting = append([]Span(nil), e.waiting[len(batch):]...)
		e.mu.Unlock()
		if err == nil {
			e.noteSuccess()
		}
		e.noteDropped(rejected, err)
	}
}

// sendBatch sends spans in one request. If the spans must not be sent again, rejected is the number of spans that the collector refused for good, and err
// has the reason. Otherwise rejected is 0 and err is the error of an attempt that may be repeated.
func (e *Exporter) sendBatch(ctx context.Context, s Settings, spans []Span) (rejected int, wait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, bytes.NewReader(encodeSpans(e.cfg.Resource, e.cfg.Version, spans)))
	if err != nil {
		return len(spans), 0, errors.New("the URL is wrong") // the error itself contains the URL
	}
	if request.Header, err = s.Header(ctx); err != nil {
		return 0, 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := e.client.Do(request)
	if err != nil {
		return 0, 0, errors.New("no answer: " + dial.FailureReason(err))
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	switch err = fmt.Errorf("the answer is %d %s", answer.StatusCode, http.StatusText(answer.StatusCode)); answer.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout: // OTLP forbids to repeat any other
		seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After")) // its other form, a date, counts as none
		return 0, min(time.Duration(max(seconds, 0))*time.Second, longestPause), err
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		n := min(rejectedSpans(body), len(spans))
		if n == 0 {
			return 0, 0, nil
		}
		return n, 0, errors.New("the collector accepted only a part of a request")
	}
	return len(spans), 0, err
}

// rejectedSpans returns the number of rejected spans in an ExportTraceServiceResponse. An answer of another form counts as a full success.
func rejectedSpans(body []byte) int {
	var answer struct {
		PartialSuccess struct {
			RejectedSpans json.RawMessage `json:"rejectedSpans"` // a number, or a string with one
		} `json:"partialSuccess"`
	}
	_ = json.Unmarshal(body, &answer)
	n, _ := strconv.Atoi(string(bytes.Trim(answer.PartialSuccess.RejectedSpans, `"`)))
	return max(n, 0)
}
