package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/config"
)

const (
	beatTimeout   = 10 * time.Second
	beatLookEvery = 5 * time.Second // how soon a heartbeat begins that a reload has added
	mostRedirects = 5
)

// heartbeat is the leader's sign of life to a service that tells when there is none any more. The URL may be a secret: no message has more of
// it than the host.
type heartbeat struct {
	client *http.Client
	log    hclog.Logger
	config func() config.Heartbeat // that is in force
	fault  func(string)            // tells status what is wrong; "" for nothing

	url    string    // of the last one; "" before the first
	sent   time.Time // when that was
	silent bool      // and nobody heard it
}

// beat sends the heartbeat until ctx ends.
func (r *replica) beat(ctx context.Context) {
	h := heartbeat{client: newBeatClient(), log: r.log, config: func() config.Heartbeat { return r.cfg.Load().Heartbeat },
		fault: func(what string) { r.heartless.Store(&what) }}
	defer h.client.CloseIdleConnections()
	h.run(ctx)
}

// newBeatClient follows a redirection only to where the first request went: a secret may be in the path of what is asked for.
func newBeatClient() *http.Client {
	return &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment}, Timeout: beatTimeout,
		CheckRedirect: func(next *http.Request, via []*http.Request) error {
			if len(via) > mostRedirects || next.URL.Host != via[0].URL.Host || next.URL.Scheme != via[0].URL.Scheme {
				return http.ErrUseLastResponse
			}
			return nil
		}}
}

// run sends one at once, and then one in each period, until ctx ends. It looks now and then whether a reload has changed what is wanted.
func (h *heartbeat) run(ctx context.Context) {
	defer h.fault("") // it is another leader's now
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		cfg, pause := h.config(), beatLookEvery
		switch {
		case cfg.URL == "":
			h.url, h.silent = "", false
			h.fault("")
		case cfg.URL != h.url || time.Since(h.sent) >= cfg.Every:
			h.url, h.sent = cfg.URL, time.Now()
			if err := h.send(ctx); ctx.Err() == nil {
				h.tell(err)
			}
			fallthrough
		default:
			pause = min(pause, max(0, cfg.Every-time.Since(h.sent)))
		}
		timer.Reset(pause)
	}
}

// send asks for the URL once. Its error names no part of it.
func (h *heartbeat) send(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url, nil)
	if err != nil {
		return errors.New("the URL is wrong") // it was checked
	}
	request.Header.Set("User-Agent", "cronclave/"+version)
	answer, err := h.client.Do(request)
	if err != nil {
		var told *url.Error // which has the URL
		if errors.As(err, &told) {
			err = told.Err
		}
		return fmt.Errorf("no answer: %w", err)
	}
	defer answer.Body.Close()
	const most = 64 << 10 // of what nobody reads, so that the connection can be used again
	_, _ = io.CopyN(io.Discard, answer.Body, most)
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("the answer is %d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
	}
	return nil
}

// tell logs a change, and has status tell what is wrong.
func (h *heartbeat) tell(err error) {
	to := origin(h.url)
	switch {
	case err == nil && h.silent:
		h.log.Info("the heartbeat is heard again", "url", to)
	case err != nil && !h.silent:
		h.log.Error("the heartbeat is not heard", "url", to, "error", err)
	}
	h.silent = err != nil
	what := ""
	if err != nil {
		const most = 200 // it is told every few seconds
		what = shortened(fmt.Sprintf("the heartbeat to %s is not heard: %v", to, err), most)
	}
	h.fault(what)
}

// origin is what may be told of a URL that may be a secret.
func origin(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "?"
	}
	return u.Scheme + "://" + u.Host
}
