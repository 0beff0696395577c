package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestNotifyIsRead checks the defaults of each kind, paths, and the targets of jobs with and without those of [defaults].
func TestNotifyIsRead(t *testing.T) {
	t.Chdir(t.TempDir())
	c, err := loadConfig(t, `
[notify.chat]
kind = "slack"
url = "https://hooks.example/${TOKEN}"
[notify.hook]
kind = "webhook"
url_file = "url"
token_file = "/run/token"
secret_files = ["new", "/old"]
ca_file = "ca.pem"
on = ["ok"]
group_wait = "0s"
timeout = "1m"
[notify.mail]
kind = "mail"
url = "smtp://cron@mail.example"
from = "Cron <cron@example.org>"
to = ["a@example.org", "b@example.org"]
template = { title = "{job}" }
[notify.check]
kind = "ping"
url = "https://hc.example/k/{job}"
service = "healthchecks"
[notify.page]
kind = "pagerduty"
token_file = "key"
[defaults]
schedule = "@daily"
command = "true"
notify = ["mail", "chat", "mail"]
[jobs.a]
[jobs.b]
notify = ["check", "page", "hook"]
[jobs.c]
notify = []
`, Options{Env: environment("TOKEN=s3cr3t")})
	if err != nil || len(c.Warnings) > 0 {
		t.Fatal(err, c.Warnings)
	}
	usual := newNotify()
	failures := []string{"failed", "timeout", "lost", "abandoned", "missed", "fixed", "stale", "overdue", "replica_lost", "config_differs", "pool_full", "redis"}
	want := map[string]Notify{
		"chat": {Name: "chat", Kind: "slack", URL: "https://hooks.example/s3cr3t", On: failures, GroupWait: usual.GroupWait, Timeout: usual.Timeout},
		"hook": {Name: "hook", Kind: "webhook", URLFile: "url", TokenFile: "/run/token", SecretFiles: []string{"new", "/old"}, CAFile: "ca.pem", On: []string{"ok"}, Timeout: time.Minute},
		"mail": {Name: "mail", Kind: "mail", URL: "smtp://cron@mail.example", From: "Cron <cron@example.org>", To: []string{"a@example.org", "b@example.org"}, Title: "{job}",
			On: failures, GroupWait: usual.GroupWait, Timeout: usual.Timeout},
		"check": {Name: "check", Kind: "ping", URL: "https://hc.example/k/{job}", Service: "healthchecks", Timeout: usual.Timeout,
			On: []string{"running", "ok", "failed", "timeout", "canceled", "lost", "abandoned", "skipped", "missed"}},
		"page": {Name: "page", Kind: "pagerduty", TokenFile: "key", On: failures, Timeout: usual.Timeout},
	}
	if usual.GroupWait != 30*time.Second || usual.Timeout != 15*time.Second || !reflect.DeepEqual(c.Notify, want) {
		t.Errorf("got  %+v\nwant %+v", c.Notify, want)
	}
	for i, targets := range [][]string{{"chat", "mail"}, {"check", "hook", "page"}, nil} {
		if !slices.Equal(c.Jobs[i].Notify, targets) {
			t.Errorf("%s: %q", c.Jobs[i].Name, c.Jobs[i].Notify)
		}
	}
	if !c.EnvTaken["TOKEN"] {
		t.Error("jobs inherit the variable of a URL")
	}
}

// TestDigestOfNotify checks that the targets of a job and the events of a target count, and that addresses do not: machines may reach a target in different ways.
func TestDigestOfNotify(t *testing.T) {
	t.Chdir(t.TempDir())
	digests := func(url, on, job string) (all, ofJob string) {
		t.Helper()
		c, err := loadConfig(t, "[notify.x]\nkind = 'slack'\nurl = '"+url+"'\non = ['"+on+"']\n[jobs.a]\nschedule = '@daily'\ncommand = 'true'\n"+job, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return c.Digest(), c.Jobs[0].Digest
	}
	all, job := digests("https://a", "ok", "notify = ['x']")
	for _, tt := range []struct {
		url, on, job     string
		sameAll, sameJob bool
	}{{"https://b", "ok", "notify = ['x']", true, true}, {"https://a", "failed", "notify = ['x']", false, true}, {"https://a", "ok", "", false, false}} {
		a, j := digests(tt.url, tt.on, tt.job)
		if (a == all) != tt.sameAll || (j == job) != tt.sameJob {
			t.Errorf("%+v: %v, %v", tt, a == all, j == job)
		}
	}
}

// TestParseTarget checks which URLs are targets, and that no message repeats one.
func TestParseTarget(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"https://h", "http://h/x?y#z", "https://u:p@h:1/{job}/fail", "smtps://h", "smtp://u%40h:p@h:2525", "smtp+plain://[::1]:25"} {
		if _, err := ParseTarget(good); err != nil {
			t.Errorf("%s %v", good, err)
		}
	}
	for _, bad := range []string{"", "hunter2", "ftp://h/hunter2", "https:///hunter2", "https://h:hunter2/", "://hunter2", "https://h/%zz-hunter2"} {
		if _, err := ParseTarget(bad); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
