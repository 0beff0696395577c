package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/locking"
	"github.com/cronclave/cronclave/scheduler"
)

// TestCheckKnowsTheKernelsLimits checks jobs that no kernel starts: a command and a variable of 128 KiB, and an environment that is too long with the variables of this
// process has, at the stack limit that it has.
func TestCheckKnowsTheKernelsLimits(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 128<<10)
	own := "env = { C = \"" + long[:100_000] + "\" }"
	inherited := []string{"A=" + long[:100_000], "B=" + long[:90_000]} // with which this program itself can still be started
	file := filepath.Join(t.TempDir(), "jobs.toml")
	for name, tt := range map[string]struct {
		text string
		env  []string
		want string // a pattern; "" for ok
	}{
		"command":             {text: "command = \"echo " + long + "\"", want: `^:3:11: "command" has 131077 bytes; the kernel takes at most 131071: .*\n$`},
		"argument":            {text: "command = [\"echo\", \"" + long + "\"]", want: `^:3:20: "command" has 131072 bytes; the kernel .*\n$`},
		"variable":            {text: "command = \"echo\"\nenv = { LONG = \"" + long[3:] + "\" }", want: `^:4:16: "LONG" has 131074 bytes with its name; the kernel .*\n$`},
		"inherited variables": {text: "command = \"echo\"\n" + own, env: inherited, want: `^:1:1: job j: too long for the kernel: the arguments take \d+ bytes and the environment [23]\d{5}, together at most 262144 are possible .*\n$`},
		"disabled":            {text: "command = \"echo\"\nenabled = false\n" + own, env: inherited},
		"for other labels":    {text: "command = \"echo\"\nwhere = { zone = \"elsewhere\" }\n" + own, env: inherited},
		"none of them":        {text: "command = \"echo\"\ninherit_env = false\n" + own, env: inherited},
	} {
		if err := os.WriteFile(file, []byte("[jobs.j]\nschedule = \"@yearly\"\n"+tt.text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		line := []string{"sh", "-c", `ulimit -s 1024; exec cronclave check "$0"`, file}
		if tt.want == "" {
			if said := startProcess(t, tt.env, line...).end(t, 0); !strings.HasSuffix(said, "ok, 1 job\n") {
				t.Errorf("%s: %s", name, said)
			}
			continue
		}
		if said := strings.ReplaceAll(startProcess(t, tt.env, line...).end(t, 2), file, ""); !regexp.MustCompile(tt.want).MatchString(said) {
			t.Errorf("%s: %.500s, want %s", name, said, tt.want)
		}
	}
}

// A lease that the configuration allows is one that can be granted.
func TestLongestLeaseIsTheSameEverywhere(t *testing.T) {
	if config.MaxLease != locking.MaxLease {
		t.Errorf("%v in a configuration, and %v in a lock", config.MaxLease, locking.MaxLease)
	}
}

// A check looks at the programs of the jobs that the scheduler would run here, by the labels of the replica.
func TestLabelsAreMatchedTheSameEverywhere(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "jobs.toml")
	table := func(labels scheduler.Labels) string {
		var pairs []string
		for name, value := range labels {
			pairs = append(pairs, fmt.Sprintf("%s = %q", name, value))
		}
		return "{ " + strings.Join(pairs, ", ") + " }"
	}
	all := []scheduler.Labels{nil, {"zone": "a"}, {"zone": "b"}, {"zone": "a", "disk": "ssd"}, {"disk": "ssd"}}
	for _, labels := range all {
		for _, where := range all {
			text := fmt.Sprintf("[replica]\nlabels = %s\n[jobs.j]\nschedule = '@daily'\ncommand = ['/no/such/program']\nwhere = %s\n", table(labels), table(where))
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg, err := config.Load(file, config.Options{Machine: true})
			if err != nil {
				t.Fatal(err)
			}
			if looked := strings.Contains(cfg.Warnings.Error(), "/no/such/program"); looked != labels.Include(where) {
				t.Errorf("labels %v, where %v: looked %v, %v", labels, where, looked, cfg.Warnings)
			}
		}
	}
}
