package demo

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cronclave/cronclave/internal/config"
)

func loadText(t *testing.T, text string) *config.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jobs.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(path, config.Options{Env: func(name string) (string, bool) { return "1", true }})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestReplicasGetNoOtherOrders(t *testing.T) {
	cfg := loadText(t, `
[redis]
url = "redis://:${CRONCLAVE_REDIS_PASSWORD}@127.0.0.1"
[jobs.a]
schedule = "@daily"
command = ["true"]
env = { X = "${CRONCLAVE_OF_THE_JOB}" }
`)
	environ := []string{"PATH=/bin", "CRONCLAVE_REDIS=redis://10.0.0.1", "CRONCLAVE_CLOCK_OFFSET=1h", "CRONCLAVE_CONFIG=x.toml",
		"CRONCLAVE_REDIS_PASSWORD=p", "CRONCLAVE_OF_THE_JOB=j", "DEMO_PROGRAM=/other"}
	got := replicaEnv(environ, cfg, map[string]string{"DEMO_PROGRAM": "/this"})
	want := []string{"PATH=/bin", "CRONCLAVE_REDIS_PASSWORD=p", "CRONCLAVE_OF_THE_JOB=j", "DEMO_PROGRAM=/this"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestLogLinesAreRead(t *testing.T) {
	l := parseLog([]byte(`{"level":"info","msg":"started","time":"2026-03-01T13:00:02.25+01:00","job":"beat","slot":2,` +
		`"run_id":"x","tick":"2026-03-01T12:00:02Z","token":9007199254740991}`))
	if l.Token != 1<<53-1 || l.Slot != 2 || !l.Tick.Equal(second(2)) || !l.At.Equal(second(2.25)) || l.Message != saidStarted {
		t.Errorf("%+v", l)
	}
	// Other lines have other types at these keys.
	if l := parseLog([]byte(`{"level":"warn","msg":"ticks missed","job":"beat","token":"none","reason":"redis"}`)); l.Level != "warn" || l.Reason != "redis" {
		t.Errorf("%+v", l)
	}
	if l := parseLog([]byte("panic: no")); l.Level != "" || l.Message != "panic: no" {
		t.Errorf("%+v", l)
	}
}
