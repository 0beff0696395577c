package leader

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/config"
)

// listener hears heartbeats, in fake time, and answers each with the next of its statuses: 0 is none.
type listener struct {
	begin  time.Time
	mu     sync.Mutex
	heard  []time.Duration
	answer []int
}

// RoundTrip hears one.
func (l *listener) RoundTrip(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.heard)
	l.heard = append(l.heard, time.Since(l.begin))
	if n >= len(l.answer) {
		n = len(l.answer) - 1
	}
	if l.answer[n] == 0 {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	return &http.Response{StatusCode: l.answer[n], Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
}

func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		ear := &listener{begin: time.Now(), answer: []int{200, 500, 0, 500, 204, 200, 200, 200, 500, 500, 500, 200}}
		cfg := config.Heartbeat{URL: "http://hc.example/s3cr3t", Every: time.Minute}
		fault := "?"
		h := heartbeat{client: &http.Client{Transport: ear}, log: hclog.New(&hclog.LoggerOptions{Output: &said, DisableTime: true}),
			config: func() config.Heartbeat { ear.mu.Lock(); defer ear.mu.Unlock(); return cfg },
			fault:  func(what string) { ear.mu.Lock(); defer ear.mu.Unlock(); fault = what }}
		reload := func(edit func()) { ear.mu.Lock(); defer ear.mu.Unlock(); edit() }
		ctx, cancel := context.WithCancel(t.Context())
		var term sync.WaitGroup
		term.Go(func() { h.run(ctx) })
		at := func(d time.Duration, beats int, wants string) {
			t.Helper()
			time.Sleep(time.Until(ear.begin.Add(d)))
			synctest.Wait()
			ear.mu.Lock()
			defer ear.mu.Unlock()
			if len(ear.heard) != beats || fault != wants {
				t.Errorf("after %v: heard at %v, fault %q; want %d and %q", d, ear.heard, fault, beats, wants)
			}
		}
		const to = "the heartbeat to http://hc.example failed: "
		at(0, 1, "")
		at(time.Minute, 2, to+"the answer is 500 Internal Server Error")
		at(2*time.Minute, 3, to+"no answer: connection refused")
		at(3*time.Minute+59*time.Second, 4, to+"the answer is 500 Internal Server Error")
		at(4*time.Minute, 5, "")
		reload(func() { cfg.Every = 10 * time.Second })
		at(4*time.Minute+10*time.Second, 6, "")
		at(4*time.Minute+30*time.Second, 8, "")
		reload(func() { cfg.URL = "" })
		at(10*time.Minute, 8, "")
		reload(func() { cfg.URL = "http://other.example" })
		const toOther, toThird = "the heartbeat to http://other.example failed: ", "the heartbeat to http://third.example failed: "
		at(10*time.Minute+beatLookEvery, 9, toOther+"the answer is 500 Internal Server Error")
		reload(func() { cfg.URL = "http://third.example" }) // which fails, too: another service has not been named in the log
		at(10*time.Minute+2*beatLookEvery, 10, toThird+"the answer is 500 Internal Server Error")
		reload(func() { cfg.URL, cfg.Every = "http://fourth.example", time.Hour })
		at(10*time.Minute+3*beatLookEvery, 11, "the heartbeat to http://fourth.example failed: the answer is 500 Internal Server Error")
		reload(func() { cfg.URL = "http://fifth.example" }) // which never failed
		at(10*time.Minute+4*beatLookEvery, 12, "")
		reload(func() { fault = "?" })
		cancel()
		term.Wait()
		at(time.Hour, 12, "")
		log := said.String()
		if strings.Count(log, "heartbeat failed") != 4 || strings.Count(log, "heartbeat succeeds again") != 1 || strings.Contains(log, "s3cr3t") {
			t.Errorf("the log:\n%s", log)
		}
	})
}

// The URL of a heartbeat appears in no message, whatever the server answers.
func TestHeartbeatKeepsItsURL(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("followed to %s, from %q", r.URL, r.Referer())
	}))
	defer elsewhere.Close()
	asked := make(chan struct{}, 1)
	here := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/s3cr3t/away":
			http.Redirect(w, r, elsewhere.URL+"/s3cr3t", http.StatusFound)
		case "/s3cr3t/round":
			http.Redirect(w, r, "/s3cr3t/round", http.StatusFound)
		case "/s3cr3t/near":
			http.Redirect(w, r, "/there", http.StatusFound)
		case "/s3cr3t/garbled":
			w.Header().Set("Location", "http://[s3cr3t/")
			w.WriteHeader(http.StatusFound)
		case "/s3cr3t/silent":
			asked <- struct{}{}
			<-r.Context().Done()
		}
	}))
	defer here.Close()
	h := heartbeat{client: newBeatClient()}
	defer h.client.CloseIdleConnections()
	send := func(ctx context.Context, url, want string) {
		t.Helper()
		h.url = url
		err := fmt.Sprint(h.sendOnce(ctx))
		if !strings.Contains(err, want) || strings.Contains(err, "s3cr3t") {
			t.Errorf("%s: %s, want %s", url, err, want)
		}
	}
	send(t.Context(), here.URL+"/s3cr3t/near", "<nil>")
	send(t.Context(), here.URL+"/s3cr3t/away", "302 Found")
	send(t.Context(), here.URL+"/s3cr3t/round", "302 Found")
	send(t.Context(), "http://127.0.0.1:1/s3cr3t", "no answer: connect to 127.0.0.1:1: connect: connection refused")
	send(t.Context(), here.URL+"/s3cr3t/garbled", "no answer: its answer is no HTTP that can be followed")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel() // the term is over
	}()
	send(ctx, here.URL+"/s3cr3t/silent", "no answer: the request was given up")
	if h.client.Timeout != beatTimeout {
		t.Errorf("it waits for %v", h.client.Timeout)
	}
}
