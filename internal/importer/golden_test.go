package importer

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cronclave/cronclave/internal/config"
)

var update = flag.Bool("update", false, "write the golden files anew")

// goldenOptions returns the options for an input, by its name: DIALECT.crontab or NAME.SOURCE.
func goldenOptions(name string) Options {
	base := filepath.Base(name)
	source := strings.TrimPrefix(filepath.Ext(base), ".")
	o := Options{Source: source}
	if source == "crontab" {
		o.Dialect, o.Timezone = strings.TrimSuffix(base, ".crontab"), "Europe/Vienna"
		if o.Dialect == "system" {
			is := true
			o.Dialect, o.System = "debian", &is
		}
	}
	if source == "systemd" {
		o.Source = "systemd"
	}
	return o
}

// TestGolden compares the output for inputs that have each trap of a source. -update writes the output.
func TestGolden(t *testing.T) {
	t.Parallel()
	inputs, err := filepath.Glob("testdata/golden/*.*")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, input := range inputs {
		if strings.HasSuffix(input, ".toml") {
			continue
		}
		seen++
		text, err := os.ReadFile(input)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Convert([]File{{filepath.Base(input), string(text)}}, goldenOptions(input))
		if err != nil {
			t.Fatal(err)
		}
		checkResult(t, r)
		golden := input + ".toml"
		if *update {
			if err := os.WriteFile(golden, []byte(r.Text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil || string(want) != r.Text {
			t.Errorf("%s: %v; the output is\n%s", golden, err, r.Text)
		}
	}
	if seen < 14 {
		t.Errorf("only %d inputs", seen)
	}
}

// checkResult checks that a result passes check, and that it has no secret of the golden inputs.
func checkResult(t *testing.T, r *Result) {
	t.Helper()
	cfg, err := config.Parse("import", r.Text, config.Options{})
	if err != nil {
		t.Errorf("%v:\n%s", err, r.Text)
	}
	if err == nil && len(cfg.Jobs) != r.Carried {
		t.Errorf("%d jobs, and %d are said to be carried:\n%s", len(cfg.Jobs), r.Carried, r.Text)
	}
	for _, secret := range []string{"hunter2", "abcdef123456", "user:pw@", "abc123", "EXAMPLEHASH", "0123456789abcdef", "token=abc", "Bearer abc", "API_KEY=abc", "T/secret"} {
		if strings.Contains(r.Text, secret) {
			t.Errorf("the secret %q is printed:\n%s", secret, r.Text)
		}
	}
}

// fuzzSource imports any text as one source: nothing panics, and the result always passes check.
func fuzzSource(f *testing.F, options ...Options) {
	f.Helper()
	inputs, err := filepath.Glob("testdata/golden/*.*")
	if err != nil {
		f.Fatal(err)
	}
	for _, input := range inputs {
		if goldenOptions(input).Source != options[0].Source {
			continue
		}
		text, err := os.ReadFile(input)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text), uint8(0))
	}
	f.Fuzz(func(t *testing.T, text string, choice uint8) {
		o := options[int(choice)%len(options)]
		r, err := Convert([]File{{"fuzz", text}}, o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := config.Parse("import", r.Text, config.Options{}); err != nil {
			t.Errorf("%v:\n%s", err, r.Text)
		}
		if strings.Contains(r.Text, "the configuration would be faulty") {
			t.Errorf("the whole is faulty although each part is not:\n%s", r.Text)
		}
	})
}

func FuzzCrontab(f *testing.F) {
	var all []Options
	for _, dialect := range Dialects() {
		for _, system := range []bool{false, true} {
			all = append(all, Options{Source: "crontab", Dialect: dialect, System: &system})
		}
	}
	fuzzSource(f, all...)
}

func FuzzSystemd(f *testing.F)    { fuzzSource(f, Options{Source: "systemd"}) }
func FuzzKubernetes(f *testing.F) { fuzzSource(f, Options{Source: "kubernetes"}) }
func FuzzDkron(f *testing.F)      { fuzzSource(f, Options{Source: "dkron"}) }
func FuzzCronicle(f *testing.F)   { fuzzSource(f, Options{Source: "cronicle"}) }
func FuzzOfelia(f *testing.F)     { fuzzSource(f, Options{Source: "ofelia"}) }
func FuzzYacron(f *testing.F)     { fuzzSource(f, Options{Source: "yacron"}) }
