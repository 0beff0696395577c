package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/cronclave/cronclave/internal/safefile"
)

// TestMachineLacksWhatJobsName checks the warnings about missing users, folders and files, and their places. Disabled jobs and jobs for other machines have
// none.
func TestMachineLacksWhatJobsName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain, long := filepath.Join(dir, "plain"), filepath.Join(dir, "long")
	path := filepath.Join(dir, "jobs.toml")
	text := fmt.Sprintf(`[replica]
labels = { zone = "a" }
[defaults]
schedule = "@daily"
[jobs.lacking]
command = ["/no/such/program"]
user = "nobody-here"
inherit_env = false
dir = "/no/such/folder"
env_file = "/no/such/env"
env_from_file = { SECRET = "/no/such/secret" }
[jobs.wrong]
command = [%q]
dir = %q
env_file = %q
env_from_file = { LONG = %q }
[jobs.shell]
command = "true"
shell = ["/no/such/shell", "-c"]
[jobs.here]
command = ["/no/such/here"]
where = { zone = "a" }
[jobs.elsewhere]
command = ["/no/such/elsewhere"]
where = { zone = "b" }
[jobs.off]
command = ["/no/such/off"]
enabled = false
[jobs.good]
command = ["program-in-path"]
dir = %q
`, plain, plain, dir, long, dir)
	for name, content := range map[string]string{plain: "", path: text, long: strings.Repeat("x", 130<<10)} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	options := Options{Machine: true, Rights: func(user, _ string) (*safefile.Identity, error) {
		if user != "" {
			return nil, errors.New("user " + user + ": no such user")
		}
		return nil, nil
	}}
	cfg, err := Load(path, options)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range cfg.Warnings {
		message, _, _ := strings.Cut(w.Message, ": the job cannot start here")
		got = append(got, fmt.Sprintf("%d %s", w.Line, message))
	}
	want := []string{"6 /no/such/program is not on this machine", "7 user nobody-here: no such user on this machine", "9 /no/such/folder is not on this machine",
		"10 /no/such/env is not on this machine", "11 /no/such/secret is not on this machine", "13 " + plain + " is no program", "14 " + plain + " is no folder",
		"15 read " + dir + ": is a directory", "16 read " + long + ": longer than 128 KiB", "19 /no/such/shell is not on this machine", "21 /no/such/here is not on this machine"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	options.Machine = false
	if cfg, err = Load(path, options); err != nil || len(cfg.Warnings) > 0 {
		t.Errorf("not asked for: %v, %v", err, cfg.Warnings)
	}
}

// TestUserOfASilentDirectory checks the warning about a user whose directory service does not answer.
func TestUserOfASilentDirectory(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "jobs.toml")
	text := "[jobs.a]\nschedule = \"@daily\"\ncommand = \"true\"\nuser = \"dora\"\ninherit_env = false\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := Load(path, Options{Machine: true, Rights: func(user, _ string) (*safefile.Identity, error) {
		return nil, fmt.Errorf("user %s: getent passwd %s: %w", user, user, safefile.ErrUnanswered)
	}})
	if err != nil {
		t.Fatal(err)
	}
	const want = "user dora: getent passwd dora: its file system does not answer; the job cannot start here until the directory service answers"
	if w := cfg.Warnings; len(w) != 1 || w[0].Line != 4 || w[0].Message != want {
		t.Errorf("got %v, want %q at line 4", w, want)
	}
}

// TestWhatAJobAsksOfItsMachine checks that the limits of a job are merged with [defaults], and that its `where` replaces the table of [defaults].
func TestWhatAJobAsksOfItsMachine(t *testing.T) {
	t.Chdir(t.TempDir())
	c, err := loadConfig(t, `
replica.labels = { zone = "${ZONE}", disk = "ssd" }
[defaults]
schedule = "@daily"
command = "true"
nice = 10
limits = { memory = "1GiB", pids = 200 }
where = { zone = "a" }
[jobs.a]
[jobs.b]
nice = -5
limits = { pids = 4194304 }
where = { disk = "ssd", rack = "7" }
[jobs.c]
nice = 0
limits = { memory = "1MiB" }
where = {}
`, Options{Env: environment("ZONE=b")})
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"zone": "b", "disk": "ssd"}; !reflect.DeepEqual(c.Replica.Labels, want) {
		t.Errorf("labels %v, want %v", c.Replica.Labels, want)
	}
	for i, want := range []struct {
		nice   int
		limits Limits
		where  map[string]string
	}{
		{10, Limits{1 << 30, 200}, map[string]string{"zone": "a"}},
		{-5, Limits{1 << 30, 4 << 20}, map[string]string{"disk": "ssd", "rack": "7"}},
		{0, Limits{1 << 20, 200}, map[string]string{}},
	} {
		j := c.Jobs[i]
		if j.Nice == nil || *j.Nice != want.nice || j.Limits != want.limits || !reflect.DeepEqual(j.Where, want.where) {
			t.Errorf("%s: nice %v, limits %v, where %v; want %+v", j.Name, j.Nice, j.Limits, j.Where, want)
		}
	}
	if c, err = loadConfig(t, "[jobs.a]\nschedule = '@daily'\ncommand = 'true'\n", Options{}); err != nil {
		t.Fatal(err)
	}
	// The digest must equal the digest of versions without these keys.
	if j := c.Jobs[0]; j.Nice != nil || j.Limits != (Limits{}) || j.Where != nil || j.Digest != "b007810ad6ecf9fb" {
		t.Errorf("what is not set: %+v", j)
	}
}
