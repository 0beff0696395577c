package web

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// serve runs a server until the test ends.
func serve(t *testing.T, token string) *Server {
	t.Helper()
	cfg := Config{Listen: "127.0.0.1:0", Metrics: replyMetrics}
	if token != "" {
		users, err := ParseUsers(token)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Users = func() Users { return users }
		cfg.SessionSecret = func(context.Context, string) (string, error) { return clusterSecret, nil }
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

// replyMetrics stands for the metrics of a replica.
var replyMetrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "cronclave_leader 1\n") })

func request(t *testing.T, s *Server, method, path, authorization string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addr()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func TestWhoIsLetIn(t *testing.T) {
	guarded := serve(t, "s3cr3t-s3cr3t-s3cr3t")
	open := serve(t, "")
	for _, tt := range []struct {
		server                      *Server
		method, path, authorization string
		want                        int
	}{
		{guarded, "GET", "/metrics", "Bearer s3cr3t-s3cr3t-s3cr3t", 200},
		{guarded, "GET", "/metrics", "bearer  s3cr3t-s3cr3t-s3cr3t", 200},
		{guarded, "GET", "/metrics", "", 401},
		{guarded, "GET", "/metrics", "Bearer", 401},
		{guarded, "GET", "/metrics", "Bearer s3cr3t-s3cr3t-s3cr3", 401},
		{guarded, "GET", "/metrics", "Bearer s3cr3t-s3cr3t-s3cr3tt", 401},
		{guarded, "GET", "/metrics", "Basic s3cr3t-s3cr3t-s3cr3t", 401},
		{guarded, "GET", "/nothing", "", 401}, // a client without the token does not learn which pages there are
		{guarded, "GET", "/nothing", "Bearer s3cr3t-s3cr3t-s3cr3t", 404},
		{open, "GET", "/metrics", "", 200},
		{open, "POST", "/metrics", "", 405},
		{open, "GET", "/", "", 404},
	} {
		if code, body := request(t, tt.server, tt.method, tt.path, tt.authorization); code != tt.want || strings.Contains(body, "s3cr3t-s3cr3t-s3cr3t") {
			t.Errorf("%s %s with %q: %d, want %d: %s", tt.method, tt.path, tt.authorization, code, tt.want, body)
		}
	}
}

func TestFaultyConfig(t *testing.T) {
	taken := serve(t, "")
	if _, err := New(Config{Listen: taken.Addr(), Metrics: replyMetrics}); err == nil || !strings.Contains(err.Error(), taken.Addr()) {
		t.Errorf("an address that is taken: %v", err)
	}
	if _, err := New(Config{Listen: "127.0.0.1:0"}); err == nil {
		t.Error("without metrics")
	}
	if _, err := New(Config{Listen: "127.0.0.1:0", Metrics: replyMetrics, Users: func() Users { return nil }}); err == nil {
		t.Error("without a secret of sessions")
	}
}

// A fault of a request goes to the replica's log.
func TestFaultsAreLogged(t *testing.T) {
	var written bytes.Buffer
	s, err := New(Config{Listen: "127.0.0.1:0", Log: hclog.New(&hclog.LoggerOptions{Output: &written, JSONFormat: true}),
		Metrics: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a fault of ours") })})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	if code, body := request(t, s, "GET", "/metrics", ""); code != http.StatusInternalServerError || strings.Contains(body, "a fault of ours") {
		t.Errorf("a panic is answered with %d %s", code, body)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	first, _, _ := strings.Cut(written.String(), "\n")
	var line map[string]any
	if err := json.Unmarshal([]byte(first), &line); err != nil || line["@level"] != "error" || !strings.Contains(first, "a fault of ours") {
		t.Errorf("logged is %s: %v", written.String(), err)
	}
}

// TestHosts has requests by names that lead to the server although they are not its own.
func TestHosts(t *testing.T) {
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	for _, tc := range []struct {
		listen, host string
		hosts        []string
		code         int
	}{
		{"127.0.0.1:7377", "127.0.0.1:7377", nil, 200},
		{"127.0.0.1:7377", "localhost:7377", nil, 200},
		{"127.0.0.1:7377", "LocalHost", nil, 200},
		{"127.0.0.1:7377", "[::1]:7377", nil, 200},
		{"127.0.0.1:7377", "evil.example:7377", nil, 421},
		{"127.0.0.1:7377", "localhost.evil.example", nil, 421},
		{"127.0.0.1:7377", "127.0.0.1.evil.example", nil, 421},
		{"127.0.0.1:7377", "", nil, 200},
		{"0.0.0.0:7377", "10.0.0.5:7377", nil, 200},
		{":7377", "cron.example.org:7377", nil, 421},
		{":7377", "cron.example.org:7377", []string{"cron.example.org"}, 200},
		{":7377", "cron.example.org.", []string{"cron.example.org"}, 200},
		{"cron-1:7377", "cron-1:7377", nil, 200},
		{"cron-1:7377", "cron-2:7377", []string{"cron-3"}, 421},
	} {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Host = tc.host
		w := httptest.NewRecorder()
		guarded(ok, Config{Listen: tc.listen, Hosts: tc.hosts, Log: hclog.NewNullLogger()}).ServeHTTP(w, r)
		if w.Code != tc.code {
			t.Errorf("host %q where it listens on %s and hosts are %q: %d, want %d", tc.host, tc.listen, tc.hosts, w.Code, tc.code)
		}
	}
}
