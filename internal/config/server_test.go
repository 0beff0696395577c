package config

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// TestServerBehindAProxy checks the keys for a server behind a proxy, and their faults.
func TestServerBehindAProxy(t *testing.T) {
	t.Chdir(t.TempDir())
	const oidc = `
[server.oidc]
issuer = "https://id.example"
client_id = "a"
client_secret_file = "b"
viewers = ["a"]
`
	for _, tt := range []struct {
		text     string
		base     string
		redirect string
		fault    string
	}{
		{text: `base_path = "/cron"`, base: "/cron"},
		{text: `base_path = "/ops/cron-1.2"`, base: "/ops/cron-1.2"},
		{text: `url = "https://cron.example.org"`},
		{text: `url = "https://cron.example.org/"`},
		{text: `url = "https://example.org:8443/ops/cron/"`, base: "/ops/cron"},
		{text: `url = "https://example.org/cron"` + "\n" + `base_path = "/cron"`, base: "/cron"},
		{text: `url = "https://example.org/cron"` + oidc, base: "/cron", redirect: "https://example.org/cron/login/oidc/callback"},
		{text: `base_path = "/cron"` + oidc + `redirect_url = "https://example.org/cron/login/oidc/callback"`, base: "/cron", redirect: "https://example.org/cron/login/oidc/callback"},
		{text: `base_path = "/cron"` + oidc + `redirect_url = "https://example.org/login/oidc/callback"`, fault: "write https://HOST/cron/login/oidc/callback"},
		{text: oidc, fault: "no redirect_url"},
		{text: `url = "http://example.org"` + oidc, fault: "url is where the provider"},
		{text: `url = "https://example.org/cron"` + "\n" + `base_path = "/other"`, fault: `base_path "/other" is not the path of url`},
		{text: `url = "cron.example.org"`, fault: "write https://HOST"},
		{text: `url = "https://a:b@example.org"`, fault: "write https://HOST"},
		{text: `url = "https://example.org/?x"`, fault: "write https://HOST"},
		{text: `url = "https://example.org/a%20b"`, fault: "is no base path"},
		{text: `base_path = ""`, fault: "is no base path"},
		{text: `base_path = "/"`, fault: "is no base path"},
		{text: `base_path = "cron"`, fault: "is no base path"},
		{text: `base_path = "/cron/"`, fault: "is no base path"},
		{text: `base_path = "//evil.example"`, fault: "is no base path"},
		{text: `base_path = "/a/../b"`, fault: "is no base path"},
		{text: `base_path = "/a b"`, fault: "is no base path"},
		{text: `base_path = "/jobs"`, fault: "begins like a path of the server"},
		{text: `base_path = "/api/cron"`, fault: "begins like a path of the server"},
		{text: `trusted_proxies = ["10.0.0.0/33"]`, fault: "is no IP address and no network"},
		{text: `trusted_proxies = ["proxy.example"]`, fault: "is no IP address and no network"},
		{text: `trusted_proxies = []`, fault: "is empty"},
	} {
		c, err := loadConfig(t, "jobs.a = { schedule = \"@daily\", command = \"true\" }\n[server]\nlisten = \"127.0.0.1:0\"\n"+tt.text+"\n", Options{})
		switch {
		case tt.fault != "":
			if err == nil || !strings.Contains(err.Error(), tt.fault) {
				t.Errorf("%s: %v, want %q", tt.text, err, tt.fault)
			}
		case err != nil:
			t.Errorf("%s: %v", tt.text, err)
		case c.Server.Base() != tt.base || tt.redirect != "" && c.Server.RedirectURL() != tt.redirect:
			t.Errorf("%s: base %q, %+v", tt.text, c.Server.Base(), c.Server)
		}
	}
	c, err := loadConfig(t, "jobs.a = { schedule = \"@daily\", command = \"true\" }\n[server]\nlisten = \"127.0.0.1:0\"\ntrusted_proxies = [\"10.1.2.3/8\", \"::1\", \"::ffff:192.0.2.1\"]\n", Options{})
	want := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("192.0.2.1/32")}
	if err != nil || !slices.Equal(c.Server.TrustedProxies, want) {
		t.Errorf("%+v, %v", c, err)
	}
}
