package replica

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/config"
)

// loadConfig returns the configuration of a file of this text.
func loadConfig(t *testing.T, text string) *config.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jobs.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(path, config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// A secret that the replica was started with is kept from jobs, also when the file does not name it any more.
func TestRetainedSecretsStayWithheld(t *testing.T) {
	t.Setenv("SECRET", "x")
	load := func(redis string) *config.Config {
		return loadConfig(t, "redis.url = \""+redis+"\"\n[jobs.j]\nschedule = \"@daily\"\ncommand = \"true\"\n")
	}
	started, cfg := load("redis://:${SECRET}@h"), load("redis://h")
	if sections := retainSettings(cfg, started); !slices.Equal(sections, []string{"[redis]"}) {
		t.Errorf("%v", sections)
	}
	if cfg.Redis.URL != started.Redis.URL || !cfg.Withheld(&cfg.Jobs[0])["SECRET"] {
		t.Errorf("%q is in use, and withheld is %v", cfg.Redis.URL, cfg.Withheld(&cfg.Jobs[0]))
	}
}

// A configuration that is empty, or changes while it is read, is not taken.
func TestReloadKeepsTheLastGoodConfiguration(t *testing.T) {
	name := t.TempDir() + "/jobs.toml"
	write := func(text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("")
	r := &Replica{log: hclog.NewNullLogger()}
	r.cfg.Store(&config.Config{Jobs: make([]config.Job, 1)})
	l := &reloader{log: r.log, cfg: &r.cfg, refused: &r.refused, monitor: &r.monitor, files: &config.Files{}, load: func() (*config.Config, *config.Files, error) {
		files := &config.Files{}
		cfg, err := config.Load(name, config.Options{Files: files})
		return cfg, files, err
	}}
	l.reloadConfig(context.Background(), "")
	if why := r.refused.Load(); why == nil || !strings.Contains(*why, "no jobs any more") || len(r.cfg.Load().Jobs) != 1 {
		t.Errorf("%v", why)
	}
	r.refused.Store(nil)
	read := l.files
	l.reloadConfig(context.Background(), "another stamp")
	if l.files != read || r.refused.Load() != nil {
		t.Error("it was taken although it had changed meanwhile")
	}
}

// TestReloadEndsWithTheReplica stops a replica while it reads its configuration from a mount that does not answer.
func TestReloadEndsWithTheReplica(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	answers, ended := make(chan struct{}), make(chan struct{})
	defer close(answers)
	l := &reloader{log: hclog.NewNullLogger(), supervision: &supervision{}, files: &config.Files{}, load: func() (*config.Config, *config.Files, error) {
		stop()
		<-answers
		return nil, nil, errors.New("not read")
	}}
	asked := make(chan struct{}, 1)
	asked <- struct{}{}
	go func() {
		defer close(ended)
		l.run(ctx, asked)
	}()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Error("it waits for the mount")
	}
}

func TestReloadLogsFilesThatChangeAllTheTime(t *testing.T) {
	name := t.TempDir() + "/jobs.toml"
	files, log := &config.Files{}, &strings.Builder{}
	if _, err := config.Load(name, config.Options{Files: files}); err == nil {
		t.Fatal("a missing file is no fault")
	}
	l := &reloader{log: hclog.New(&hclog.LoggerOptions{Output: log}), files: files}
	for i := range 2 * restless {
		if err := os.WriteFile(name, make([]byte, i), 0o600); err != nil {
			t.Fatal(err)
		}
		if l.hasStableChange(t.Context()) {
			t.Fatal("taken while it changes")
		}
	}
	if n := strings.Count(log.String(), "keep changing"); n != 1 {
		t.Errorf("told %d times: %s", n, log)
	}
	if !l.hasStableChange(t.Context()) {
		t.Error("not taken now that it is the same")
	}
}
