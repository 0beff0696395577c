package config

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/scheduler/cronspec"
)

const full = `
namespace = "prod"
timezone = "Europe/Berlin"
redis.url = "rediss://:${PASSWORD}@redis:6379/2"
redis.tls = { ca_file = "ca.pem", cert_file = "/c.pem", key_file = "k.pem", server_name = "redis" }
redis.acked_replicas = 2
redis.ack_timeout = "50ms"
replica = { drain_timeout = "1m30s", max_running = 7 }
history = { runs = 5, max_age = "1d12h", max_bytes = "2GiB" }
server = { listen = ":7377", token_file = "/t" }
heartbeat = { url = "https://hc.example/ping/${PASSWORD}", every = "90s" }

[defaults]
timeout = "none"
env = { A = "default", B = "default", C = "default" }
env_from_file = { D = "d", E = "e" }
umask = "077"
output = { keep = "1KiB" }

[jobs.b]
schedule = ["0 15 * * *", "0 3 * * *"]
command = ["prog", "$${X}", ""]
dir = "sub"
env_file = "/abs.env"
env = { A = "${OWN:-own}", D = "own", X = "$${literal}${EMPTY:-fallback}${EMPTY}" }
env_from_file = { B = "b" }
inherit_env = false
user = "nobody"
group = "65534"
umask = "0"
ok_exit_codes = [0, 2]
enabled = false
description = "text"
tags = ["x", "y"]
parallel = 3
per_tick = 2
per_replica = 3
start_deadline = "5m"
timeout = "1h"
kill_grace = "0s"
lease = "1s"
jitter = "1m"
output.log = false
timezone = "Asia/Tokyo"

[jobs.a]
schedule = "H 3 * * *"
command = "echo ${A}"
shell = ["/bin/bash", "-c"]

[pools.warehouse]
slots = 4
`

func TestLoadFillsEverything(t *testing.T) {
	t.Chdir(t.TempDir())
	c, err := loadConfig(t, full, Options{Env: environment("PASSWORD=s3cr3t", "EMPTY=")})
	if err != nil {
		t.Fatal(err)
	}
	a, b := c.Jobs[0], c.Jobs[1]
	umask, defaultMask := uint32(0), uint32(0o77)
	wantB := Job{
		Name: "b", File: "jobs.toml", Line: 20, Description: "text", Tags: []string{"x", "y"},
		Ticks: Ticks{Schedule: []string{"0 15 * * *", "0 3 * * *"}},
		Program: Program{Command: []string{"prog", "$${X}", ""}, Dir: "sub", User: "nobody", Group: "65534", Umask: &umask, OKExitCodes: []int{0, 2},
			Environment: Environment{Env: map[string]string{"A": "own", "C": "default", "D": "own", "X": "${literal}fallback"},
				EnvFile: "/abs.env", EnvFromFile: map[string]string{"B": "b", "E": "e"},
				EnvTaken: map[string]bool{"OWN": true, "EMPTY": true}}},
		Slots:  Slots{Parallel: 3, PerTick: 2, PerReplica: 3},
		Times:  Times{StartDeadline: 5 * time.Minute, Timeout: time.Hour, Lease: time.Second, Jitter: time.Minute},
		Output: Output{Keep: 1 << 10},
	}
	wantA := Job{
		Name: "a", File: "jobs.toml", Line: 46, Enabled: true,
		Ticks: Ticks{Schedule: []string{"H 3 * * *"}},
		Program: Program{Command: []string{"/bin/bash", "-c", "echo ${A}"}, Shell: true, Umask: &defaultMask, OKExitCodes: []int{0},
			Environment: Environment{Env: map[string]string{"A": "default", "B": "default", "C": "default"},
				EnvFromFile: map[string]string{"D": "d", "E": "e"}, InheritEnv: true, EnvTaken: map[string]bool{}}},
		Slots:  Slots{Parallel: 1, PerTick: 1, PerReplica: 1},
		Times:  Times{KillGrace: 10 * time.Second, Lease: 30 * time.Second},
		Output: Output{Keep: 1 << 10, Log: true},
	}
	for _, pair := range [][2]*Job{{&a, &wantA}, {&b, &wantB}} {
		got, want := pair[0], pair[1]
		if zone := map[string]string{"a": "Europe/Berlin", "b": "Asia/Tokyo"}[got.Name]; got.Location.String() != zone {
			t.Errorf("%s: zone %v", got.Name, got.Location)
		}
		if got.Spec == nil || len(got.Digest) != 16 {
			t.Errorf("%s: schedule %v, digest %q", got.Name, got.Spec, got.Digest)
		}
		got.Spec, got.Location, got.Digest = nil, nil, ""
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", *got, *want)
		}
	}
	c.Jobs, c.Settings = nil, Settings{} // see settings_test.go
	want := &Config{
		Namespace: "prod", Timezone: c.Timezone,
		Redis: Redis{URL: "rediss://:s3cr3t@redis:6379/2", TLS: &TLS{CAFile: "ca.pem", CertFile: "/c.pem", KeyFile: "k.pem", ServerName: "redis"},
			AckedReplicas: 2, AckTimeout: 50 * time.Millisecond},
		Replica: Replica{DrainTimeout: 90 * time.Second, MaxRunning: 7},
		History: History{Runs: 5, MaxAge: 36 * time.Hour, MaxBytes: 2 << 30}, EnvTaken: map[string]bool{"PASSWORD": true},
		Heartbeat: Heartbeat{URL: "https://hc.example/ping/s3cr3t", Every: 90 * time.Second},
		Traces:    Traces{HeaderTable: HeaderTable{Headers: map[string]Written{}, HeadersFromFile: map[string]Written{}}, Timeout: 10 * time.Second},
		Server:    Server{Listen: ":7377", TokenFile: "/t"},
		Pools:     map[string]Pool{"warehouse": {Slots: 4}},
		Notify:    map[string]Notify{},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", *c, *want)
	}
}

// TestZonesAreBuiltIn checks that zones come from cronspec, which returns one pointer per name and reads no file of the machine.
// Promise: P1
func TestZonesAreBuiltIn(t *testing.T) {
	t.Chdir(t.TempDir())
	c, err := loadConfig(t, full, Options{Env: environment("PASSWORD=s3cr3t", "EMPTY=")})
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]*time.Location{
		"Europe/Berlin": c.Timezone, "Asia/Tokyo": c.Jobs[1].Location,
	} {
		if want, err := cronspec.LoadLocation(name); err != nil || got != want {
			t.Errorf("%s is %p, want %p, %v", name, got, want, err)
		}
	}
}

func TestDefaults(t *testing.T) {
	t.Chdir(t.TempDir())
	c, err := loadConfig(t, "[jobs.a]\nschedule = '@daily'\ncommand = 'true'\n", Options{Env: environment()})
	if err != nil {
		t.Fatal(err)
	}
	want := Job{
		Name: "a", File: "jobs.toml", Line: 1, Enabled: true,
		Ticks: Ticks{Schedule: []string{"@daily"}, Spec: c.Jobs[0].Spec, Location: time.UTC},
		Program: Program{Command: []string{"/bin/sh", "-c", "true"}, Shell: true, OKExitCodes: []int{0},
			Environment: Environment{Env: map[string]string{}, EnvFromFile: map[string]string{}, InheritEnv: true, EnvTaken: map[string]bool{}}},
		Slots:  Slots{Parallel: 1, PerTick: 1, PerReplica: 1},
		Times:  Times{Timeout: 24 * time.Hour, KillGrace: 10 * time.Second, Lease: 30 * time.Second},
		Output: Output{Keep: 16 << 10, Log: true}, Digest: c.Jobs[0].Digest,
	}
	if !reflect.DeepEqual(c.Jobs[0], want) {
		t.Errorf("got  %+v\nwant %+v", c.Jobs[0], want)
	}
	if c.Namespace != "default" || !reflect.DeepEqual(c.Redis, Redis{AckTimeout: 100 * time.Millisecond}) || !reflect.DeepEqual(c.Replica, Replica{DrainTimeout: 25 * time.Second, MaxRunning: 100}) ||
		c.History != (History{50, 30 * 24 * time.Hour, 1 << 20}) || len(c.Warnings) > 0 {
		t.Errorf("%+v", c)
	}
}

func TestWithheld(t *testing.T) {
	t.Chdir(t.TempDir())
	c, err := loadConfig(t, `
redis.url = "${URL:-redis://localhost}"
[defaults]
schedule = "@daily"
command = "true"
env = { SHARED = "${SHARED:-}" }
[jobs.a]
env = { TOKEN = "${TOKEN_A:-}", URL = "${URL:-}" }
user = "${USER_A:-nobody}"
[jobs.b]
env = { TOKEN = "${TOKEN_B:-}" }
`, Options{Env: environment()})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]string{{"SHARED", "TOKEN_B", "URL", "USER_A"}, {"SHARED", "TOKEN_A", "URL", "USER_A"}} {
		got := slices.Sorted(maps.Keys(c.Withheld(&c.Jobs[i])))
		if !slices.Equal(got, want) {
			t.Errorf("%s does not inherit %v, want %v", c.Jobs[i].Name, got, want)
		}
	}
}

func TestKeepUnset(t *testing.T) {
	t.Chdir(t.TempDir())
	const text = `
namespace = "${A}"
timezone = "${A}"
redis.url = "${A}"
server = { listen = "${A}:7377", url = "https://${A}/base", base_path = "/base" }
replica.drain_timeout = "${A}"
history.max_bytes = "${A}"
[jobs.a]
schedule = ["${A}", "61 * * * *"]
command = "true"
overlap = "${A}"
umask = "${A}"
timeout = "${A}"
env = { A = "${A}" }
env_file = "${A}"
`
	c, err := loadConfig(t, text, Options{Env: environment(), KeepUnset: true})
	if err != nil {
		t.Fatal(err)
	}
	if c.Namespace != "default" || c.Jobs[0].Spec != nil || c.Jobs[0].Env["A"] != "${A}" {
		t.Errorf("%+v", c)
	}
	if err := loadText(t, text, Options{Env: environment("A=")}); err == nil {
		t.Error("what is set must be checked")
	}
}

func TestDigest(t *testing.T) {
	t.Chdir(t.TempDir())
	load := func(text string, pairs ...string) *Config {
		t.Helper()
		c, err := loadConfig(t, text, Options{Env: environment(pairs...)})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	const a, b = "[jobs.a]\nschedule = '0 3 * * *'\ncommand = 'true'\nenv = { S = '${S:-}' }\n", "[jobs.b]\nschedule = '@daily'\ncommand = 'true'\n"
	base := load(a + b)
	for name, same := range map[string]*Config{
		"order":         load(b + a),
		"the machine":   load("redis.url = 'redis://other'\nreplica.max_running = 3\nreplica.labels.zone = 'b'\n"+a+b, "S=secret"),
		"no retry":      load("defaults.retry.max = 0\n" + a + b),
		"no recovery":   load("defaults.recover = false\n" + a + b),
		"spelling":      load(strings.Replace(a, "0 3", "00  03", 1) + "timeout = '1440m'\n" + b),
		"a calendar":    load("[calendars.unused]\ndates = ['2026-12-25']\n" + a + b),
		"from defaults": load("[defaults]\ncommand = 'true'\n" + a + strings.Replace(b, "command = 'true'\n", "", 1)),
	} {
		if same.Digest() != base.Digest() {
			t.Errorf("%s changes the digest", name)
		}
	}
	if alone := load(b); alone.Jobs[0].Digest != base.Jobs[1].Digest {
		t.Error("a job changes the digest of another one")
	}
	seen := map[string]string{base.Digest(): "nothing"}
	for _, line := range []string{
		"namespace = 'x'", "history.runs = 5", "cluster.replicas = 3", "defaults.timezone = 'Asia/Tokyo'", "defaults.timeout = '1h'",
		"defaults.dir = '/tmp'", "defaults.env = { X = '' }", "defaults.env_from_file = { X = '/a' }",
		"defaults.env_from_file = { X = '/b' }", "defaults.env_file = '/a'", "defaults.enabled = false", "defaults.umask = '0'",
		"defaults.lease = '1m'", "defaults.jitter = '1s'", "defaults.output.log = false", "defaults.inherit_env = false",
		"defaults.shell = ['/bin/bash', '-c']", "defaults.nice = 0", "defaults.nice = 1", "defaults.limits.memory = '1GiB'",
		"defaults.limits.memory = '2GiB'", "defaults.limits.pids = 9", "defaults.where.zone = 'a'", "defaults.where.zone = 'b'",
		"defaults.except = '0 0 1 1 *'", "defaults.except = 'days'\ncalendars.days.dates = ['2026-12-25']",
		"defaults.except = 'days'\ncalendars.days.dates = ['2026-12-26']", "defaults.starts_at = 2026-12-25T00:00:00Z",
		"defaults.expires_at = 2126-12-25T00:00:00Z", "defaults.retry.max = 1", "defaults.retry = { max = 1, delay = '1s' }",
		"defaults.retry = { max = 1, max_delay = '1h' }", "defaults.recover = true", "defaults.recover = { max = 2 }", "jobs.c = { schedule = '@daily', command = 'true' }",
	} {
		digest := load(line + "\n" + a + b).Digest()
		if before, again := seen[digest]; again {
			t.Errorf("%s changes the digest no more than %s", line, before)
		}
		seen[digest] = line
	}
}

func TestFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "conf", `
-- a.toml --
include = ["../extra/[x]/*.toml", "../extra/job?.toml", "../extra/job1.toml"]
[jobs.a]
schedule = "@daily"
command = "true"
dir = "work"
-- b.toml --
[defaults]
timeout = "5m"
-- .#a.toml --
no TOML
-- notes.txt --
no TOML
-- sub.toml/c.toml --
no TOML
-- ../extra/job1.toml --
include = ["../conf/*.toml", "[[]y]/*.toml"]
jobs.b = { schedule = "@daily", command = "true", env_file = "b.env" }
-- ../extra/[y]/c.toml --
include = ["d*.toml"]
-- ../extra/[y]/d.toml --
jobs.d = { schedule = "@daily", command = "true" }
`)
	if err := os.Symlink("job1.toml", filepath.Join("extra", "job2.toml")); err != nil {
		t.Fatal(err)
	}
	c, err := Load("conf", Options{Env: environment()})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, j := range c.Jobs {
		got = append(got, strings.Join([]string{j.Name, j.File, j.Dir, j.EnvFile, j.Timeout.String()}, " "))
	}
	want := []string{
		"a conf/a.toml conf/work  5m0s",
		"b extra/job1.toml  extra/b.env 5m0s",
		"d extra/[y]/d.toml   5m0s",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestUnreadable(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("empty", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("big.toml", make([]byte, maxFileBytes+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{"\xff\xfea = 1": "1:1", "\ufeff\ufeffa = 1": "1:1", "# éééé\n\x00": "2:1", "a = 'é\xff'": "1:7"} {
		if err := os.WriteFile(filepath.Join("empty", "x"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load("empty/x", Options{}); err == nil || !strings.HasPrefix(err.Error(), "empty/x:"+want+": not TOML: ") {
			t.Errorf("%q: %v", text, err)
		}
	}
	for path, want := range map[string]string{
		"missing.toml": "missing.toml:1:1: cannot be read: no such file or directory",
		"empty":        "empty:1:1: no *.toml file in this folder",
		"big.toml":     "big.toml:1:1: big.toml cannot be read: longer than 4 MiB",
	} {
		if _, err := Load(path, Options{}); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
}

func TestNoJobsIsAWarning(t *testing.T) {
	t.Chdir(t.TempDir())
	c, err := loadConfig(t, "redis.url = 'redis://localhost'\n", Options{})
	if err != nil || len(c.Warnings) != 1 || c.Warnings[0].String() != "jobs.toml:1:1: warning: no jobs: nothing will run" {
		t.Errorf("%v %v", err, c)
	}
}
