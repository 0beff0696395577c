package web

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/hashicorp/go-hclog"
)

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
