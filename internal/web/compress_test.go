package web

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Large answers are compressed for clients that accept it. An answer that has not changed is not sent again.
func TestAnswersAreCompressedAndTagged(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("job nightly-backup ok ", 500)
	mux := http.NewServeMux()
	for path, handle := range map[string]http.HandlerFunc{
		"/long":  func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, long) },
		"/short": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") },
		"/tagged": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", `W/"1"`)
			fmt.Fprint(w, long, time.Now())
		},
		"/failed": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, long, http.StatusServiceUnavailable) },
		"/packed": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			fmt.Fprint(w, long)
		},
		"/none": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
	} {
		mux.Handle(path, handle)
	}
	server := httptest.NewServer(compressAnswers(mux))
	t.Cleanup(server.Close)
	for _, tc := range []struct {
		path, accepts, tag string
		code               int
		encoding, body     string
	}{
		{"/long", "br, gzip;q=0.5", "", 200, "gzip", long},
		{"/long", "gzip;q=0", "", 200, "", long},
		{"/long", "", "", 200, "", long},
		{"/short", "gzip", "", 200, "", "ok"},
		{"/tagged", "gzip", `"0", "1"`, 304, "", ""},
		{"/failed", "gzip", "*", 503, "", long + "\n"},
		{"/packed", "gzip", "", 200, "br", long},
		{"/none", "gzip", "", 204, "", ""},
	} {
		resp := fetch(t, server.URL+tc.path, tc.accepts, tc.tag)
		if body := bodyOf(t, resp); resp.StatusCode != tc.code || resp.Header.Get("Content-Encoding") != tc.encoding || body != tc.body {
			t.Errorf("%+v: %d, %v, %d bytes", tc, resp.StatusCode, resp.Header, len(body))
		}
	}
	for site, encoding := range map[string]string{"": "gzip", "none": "gzip", "same-origin": "gzip", "same-site": "", "cross-site": "", "unknown": ""} {
		resp := fetchFrom(t, site, server.URL+"/long", "gzip", "")
		if body := bodyOf(t, resp); resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Encoding") != encoding || body != long || !strings.Contains(resp.Header.Get("Vary"), "Sec-Fetch-Site") {
			t.Errorf("a request from %q: %d, %v, %d bytes", site, resp.StatusCode, resp.Header, len(body))
		}
	}
	tag := fetch(t, server.URL+"/long", "gzip", "").Header.Get("ETag")
	if resp := fetch(t, server.URL+"/long", "", tag); tag == "" || resp.StatusCode != http.StatusNotModified {
		t.Errorf("%q: %d", tag, resp.StatusCode)
	}
	if resp := fetch(t, server.URL+"/short", "", tag); resp.StatusCode != http.StatusOK {
		t.Errorf("another answer with this tag: %d", resp.StatusCode)
	}
}

// A stream of events is sent as it comes.
func TestStreamsAreNotHeld(t *testing.T) {
	t.Parallel()
	read := make(chan struct{})
	server := httptest.NewServer(compressAnswers(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "event: ping\n\n")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-read:
		case <-r.Context().Done():
		}
	})))
	t.Cleanup(server.Close)
	resp := fetch(t, server.URL, "gzip", "")
	if _, err := io.ReadFull(resp.Body, make([]byte, len("event: ping\n\n"))); err != nil {
		t.Error(err)
	}
	close(read)
}

func fetch(t *testing.T, url, accepts, tag string) *http.Response {
	t.Helper()
	return fetchFrom(t, "", url, accepts, tag)
}

// fetchFrom sends a request as a browser does for a page of a site.
func fetchFrom(t *testing.T, site, url, accepts, tag string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept-Encoding", accepts) // also with "", the client then decodes nothing by itself
	if tag != "" {
		r.Header.Set("If-None-Match", tag)
	}
	if site != "" {
		r.Header.Set("Sec-Fetch-Site", site)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func bodyOf(t *testing.T, resp *http.Response) string {
	t.Helper()
	var r io.Reader = resp.Body
	if resp.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(r)
		if err != nil {
			t.Fatal(err)
		}
		r = unpacked
	}
	body, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
