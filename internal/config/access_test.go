package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cronclave/cronclave/internal/config"
)

const (
	faultyJob = "\n[jobs.a]\nschedule = \"every day\"\ncommand = \"true\"\n"
	brokenJob = "\n[jobs.a\n"
	someRedis = "\n[redis]\nurl = \"redis://db:6379/1\"\n"
)

// TestAccess reads the access from configurations that Load refuses. A doubtful value must not be replaced by the default.
func TestAccess(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text, include string // of jobs.toml, and of a file that it includes
		namespace     string // or the word of its error, behind "!"
		url           string // or the same
	}{
		"a faulty job":                      {text: `namespace = "prod"` + someRedis + faultyJob, namespace: "prod", url: "redis://db:6379/1"},
		"no namespace":                      {text: someRedis + faultyJob, namespace: "default", url: "redis://db:6379/1"},
		"a job that is there twice":         {text: someRedis + faultyJob + faultyJob, namespace: "default", url: "redis://db:6379/1"},
		"no Redis":                          {text: faultyJob, namespace: "default"},
		"a misspelt namespace":              {text: `namspace = "prod"` + someRedis, namespace: "!namspace", url: "redis://db:6379/1"},
		"a namespace by another word":       {text: `cluster = "prod"` + someRedis, namespace: "!cluster", url: "redis://db:6379/1"},
		"a namespace that is none":          {text: `namespace = "a b"` + someRedis, namespace: "!faulty", url: "redis://db:6379/1"},
		"a namespace of no string":          {text: `namespace = 7` + someRedis, namespace: "!faulty", url: "redis://db:6379/1"},
		"a namespace that is a table":       {text: "[namespace]\nname = \"prod\"" + someRedis, namespace: "!faulty", url: "redis://db:6379/1"},
		"a namespace of a variable":         {text: `namespace = "${NOWHERE_SET}"` + someRedis, namespace: "!faulty", url: "redis://db:6379/1"},
		"two namespaces":                    {text: "namespace = \"a\"\nnamespace = \"b\"" + someRedis, namespace: "!faulty", url: "redis://db:6379/1"},
		"two namespaces in two files":       {text: "namespace = \"a\"\ninclude = [\"more.toml\"]" + someRedis, include: `namespace = "b"`, namespace: "!faulty", url: "redis://db:6379/1"},
		"a namespace in a table":            {text: someRedis + faultyJob + `namespace = "prod"`, namespace: "!jobs.a.namespace", url: "redis://db:6379/1"},
		"a namespace in [replica]":          {text: someRedis + "[replica]\nnamespace = \"prod\"", namespace: "!replica.namespace", url: "redis://db:6379/1"},
		"a namespace in a second table":     {text: someRedis + faultyJob + faultyJob + `namespace = "prod"`, namespace: "!cannot be read", url: "redis://db:6379/1"},
		"no TOML":                           {text: `namespace = "prod"` + someRedis + brokenJob, namespace: "!cannot be read", url: "!cannot be read"},
		"an include that is no TOML":        {text: "include = [\"more.toml\"]" + someRedis, include: brokenJob, namespace: "!cannot be read", url: "redis://db:6379/1"},
		"a namespace beside such":           {text: "namespace = \"prod\"\ninclude = [\"more.toml\"]" + someRedis, include: brokenJob, namespace: "prod", url: "redis://db:6379/1"},
		"an include that is not there":      {text: "include = [\"nowhere.toml\"]" + someRedis, namespace: "!cannot be read", url: "redis://db:6379/1"},
		"a quorum in what is no TOML":       {text: "namespace = \"prod\"\ninclude = [\"more.toml\"]" + someRedis, include: "[redis]\nquorum = [" + brokenJob, namespace: "prod", url: "!quorum"},
		"a faulty quorum":                   {text: someRedis + `quorum = ["redis://a", 7, "redis://c"]`, namespace: "default", url: "!faulty"},
		"a misspelt quorum":                 {text: someRedis + `qorum = ["redis://a", "redis://b", "redis://c"]`, namespace: "default", url: "!faulty"},
		"a second [redis]":                  {text: someRedis + someRedis, namespace: "default", url: "!faulty"},
		"a second url":                      {text: someRedis + "url = \"redis://other\"", namespace: "default", url: "!faulty"},
		"a URL that is none":                {text: "[redis]\nurl = \"http://db\"", namespace: "default", url: "!faulty"},
		"a URL of a variable":               {text: "[redis]\nurl = \"${NOWHERE_SET}\"", namespace: "default", url: "!faulty"},
		"[redis] in what is no TOML":        {text: "namespace = \"prod\"\ninclude = [\"more.toml\"]", include: someRedis + brokenJob, namespace: "prod", url: "!cannot be read"},
		"a namespace that is an env's name": {text: someRedis + faultyJob + "[jobs.a.env]\nnamespace = \"x\"", namespace: "default", url: "redis://db:6379/1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "jobs.toml")
			for file, text := range map[string]string{path: test.text, filepath.Join(dir, "more.toml"): test.include} {
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := config.Load(path, config.Options{}); err == nil {
				t.Fatal("the configuration has no fault")
			}
			a := config.ReadAccess(path, config.Options{})
			wantOrError(t, "the namespace", a.Namespace, a.NamespaceErr, test.namespace)
			if a.RedisErr != nil {
				a.Redis.URL = ""
			}
			wantOrError(t, "the URL", a.Redis.URL, a.RedisErr, test.url)
		})
	}
}

// wantOrError checks a value, or an error that contains the text after "!".
func wantOrError(t *testing.T, what, got string, err error, want string) {
	t.Helper()
	word, fails := strings.CutPrefix(want, "!")
	switch {
	case fails && (err == nil || !strings.Contains(err.Error(), word)):
		t.Errorf("%s: %q and error %v; want an error with %q", what, got, err, word)
	case fails && got != "":
		t.Errorf("%s: %q beside the error %v", what, got, err)
	case !fails && (err != nil || got != want):
		t.Errorf("%s: %q and error %v; want %q", what, got, err, want)
	}
}
