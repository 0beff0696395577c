package dial

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestReasonsRepeatNothing has real failures of requests whose path, query and answers are secrets.
func TestReasonsRepeatNothing(t *testing.T) {
	const secret = "s3cr3t"
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	answers := func(text string) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() { // ends with the listener
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Read(make([]byte, 4096))
				_, _ = io.WriteString(c, text)
				_ = c.Close()
			}
		}()
		return "http://" + l.Addr().String()
	}
	encrypted := httptest.NewUnstartedServer(http.NotFoundHandler())
	encrypted.Config.ErrorLog = log.New(io.Discard, "", 0)
	encrypted.StartTLS()
	defer encrypted.Close()
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer hangs.Close()
	for _, tt := range []struct{ url, want string }{
		{closed.URL, "connection refused"},
		{answers(""), "it closed the connection"},
		{answers("no HTTP " + secret), "its answer is no HTTP that can be followed"},
		{answers("HTTP/1.1 302 Found\r\nLocation: http://[" + secret + "\r\n\r\n"), "its answer is no HTTP that can be followed"},
		{answers("HTTP/1.1 302 Found\r\nLocation: /%zz" + secret + "\r\nContent-Length: 0\r\n\r\n"), "its answer is no HTTP that can be followed"},
		{answers("HTTP/1.1 200 OK\r\n" + secret + "\r\n\r\n"), "its answer is no HTTP that can be followed"},
		{strings.Replace(answers("no TLS "+secret), "http:", "https:", 1), "it does not speak TLS"},
		{encrypted.URL, "its certificate is of an unknown authority"},
		{"http://" + secret + ".invalid", "its name"},
		{hangs.URL, "it did not answer in time"},
	} {
		limit := 20 * time.Second
		if tt.url == hangs.URL {
			limit = 100 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, tt.url+"/"+secret+"?"+secret, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		cancel()
		if err == nil {
			_ = resp.Body.Close()
			t.Errorf("%s was answered", tt.url)
			continue
		}
		if got := FailureReason(err); !strings.HasPrefix(got, tt.want) || strings.Contains(got, secret) {
			t.Errorf("%v: %q, want %q", err, got, tt.want)
		}
	}
}
