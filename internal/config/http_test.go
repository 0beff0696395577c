package config

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

const request = `
[defaults]
schedule = "@daily"
user = "nobody"
limits.memory = "1GiB"
env_file = "absent"
http.headers = { X-Key = "${KEY}", Accept = "text/plain" }
[jobs.a]
http = { url = "https://h.example/hunter2", headers_from_file = { Accept = "token" }, body_file = "body", tls = { ca_file = "ca" } }
[jobs.b]
command = "true"
`

// TestRequestOfAJob checks how http of a job and of [defaults] combine, and that keys of commands in [defaults] do not concern it.
func TestRequestOfAJob(t *testing.T) {
	t.Chdir(t.TempDir())
	load := func(text, key string) *Config {
		c, err := loadConfig(t, text, Options{Env: environment("KEY=" + key)})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := load(request, "s3cr3t")
	a, b := c.Jobs[0], c.Jobs[1]
	if b.HTTP != nil || len(b.Command) == 0 || b.User != "nobody" {
		t.Errorf("%+v is not the command", b)
	}
	h := a.HTTP
	if h == nil || a.Command != nil || a.User != "" || a.Limits != (Limits{}) || a.EnvFile != "" || a.KillGrace != 0 {
		t.Fatalf("%+v is not the request", a)
	}
	if h.Method != "POST" || h.Headers["X-Key"].Value != "s3cr3t" || len(h.Headers) != 1 || !strings.HasSuffix(h.HeadersFromFile["Accept"].Value, "token") || !c.EnvTaken["KEY"] {
		t.Errorf("%+v", h)
	}
	if !h.Expects(204) || h.Expects(304) || h.Expects(199) {
		t.Errorf("expects %v", h.Expect)
	}
	digest, err := json.Marshal(a)
	shown := fmt.Sprintf("%v %+v %s %v", a.HTTP, *a.HTTP, c.Settings.Of("a"), c.Warnings)
	if err != nil || strings.Contains(shown, "hunter2") || strings.Contains(shown+string(digest), "s3cr3t") {
		t.Errorf("a secret is shown: %v\n%s\n%s", err, shown, digest)
	}
	if !slices.Contains(c.Settings.Of("a"), Setting{"http", "POST https://h.example, with Accept, X-Key"}) {
		t.Errorf("settings %v", c.Settings.Of("a"))
	}
	for name, text := range map[string]string{"url": strings.Replace(request, "hunter2", "hunter3", 1), "certificate": strings.Replace(request, `"ca"`, `"cb"`, 1),
		"body": strings.Replace(request, `"body"`, `"other"`, 1), "default": strings.Replace(request, "text/plain", "text/html", 1)} {
		if differs := load(text, "s3cr3t").Jobs[0].Digest != a.Digest; differs != (name != "default") { // the default is overridden
			t.Errorf("digest with another %s differs: %v", name, differs)
		}
	}
	if load(request, "other").Jobs[0].Digest != a.Digest || load(strings.Replace(request, "http = {", `http = { expect = ["200-299"], redirects = false, method = "POST",`, 1), "s3cr3t").Jobs[0].Digest != a.Digest {
		t.Error("the digest depends on the environment, or on defaults that are written out")
	}
}

// TestFilesOfARequest checks that files of a request are warned about like those of a command.
func TestFilesOfARequest(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("token", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := loadConfig(t, strings.Replace(request, "${KEY}", "", 1), Options{Machine: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Warnings.Error(); strings.Count(got, "is not on this machine: the job cannot start here") != 3 || !strings.Contains(got, "body is not") || !strings.Contains(got, "ca is not") || !strings.Contains(got, "absent is not") {
		t.Errorf("warnings:\n%s", got)
	}
}
