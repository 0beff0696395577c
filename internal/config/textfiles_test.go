package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file that was saved on Windows has the same commands: a shell would take the CR for a part of the last word of each line.
func TestLineEndsOfWindows(t *testing.T) {
	const text = "[jobs.a]\nschedule = '@daily'\ncommand = '''\nprintf list\nexit 0'''\nenv = { A = \"\"\"one\ntwo\"\"\", B = \"kept\\r\\n\" }\n"
	t.Chdir(t.TempDir())
	unix, err := loadConfig(t, text, Options{})
	if err != nil {
		t.Fatal(err)
	}
	windows, err := loadConfig(t, strings.ReplaceAll(text, "\n", "\r\n"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := windows.Jobs[0].Command; got[len(got)-1] != "printf list\nexit 0" {
		t.Errorf("command %q", got)
	}
	if env := windows.Jobs[0].Env; env["A"] != "one\ntwo" || env["B"] != "kept\r\n" {
		t.Errorf("env %q", env)
	}
	if unix.Digest() != windows.Digest() {
		t.Error("the line ends change the digest")
	}
	if _, err := loadConfig(t, "[jobs.a]\r\nschedule = '@daily'\r\ncommand = 7\r\n", Options{}); err == nil || !strings.HasPrefix(err.Error(), "jobs.toml:3:11: ") {
		t.Errorf("place of a fault: %v", err)
	}
}

// Scripts and env files are read by check, and a fault that keeps the job from starting has its file and line.
func TestCheckReadsScriptsAndEnvFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{
		"script":    "#!/bin/sh\r\nexit 0\r\n",
		"env":       "A=1\nB=2 # two\nKEY=\"-----BEGIN\nsecret\"\n",
		"good":      "#!/bin/sh\n",
		"jobs.toml": "[defaults]\nschedule = '@daily'\n[jobs.a]\ncommand = ['" + at("script") + "']\nenv_file = '" + at("env") + "'\n[jobs.b]\ncommand = ['" + at("good") + "']\n",
	} {
		if err := os.WriteFile(at(name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := Load(at("jobs.toml"), Options{Machine: true})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"script: the job cannot start here: its #! line ends in a carriage return",
		"env:2: the # and what follows are a part of the value of B here",
		`env:3: KEY: the closing " is missing in this line`,
		"env:4: no = in this line",
	}
	for _, w := range cfg.Warnings {
		if len(want) == 0 || !strings.HasPrefix(w.Message, dir+"/"+want[0]) || strings.Contains(w.Message, "secret") {
			t.Errorf("%d: %s", w.Line, w.Message)
			continue
		}
		want = want[1:]
	}
	if len(want) > 0 {
		t.Errorf("missing: %q", want)
	}
}
