package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestSettingsAreThoseOfTheReference checks that the settings have all keys of a job and of its tables, in the order of docs/configuration.md.
func TestSettingsAreThoseOfTheReference(t *testing.T) {
	t.Chdir(t.TempDir())
	c, err := loadConfig(t, "[jobs.a]\nschedule = '@daily'\ncommand = 'true'\n", Options{Env: environment()})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range c.Settings.Of("a") {
		got = append(got, s.Key)
	}
	inner := map[string][]string{"retry": retryKeys().Names(), "limits": limitsKeys().Names(), "output": outputKeys().Names()}
	var want []string
	for _, s := range referenced() {
		for _, row := range s.rows {
			name := strings.Trim(row[0], "`")
			switch {
			case !s.ofJob():
			case inner[name] != nil:
				for _, key := range inner[name] {
					want = append(want, name+"."+key)
				}
			default:
				want = append(want, name)
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("settings\n%q, reference\n%q", got, want)
	}
	for _, k := range jobKeys().Keys {
		if k.Value == nil && k.Inner == nil {
			t.Errorf("%s has neither a value nor keys of its own", k.Name)
		}
	}
}

// settingsOf loads a configuration, and returns the settings of job a as lines.
func settingsOf(t *testing.T, text string, o Options) []string {
	t.Helper()
	c, err := loadConfig(t, text, o)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, s := range c.Settings.Of("a") {
		lines = append(lines, s.Key+" = "+s.Value)
	}
	return lines
}

// TestDefaultsAmongSettings checks that a job without keys has the defaults, in the words of the reference.
func TestDefaultsAmongSettings(t *testing.T) {
	t.Chdir(t.TempDir())
	got := settingsOf(t, "[jobs.a]\nschedule = '@daily'\ncommand = 'true'\n", Options{Env: environment()})
	want := strings.Split(`schedule = "@daily"
after = –
timezone = "UTC"
except = –
starts_at = –
expires_at = –
jitter = "0s"
start_deadline = "auto"
catch_up = "none"
catch_up_window = –
command = a shell command of 4 characters
http = –
shell = "/bin/sh" and 1 argument
dir = the replica's
ok_exit_codes = [0]
env = –
env_file = –
env_from_file = –
inherit_env = true
where = –
user = –
group = the user's
no_new_privs = false
umask = the replica's
nice = the replica's
limits.memory = –
limits.pids = –
parallel = 1
per_tick = 1
per_replica = 1
overlap = "skip"
pool = –
retry.max = 0
retry.delay = 5s, or max_delay if that is less
retry.max_delay = 5m, or delay if that is more
recover = false
timeout = "24h"
kill_grace = "10s"
lease = "30s"
on_lease_lost = "stop"
warn_after = "0s"
stale_after = "0s"
expect_by = –
enabled = true
description = –
tags = –
notify = –
output.keep = "16KiB"
output.log = true`, "\n")
	if !slices.Equal(got, want) {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
}

// everything sets each key of a job. Values with ${ are partly from the environment.
const everything = `
timezone = "Europe/Berlin"
redis.url = "redis://:${REDIS_PASSWORD}@h"
pools.warehouse.slots = 4
calendars.holidays.dates = ["2026-12-25"]
notify.oncall = { kind = "slack", url = "https://hooks.example/${TOKEN}" }

[defaults]
retry = { max = 3, delay = "${DELAY:-10s}" }
env = { LITERAL = "literal-value", PASSWORD = "literal-secret" }
env_from_file = { GONE = "/run/gone" }
tags = ["defaults"]

[jobs.a]
schedule = ["@daily", "${MINUTE} 3 * * *"]
except = ["holidays", "* * 24 12 *"]
starts_at = 2026-01-01T00:00:00+01:00
expires_at = "2028-01-01T00:00:00Z"
jitter = "1m"
start_deadline = "90m"
catch_up = "latest"
catch_up_window = "36h"
command = ["curl", "https://ann:hush-hush@h/x", "--token", "bare-token", "-H", "X: value-of-token", "PGPASSWORD=assigned", "literal-secret", "literal-value", "${TOKEN}", "value-of-redis"]
shell = ["/bin/bash", "-c"]
dir = "${HOME_OF_JOB}/work"
ok_exit_codes = [0, 3]
env = { TOKEN = "${TOKEN}", BEARER = "Bearer ${TOKEN}", "A B" = "x", GONE = "x" }
env_file = "./a.env"
env_from_file = { PGPASSWORD = "/run/secrets/pg" }
inherit_env = false
where = { zone = "${ZONE}", disk = "ssd" }
user = "${RUN_AS}"
umask = "027"
nice = 10
limits = { memory = "1GiB", pids = 200 }
parallel = 3
per_tick = 1
per_replica = 2
overlap = "replace"
pool = "warehouse"
retry = { max_delay = "5m" }
recover = { max = 2 }
timeout = "none"
kill_grace = "1h30m"
lease = "1m"
on_lease_lost = "continue"
warn_after = "10m"
stale_after = "2d"
expect_by = "06:30"
enabled = false
description = "talks to ${HOST_OF_SHOP} as value-of-it"
tags = ["x", "y\u001b"]
notify = ["oncall"]
output = { keep = "1KiB", log = false }
`

var secretEnvironment = []string{"REDIS_PASSWORD=value-of-redis", "MINUTE=17", "TOKEN=value-of-token", "HOME_OF_JOB=/srv/value-of-home", "ZONE=value-of-zone", "RUN_AS=value-of-user",
	"HOST_OF_SHOP=value-of-host", "DELAY=13s"}

// TestSettingsHideSecrets checks that settings show the text of the file for values that use the environment, names of variables without values, and no
// arguments of commands.
func TestSettingsHideSecrets(t *testing.T) {
	t.Chdir(t.TempDir())
	got := settingsOf(t, everything, Options{Env: environment(secretEnvironment...)})
	want := strings.Split(`schedule = ["@daily", "${MINUTE} 3 * * *"]
after = –
timezone = "Europe/Berlin"
except = ["holidays", "* * 24 12 *"]
starts_at = 2025-12-31T23:00:00Z
expires_at = 2028-01-01T00:00:00Z
jitter = "1m"
start_deadline = "1h30m"
catch_up = "latest"
catch_up_window = "36h"
command = "curl" and 10 arguments
http = –
shell = "/bin/bash" and 1 argument
dir = "${HOME_OF_JOB}/work"
ok_exit_codes = [0, 3]
env = "A B", BEARER from the environment, GONE, LITERAL, PASSWORD, TOKEN from the environment
env_file = "./a.env"
env_from_file = PGPASSWORD from a file
inherit_env = false
where = { disk = "ssd", zone = "${ZONE}" }
user = "${RUN_AS}"
group = the user's
no_new_privs = true
umask = "027"
nice = 10
limits.memory = "1GiB"
limits.pids = 200
parallel = 3
per_tick = 1
per_replica = 2
overlap = "replace"
pool = "warehouse"
retry.max = 3
retry.delay = "${DELAY:-10s}"
retry.max_delay = "5m"
recover = { max = 2 }
timeout = "none"
kill_grace = "1h30m"
lease = "1m"
on_lease_lost = "continue"
warn_after = "10m"
stale_after = "2d"
expect_by = "06:30"
enabled = false
description = "talks to ${HOST_OF_SHOP} as value-of-it"
tags = ["x", "y\x1b"]
notify = ["oncall"]
output.keep = "1KiB"
output.log = false`, "\n")
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Errorf("%q, want %q", got[min(i, len(got)-1)], want[i])
		}
	}
	for _, secret := range append([]string{"hush", "bare-token", "assigned", "--token", "PGPASSWORD=", "-c", "literal-secret", "/run/gone", "/run/secrets"}, values(secretEnvironment)...) {
		if i := slices.IndexFunc(got, func(line string) bool { return strings.Contains(line, secret) }); i >= 0 {
			t.Errorf("%s is in %s", secret, got[i])
		}
	}
}

// values returns the values of an environment that are too long to occur in another text by chance.
func values(environ []string) (long []string) {
	for _, entry := range environ {
		if _, value, _ := strings.Cut(entry, "="); len(value) > 5 {
			long = append(long, value)
		}
	}
	return long
}

// TestNoValueOfAVariableIsASetting sets each key that takes a text from the environment, one at a time, in the job, in [defaults] or at the top level.
func TestNoValueOfAVariableIsASetting(t *testing.T) {
	t.Chdir(t.TempDir())
	const usual = "schedule = '@daily'\ncommand = 'true'\n"
	for _, tt := range []struct{ value, top, job, want string }{
		{"s3cr3t", "", usual + "description = '%s'", `description = "%s"`},
		{"s3cr3t", "", usual + "tags = ['%s']", `tags = ["%s"]`},
		{"s3cr3t", "", usual + "dir = '/%s'", `dir = "/%s"`},
		{"s3cr3t", "", usual + "env_file = '/%s'", `env_file = "/%s"`},
		{"s3cr3t", "", usual + "env = { A = '%s' }", "env = A from the environment"},
		{"s3cr3t", "", usual + "env_from_file = { A = '/%s' }", "env_from_file = A from a file"},
		{"s3cr3t", "", usual + "user = '%s'", `user = "%s"`},
		{"s3cr3t", "", usual + "group = '%s'", `group = "%s"`},
		{"s3cr3t", "", usual + "where = { zone = '%s' }", `where = { zone = "%s" }`},
		{"s3cr3t", "[defaults]\ndescription = '%s'\n", usual, `description = "%s"`},
		{"s3cr3t", "[defaults]\nenv = { A = '%s' }\n", usual, "env = A from the environment"},
		{"Asia/Tokyo", "timezone = '%s'\n", usual, `timezone = "%s"`},
		{"Asia/Tokyo", "[defaults]\ntimezone = '%s'\n", usual, `timezone = "%s"`},
		{"Asia/Tokyo", "", usual + "timezone = '%s'", `timezone = "%s"`},
		{"Asia/Tokyo", "timezone = '%s'\n", usual + "timezone = 'Europe/Berlin'", `timezone = "Europe/Berlin"`},
		{"Asia/Tokyo", "[defaults]\ntimezone = '%s'\n", "after = ['b']\ncommand = 'true'", `timezone = "%s"`},
		{"Asia/Tokyo", "timezone = '%s'\n", "after = ['b']\ncommand = 'true'", `timezone = "%s"`},
		{"17 3 * * *", "", "schedule = '%s'\ncommand = 'true'", `schedule = "%s"`},
		{"17 3 * * *", "", "schedule = ['@daily', '%s']\ncommand = 'true'", `schedule = ["@daily", "%s"]`},
		{"* * 24 12 *", "", usual + "except = '%s'", `except = "%s"`},
		{"b", "", "after = ['%s']\ncommand = 'true'", `after = ["%s"]`},
		{"warehouse", "[pools.warehouse]\nslots = 2\n", usual + "pool = '%s'", `pool = "%s"`},
		{"37m", "", usual + "timeout = '%s'", `timeout = "%s"`},
		{"37KiB", "", usual + "output = { keep = '%s' }", `output.keep = "%s"`},
		{"37m", "[defaults]\ncatch_up_window = '%s'\n", usual, "catch_up_window = –"}, // it is not in force
		{"17 3 * * *", "[defaults]\nexcept = '%s'\n", "after = ['b']\ncommand = 'true'", "except = –"},
	} {
		put := func(text string) string {
			return strings.ReplaceAll(tt.top, "%s", text) + "[jobs.a]\n" + strings.ReplaceAll(tt.job, "%s", text)
		}
		const other = "\n[jobs.b]\nschedule = '@hourly'\ncommand = 'true'\n"
		for _, text := range []string{"${S}", "${S:-x}"} {
			got := settingsOf(t, put(text)+other, Options{Env: environment("S=" + tt.value)})
			if want := strings.ReplaceAll(tt.want, "%s", text); !slices.Contains(got, want) || len(tt.value) > 1 && strings.Contains(strings.Join(got, "\n"), tt.value) {
				t.Errorf("%s:\n%s\nwant %s", put(text), strings.Join(got, "\n"), want)
			}
		}
	}
}

// TestDollarsAmongSettings checks that a text that only looks like a variable is shown as in the file.
func TestDollarsAmongSettings(t *testing.T) {
	t.Chdir(t.TempDir())
	got := settingsOf(t, "[jobs.a]\nschedule = '@daily'\ncommand = ['run', '${S}']\ndescription = '$${S} $S'\nenv = { A = '$${S}' }\ntimeout = '${T}'\n", Options{Env: environment("S=x", "T=24h")})
	for _, want := range []string{`description = "$${S} $S"`, "env = A", `timeout = "24h"`, `command = "run" and 1 argument`} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is not in\n%s", want, strings.Join(got, "\n"))
		}
	}
}

// TestSettingsAreCut checks that a shortened setting ends with a digest, so that settings that differ in the cut part stay different.
func TestSettingsAreCut(t *testing.T) {
	t.Chdir(t.TempDir())
	long := func(end string) string {
		lines := settingsOf(t, "[jobs.a]\nschedule = '@daily'\ncommand = 'true'\ndescription = '"+strings.Repeat("ä", 5000)+end+"'\n", Options{Env: environment()})
		return lines[slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "description") })]
	}
	a, b := long("a"), long("b")
	if a == b || len(a) > mostOfASetting+100 || !regexp.MustCompile(`ä… \(10003 bytes, SHA-256 [0-9a-f]{8}…\)$`).MatchString(a) {
		t.Errorf("%s\n%s", a, b)
	}
}

// TestSettingsAreKeptOnce checks that common settings are kept once for all jobs.
func TestSettingsAreKeptOnce(t *testing.T) {
	t.Chdir(t.TempDir())
	c, err := loadConfig(t, "[defaults]\ntimeout = '1h'\ntags = ['a']\nretry = { max = 3 }\n[jobs.a]\nschedule = '@daily'\ncommand = 'true'\n[jobs.b]\nschedule = '@daily'\ncommand = 'true'\ntags = ['b']\nnice = 1\n",
		Options{Env: environment()})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]map[string]string{"a": {"schedule": `"@daily"`, "command": "a shell command of 4 characters"}, "b": {"schedule": `"@daily"`, "command": "a shell command of 4 characters", "tags": `["b"]`, "nice": "1"}}
	if fmt.Sprint(c.Settings.Own) != fmt.Sprint(want) {
		t.Errorf("%v", c.Settings.Own)
	}
}
