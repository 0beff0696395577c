package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// specified has every key, and every value of a fixed set, of the configuration. A file with a supported one has no fault. A file with any other is refused as
// not supported yet, at the place marked with >.
var specified = []struct {
	supported bool
	file      string
}{
	{true, `>namespace = "default"`},
	{true, `>timezone = "UTC"`},
	{true, `>zone_data = "zones.zip"`},
	{true, `>include = ["jobs.d/*.toml"]`},
	{true, `redis.>url = "redis://127.0.0.1:6379/0"`},
	{true, `redis.>url = "rediss://127.0.0.1:6379"`},
	{true, `redis.>url = "unix:///run/redis.sock"`},
	{true, `redis.>url = "redis-sentinel://h1:26379,h2:26379/MASTER/0"`},
	{true, `redis.>url = "redis-cluster://h1:6379,h2:6379"`},
	{true, "redis.>quorum = ['redis://a', 'redis://b', 'redis://c']\nredis.url = 'redis://h'"},
	{true, `redis.>password_file = "/run/secrets/redis"`},
	{true, `redis.>tls = { ca_file = "a", cert_file = "b", key_file = "c", server_name = "d" }`},
	{true, `redis.>sentinel = { user = "watcher", password_file = "/run/secrets/sentinel", tls = { ca_file = "/ca.pem" } }`},
	{true, `redis.>acked_replicas = 1`},
	{true, `redis.>ack_timeout = "100ms"`},
	{true, `replica.>drain_timeout = "25s"`},
	{true, `replica.>max_running = 100`},
	{true, `replica.>labels = { zone = "a" }`},
	{true, `>cluster = { replicas = 3 }`},
	{true, `>server = { listen = "127.0.0.1:7377", token_file = "/run/secrets/token" }`},
	{true, `server = { listen = "127.0.0.1:7377", >hosts = ["cron.example.org"] }`},
	{true, `server = { listen = "127.0.0.1:7377", >url = "https://example.org/cron" }`},
	{true, `server = { listen = "127.0.0.1:7377", >base_path = "/cron" }`},
	{true, `server = { listen = "127.0.0.1:7377", >trusted_proxies = ["10.0.0.0/8"] }`},
	{true, `server = { listen = "127.0.0.1:7377", >tls = { cert_file = "a", key_file = "b" } }`},
	{true, `server = { listen = ":7377", >oidc = { issuer = "https://id.example", client_id = "a", client_secret_file = "b", redirect_url = "https://c/login/oidc/callback", operators = ["sre"] } }`},
	{true, `>history = { runs = 50, max_age = "30d", max_bytes = "1MiB" }`},
	{true, `>heartbeat = { url = "https://hc.example/ping/abc", every = "1m" }`},
	{true, `>traces = { url = "http://collector:4318/v1/traces", headers = { X = "y" }, headers_from_file = { Authorization = "a" }, timeout = "5s" }`},
	{true, `>pools.warehouse.slots = 4`},
	{true, `>calendars.holidays.dates = ["2026-12-25", "2027-01-01"]`},
	{true, `notify.a = { kind = "command", command = ["true"], >on = ["failed", "fixed"], timeout = "1m" }`},
	{true, `notify.a = { >kind = "webhook", url = "https://h/x", secret_files = ["a", "b"], token_file = "c", ca_file = "d" }`},
	{true, `notify.a = { kind = "slack", >url_file = "a", template = { title = "{job} {event}", text = "{text} {x" }, group_wait = "0s" }`},
	{true, `notify.a = { kind = "discord", >url = "https://h/x" }`},
	{true, `notify.a = { kind = "teams", >url = "https://h/x" }`},
	{true, `notify.a = { kind = "pagerduty", >token_file = "a" }`},
	{true, `notify.a = { kind = "ntfy", >url = "https://h/x" }`},
	{true, `notify.a = { kind = "gotify", url = "https://h/x", >token_file = "a" }`},
	{true, `notify.a = { kind = "mail", url = "smtps://u@h", from = "a@h", >to = ["b@h"] }`},
	{true, `notify.a = { kind = "ping", url = "https://h/{job}", >service = "healthchecks" }`},
	{true, `notify.a = { kind = "ping", url = "https://h/{job}", service = >"cronitor" }`},
	{true, `notify.a = { kind = "ping", url = "https://h/{job}", service = >"sentry" }`},
	{true, `notify.a = { kind = "ping", url = "https://h/{job}", service = >"kuma" }`},
	{true, `defaults.>timeout = "1h"`},
	{true, `defaults.>retry = { max = 3 }`},
	{true, `jobs.a.>schedule = "0 3 * * *"`},
	{true, `jobs.a.>schedule = ["0 3 * * *", "@hourly", "@every 90s", "H H * * 7"]`},
	{true, `jobs.a.>after = ["b"]`},
	{true, `jobs.a.>timezone = "America/New_York"`},
	{true, `jobs.a.>command = "true"`},
	{true, `jobs.a.>command = ["/usr/local/bin/backup", "--all"]`},
	{true, `jobs.a.>shell = ["/bin/bash", "-eo", "pipefail", "-c"]`},
	{true, `jobs.a.>http = { url = "https://hc.example", method = "POST", headers = { Accept = "*/*" }, body = "{}", expect = ["2xx", 304] }`},
	{true, `jobs.a.>http = { url = "https://hc.example", headers_from_file = { Authorization = "a" }, body_file = "b", redirects = 3 }`},
	{true, `jobs.a.>http = { url = "https://hc.example", redirects = true, proxy = "none", tls = { ca_file = "a", cert_file = "b", key_file = "c", server_name = "d" } }`},
	{true, `jobs.a.>dir = "/tmp"`},
	{true, `jobs.a.>env = { LANG = "C" }`},
	{true, `jobs.a.>env_file = "/etc/a.env"`},
	{true, `jobs.a.>user = "nobody"`},
	{true, `jobs.a.>group = "nogroup"`},
	{true, `jobs.a.>no_new_privs = false`},
	{true, `jobs.a.>umask = "027"`},
	{true, `jobs.a.>nice = 10`},
	{true, `jobs.a.>limits = { memory = "1GiB", pids = 200 }`},
	{true, `jobs.a.>env_from_file = { PGPASSWORD = "/run/secrets/pg" }`},
	{true, `jobs.a.>inherit_env = false`},
	{true, `jobs.a.>ok_exit_codes = [0, 3]`},
	{true, `jobs.a.>enabled = false`},
	{true, `jobs.a.>description = "a"`},
	{true, `jobs.a.>tags = ["a"]`},
	{true, `jobs.a.>where = { zone = "a" }`},
	{true, `jobs.a.>parallel = 1`},
	{true, `jobs.a.>per_tick = 1`},
	{true, `jobs.a.>per_replica = 1`},
	{true, "jobs.a.>pool = 'warehouse'\npools.warehouse.slots = 4"},
	{true, `jobs.a.>overlap = "skip"`},
	{true, `jobs.a.overlap = >"queue"`},
	{true, `jobs.a.overlap = >"replace"`},
	{true, `jobs.a.>start_deadline = "auto"`},
	{true, `jobs.a.>start_deadline = "1m"`},
	{true, `jobs.a.>catch_up = "none"`},
	{true, `jobs.a.catch_up = >"latest"`},
	{true, `jobs.a.catch_up = >"all"`},
	{true, `jobs.a.>catch_up_window = "24h"`},
	{true, `jobs.a.>recover = false`},
	{true, `jobs.a.>recover = true`},
	{true, `jobs.a.>recover = { max = 2 }`},
	{true, `jobs.a.>retry = { max = 3, delay = "1s", max_delay = "1m" }`},
	{true, `jobs.a.>timeout = "24h"`},
	{true, `jobs.a.>timeout = "none"`},
	{true, `jobs.a.>kill_grace = "0s"`},
	{true, `jobs.a.>lease = "1s"`},
	{true, `jobs.a.>on_lease_lost = "stop"`},
	{true, `jobs.a.>on_lease_lost = "continue"`},
	{true, `jobs.a.>jitter = "10s"`},
	{true, "jobs.a.>except = ['holidays']\ncalendars.holidays.dates = ['2026-12-25']"},
	{true, `jobs.a.>except = ["0 0 24 12 *", "@weekly"]`},
	{true, `jobs.a.>starts_at = 2026-01-01T00:00:00Z`},
	{true, `jobs.a.>starts_at = "2026-01-01T00:00:00+01:00"`},
	{true, `jobs.a.>expires_at = 2027-01-01T00:00:00Z`},
	{true, `jobs.a.>output = { keep = "16KiB", log = true }`},
	{true, `jobs.a.>warn_after = "10m"`},
	{true, `jobs.a.>stale_after = "2d"`},
	{true, `jobs.a.>expect_by = "06:30"`},
	{true, "jobs.a.>notify = ['mail']\nnotify.mail = { kind = 'command', command = ['true'] }"},
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
		before, after, _ := strings.Cut(c.file, ">")
		text := before + after + "\n"
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
		want := ""
		if !c.supported {
			want = fmt.Sprintf("jobs.toml:1:%d: ", len(before)+1)
		}
		err := loadText(t, text, Options{})
		switch {
		case c.supported && err != nil:
			t.Errorf("%s\nis supported, but: %v", text, err)
		case !c.supported && err == nil:
			t.Errorf("%s\nis accepted", text)
		case !c.supported && (!strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "is not supported yet")):
			t.Errorf("%s\nwant one fault that begins with %s and says \"is not supported yet\", not\n%v", text, want, err)
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
