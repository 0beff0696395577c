package leader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/dial"
)

const (
	beatTimeout   = 10 * time.Second
	beatLookEvery = 5 * time.Second // maximum delay until a changed configuration takes effect
	mostRedirects = 5
)

// A heartbeat sends regular requests of the leader to a service that alerts when the requests stop. Its URL may be a secret, so messages contain only the host.
type heartbeat struct {
	client  *http.Client
	version string
	log     hclog.Logger
	config  func() config.Heartbeat
	fault   func(string) // sets the error that status shows; "" for none

	url    string // URL of the last request; "" before the first
	sent   time.Time
	silent bool // the last request to url failed
}

// newBeatClient returns a client that follows redirections only to the same scheme and host, because the path may contain a secret.
func newBeatClient() *http.Client {
	return &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: dial.New(dial.Config{}).DialContext}, Timeout: beatTimeout,
		CheckRedirect: func(next *http.Request, via []*http.Request) error {
			if len(via) > mostRedirects || next.URL.Host != via[0].URL.Host || next.URL.Scheme != via[0].URL.Scheme {
				return http.ErrUseLastResponse
			}
			return nil
		}}
}

// run sends a heartbeat at once, and then one per period, until ctx ends. It checks every few seconds whether a reload has changed the URL or the period.
func (h *heartbeat) run(ctx context.Context) {
	defer h.client.CloseIdleConnections()
	defer h.fault("") // the next leader reports its own errors
	for ctx.Err() == nil {
		cfg, pause := h.config(), beatLookEvery
		switch {
		case cfg.URL == "":
			h.url, h.silent = "", false
			h.fault("")
		case cfg.URL != h.url || time.Since(h.sent) >= cfg.Every:
			h.silent = h.silent && cfg.URL == h.url
			h.url, h.sent = cfg.URL, time.Now()
			if err := h.sendOnce(ctx); ctx.Err() == nil {
				h.reportResult(err)
			}
			fallthrough
		default:
			pause = min(pause, max(0, cfg.Every-time.Since(h.sent)))
		}
		backoff.Sleep(ctx, pause)
	}
}

// sendOnce sends one request. Its error contains no part of the URL.
func (h *heartbeat) sendOnce(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url, nil)
	if err != nil {
		return errors.New("the URL is wrong") // not reached: the configuration was validated
	}
	request.Header.Set("User-Agent", "cronclave/"+h.version)
	answer, err := h.client.Do(request)
	if err != nil {
		return errors.New("no answer: " + dial.FailureReason(err)) // the error itself contains the URL, or the URL of a redirection
	}
	defer answer.Body.Close()
	const most = 64 << 10 // maximum number of bytes of the body to read, so that the connection can be reused
	_, _ = io.CopyN(io.Discard, answer.Body, most)
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("the answer is %d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
	}
	return nil
}

// reportResult logs the result if it differs from the last one, and sets the error that status shows.
func (h *heartbeat) reportResult(err error) {
	to := originOf(h.url)
	switch {
	case err == nil && h.silent:
		h.log.Info("heartbeat succeeds again", "url", to)
	case err != nil && !h.silent:
		h.log.Error("heartbeat failed", "url", to, "error", err)
	}
	h.silent = err != nil
	what := ""
	if err != nil {
		const most = 200 // short, because each registration of the leader repeats the text, every few seconds
		what = cluster.FirstLine(fmt.Sprintf("the heartbeat to %s failed: %v", to, err), most)
	}
	h.fault(what)
}

// originOf returns the scheme and host of a URL. They may be shown even if the URL is a secret.
func originOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "?"
	}
	return u.Scheme + "://" + u.Host
}
