package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// specified has every key, and every value of a fixed set, of the configuration, marked with >. A file with it has no fault.
var specified = []struct{ file string }{
	{`>namespace = "default"`},
	{`>timezone = "UTC"`},
	{`>zone_data = "zones.zip"`},
	{`>include = ["jobs.d/*.toml"]`},
	{`redis.>url = "redis://127.0.0.1:6379/0"`},
	{`redis.>url = "rediss://127.0.0.1:6379"`},
	{`redis.>url = "unix:///run/redis.sock"`},
	{`redis.>url = "redis-sentinel://h1:26379,h2:26379/MASTER/0"`},
	{`redis.>url = "redis-cluster://h1:6379,h2:6379"`},
	{"redis.>quorum = ['redis://a', 'redis://b', 'redis://c']\nredis.url = 'redis://h'"},
	{`redis.>password_file = "/run/secrets/redis"`},
	{`redis.>tls = { ca_file = "a", cert_file = "b", key_file = "c", server_name = "d" }`},
	{`redis.>sentinel = { user = "watcher", password_file = "/run/secrets/sentinel", tls = { ca_file = "/ca.pem" } }`},
	{`redis.>acked_replicas = 1`},
	{`redis.>ack_timeout = "100ms"`},
	{`replica.>drain_timeout = "25s"`},
	{`replica.>max_running = 100`},
	{`replica.>labels = { zone = "a" }`},
	{`>cluster = { replicas = 3 }`},
	{`>server = { listen = "127.0.0.1:7377", token_file = "/run/secrets/token" }`},
	{`server = { listen = "127.0.0.1:7377", >hosts = ["cron.example.org"] }`},
	{`server = { listen = "127.0.0.1:7377", >url = "https://example.org/cron" }`},
	{`server = { listen = "127.0.0.1:7377", >base_path = "/cron" }`},
	{`server = { listen = "127.0.0.1:7377", >trusted_proxies = ["10.0.0.0/8"] }`},
	{`server = { listen = "127.0.0.1:7377", >tls = { cert_file = "a", key_file = "b" } }`},
	{`server = { listen = ":7377", >oidc = { issuer = "https://id.example", client_id = "a", client_secret_file = "b", redirect_url = "https://c/login/oidc/callback", operators = ["sre"] } }`},
	{`>history = { runs = 50, max_age = "30d", max_bytes = "1MiB" }`},
	{`>heartbeat = { url = "https://hc.example/ping/abc", every = "1m" }`},
	{`>traces = { url = "http://collector:4318/v1/traces", headers = { X = "y" }, headers_from_file = { Authorization = "a" }, timeout = "5s" }`},
	{`>pools.warehouse.slots = 4`},
	{`>calendars.holidays.dates = ["2026-12-25", "2027-01-01"]`},
	{`notify.a = { kind = "command", command = ["true"], >on = ["failed", "fixed"], timeout = "1m" }`},
	{`notify.a = { >kind = "webhook", url = "https://h/x", secret_files = ["a", "b"], token_file = "c", ca_file = "d" }`},
	{`notify.a = { kind = "slack", >url_file = "a", template = { title = "{job} {event}", text = "{text} {x" }, group_wait = "0s" }`},
	{`notify.a = { kind = "discord", >url = "https://h/x" }`},
	{`notify.a = { kind = "teams", >url = "https://h/x" }`},
	{`notify.a = { kind = "pagerduty", >token_file = "a" }`},
	{`notify.a = { kind = "ntfy", >url = "https://h/x" }`},
	{`notify.a = { kind = "gotify", url = "https://h/x", >token_file = "a" }`},
	{`notify.a = { kind = "mail", url = "smtps://u@h", from = "a@h", >to = ["b@h"] }`},
	{`notify.a = { kind = "ping", url = "https://h/{job}", >service = "healthchecks" }`},
	{`notify.a = { kind = "ping", url = "https://h/{job}", service = >"cronitor" }`},
	{`notify.a = { kind = "ping", url = "https://h/{job}", service = >"sentry" }`},
	{`notify.a = { kind = "ping", url = "https://h/{job}", service = >"kuma" }`},
	{`defaults.>timeout = "1h"`},
	{`defaults.>retry = { max = 3 }`},
	{`jobs.a.>schedule = "0 3 * * *"`},
	{`jobs.a.>schedule = ["0 3 * * *", "@hourly", "@every 90s", "H H * * 7"]`},
	{`jobs.a.>after = ["b"]`},
	{`jobs.a.>timezone = "America/New_York"`},
	{`jobs.a.>command = "true"`},
	{`jobs.a.>command = ["/usr/local/bin/backup", "--all"]`},
	{`jobs.a.>shell = ["/bin/bash", "-eo", "pipefail", "-c"]`},
	{`jobs.a.>http = { url = "https://hc.example", method = "POST", headers = { Accept = "*/*" }, body = "{}", expect = ["2xx", 304] }`},
	{`jobs.a.>http = { url = "https://hc.example", headers_from_file = { Authorization = "a" }, body_file = "b", redirects = 3 }`},
	{`jobs.a.>http = { url = "https://hc.example", redirects = true, proxy = "none", tls = { ca_file = "a", cert_file = "b", key_file = "c", server_name = "d" } }`},
	{`jobs.a.>dir = "/tmp"`},
	{`jobs.a.>env = { LANG = "C" }`},
	{`jobs.a.>env_file = "/etc/a.env"`},
	{`jobs.a.>user = "nobody"`},
	{`jobs.a.>group = "nogroup"`},
	{`jobs.a.>no_new_privs = false`},
	{`jobs.a.>umask = "027"`},
	{`jobs.a.>nice = 10`},
	{`jobs.a.>limits = { memory = "1GiB", pids = 200 }`},
	{`jobs.a.>env_from_file = { PGPASSWORD = "/run/secrets/pg" }`},
	{`jobs.a.>inherit_env = false`},
	{`jobs.a.>ok_exit_codes = [0, 3]`},
	{`jobs.a.>enabled = false`},
	{`jobs.a.>description = "a"`},
	{`jobs.a.>tags = ["a"]`},
	{`jobs.a.>where = { zone = "a" }`},
	{`jobs.a.>parallel = 1`},
	{`jobs.a.>per_tick = 1`},
	{`jobs.a.per_tick = >"all"`},
	{`jobs.a.>per_replica = 1`},
	{"jobs.a.>pool = 'warehouse'\npools.warehouse.slots = 4"},
	{`jobs.a.>overlap = "skip"`},
	{`jobs.a.overlap = >"queue"`},
	{`jobs.a.overlap = >"replace"`},
	{`jobs.a.>start_deadline = "auto"`},
	{`jobs.a.>start_deadline = "1m"`},
	{`jobs.a.>catch_up = "none"`},
	{`jobs.a.catch_up = >"latest"`},
	{`jobs.a.catch_up = >"all"`},
	{`jobs.a.>catch_up_window = "24h"`},
	{`jobs.a.>recover = false`},
	{`jobs.a.>recover = true`},
	{`jobs.a.>recover = { max = 2 }`},
	{`jobs.a.>retry = { max = 3, delay = "1s", max_delay = "1m" }`},
	{`jobs.a.>timeout = "24h"`},
	{`jobs.a.>timeout = "none"`},
	{`jobs.a.>kill_grace = "0s"`},
	{`jobs.a.>lease = "1s"`},
	{`jobs.a.>on_lease_lost = "stop"`},
	{`jobs.a.>on_lease_lost = "continue"`},
	{`jobs.a.>jitter = "10s"`},
	{"jobs.a.>except = ['holidays']\ncalendars.holidays.dates = ['2026-12-25']"},
	{`jobs.a.>except = ["0 0 24 12 *", "@weekly"]`},
	{`jobs.a.>starts_at = 2026-01-01T00:00:00Z`},
	{`jobs.a.>starts_at = "2026-01-01T00:00:00+01:00"`},
	{`jobs.a.>expires_at = 2027-01-01T00:00:00Z`},
	{`jobs.a.>output = { keep = "16KiB", log = true }`},
	{`jobs.a.>warn_after = "10m"`},
	{`jobs.a.>stale_after = "2d"`},
	{`jobs.a.>expect_by = "06:30"`},
	{"jobs.a.>notify = ['mail']\nnotify.mail = { kind = 'command', command = ['true'] }"},
}

// TestSpecifiedIsSupportedOrRefused checks that no key is accepted and ignored.
// Promise: P8
func TestSpecifiedIsSupportedOrRefused(t *testing.T) {
	zones, err := os.ReadFile(oldZones)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("zones.zip", zones, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range specified {
		text := strings.Replace(c.file, ">", "", 1) + "\n"
		if strings.HasPrefix(text, "jobs.a.") {
			if !strings.Contains(text, "schedule =") && !strings.Contains(text, ".after =") {
				text += "jobs.a.schedule = '@daily'\n"
			}
			if strings.Contains(text, ".after =") {
				text += "jobs.b = { schedule = '@daily', command = 'true' }\n"
			}
			if !strings.Contains(text, "jobs.a.command =") && !strings.Contains(text, "http =") {
				text += "jobs.a.command = 'true'\n"
			}
		}
		if err := loadText(t, text, Options{}); err != nil {
			t.Errorf("%s\nis specified, but: %v", text, err)
		}
	}
}

// TestEverySpecifiedKeyIsKnown checks that the sections have exactly the specified keys.
func TestEverySpecifiedKeyIsKnown(t *testing.T) {
	named := make(map[string]bool)
	for _, c := range specified {
		key, _, _ := strings.Cut(strings.ReplaceAll(c.file, ">", ""), " =")
		parts := strings.Split(key, ".")
		named[parts[0]] = true
		named[parts[len(parts)-1]] = true
	}
	for _, s := range [][]string{topKeys().Names(), redisKeys().Names(), replicaKeys().Names(), poolKeys().Names(), calendarKeys().Names(), jobKeys().Names()} {
		for _, key := range s {
			if !named[key] {
				t.Errorf("%q is known, but not named", key)
			}
		}
	}
}

// loadText loads a text as jobs.toml in the current folder.
func loadText(t *testing.T, text string, o Options) error {
	t.Helper()
	_, err := loadConfig(t, text, o)
	return err
}

func loadConfig(t *testing.T, text string, o Options) (*Config, error) {
	t.Helper()
	if err := os.WriteFile("jobs.toml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load("jobs.toml", o)
	var faults Faults
	if err != nil && !errors.As(err, &faults) {
		t.Fatalf("%T: %v", err, err)
	}
	return c, err
}

// TestExample loads jobs.example.toml.
func TestExample(t *testing.T) {
	c, err := Load(filepath.Join("..", "..", "jobs.example.toml"), Options{Env: environment()})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Warnings) > 0 {
		t.Errorf("warnings:\n%v", c.Warnings)
	}
	for _, j := range c.Jobs {
		if j.Spec == nil && j.After == nil || len(j.Command) == 0 && j.HTTP == nil || j.Description == "" {
			t.Errorf("%s is not complete: %+v", j.Name, j)
		}
	}
}
