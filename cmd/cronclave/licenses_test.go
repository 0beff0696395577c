package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// linkedModules returns the folders of the modules that are linked into the program on any platform that is released, by "path version".
func linkedModules(t *testing.T) map[string]string {
	t.Helper()
	modules := map[string]string{}
	for _, platform := range []string{"linux", "darwin"} {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}\t{{.Dir}}{{end}}{{end}}", ".")
		cmd.Env = append(os.Environ(), "GOOS="+platform, "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("list the modules: %v\n%s", err, &said)
		}
		for line := range strings.Lines(string(out)) {
			if name, dir, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
				modules[name] = dir
			}
		}
	}
	if len(modules) < 15 {
		t.Fatalf("only %d modules are linked", len(modules))
	}
	return modules
}

// licensesOf returns the texts of the files of a folder by which its authors grant rights, and those that they demand to be passed on.
func licensesOf(t *testing.T, dir string) (text string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		if e.IsDir() || !slices.ContainsFunc([]string{"LICEN", "COPYING", "NOTICE", "PATENTS"}, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		text += strings.TrimSpace(strings.ReplaceAll(string(content), "\r\n", "\n")) + "\n\n"
	}
	return text
}

// TestLicenses demands that the program has the text of the licence of each module that is linked into it, and of the Go library. With -update it writes them.
func TestLicenses(t *testing.T) {
	modules := linkedModules(t)
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	modules["the Go standard library"] = strings.TrimSpace(string(root))
	var want strings.Builder
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		text := licensesOf(t, modules[name])
		if len(text) < 200 {
			t.Errorf("%s has no licence in %s", name, modules[name])
		}
		fmt.Fprintf(&want, "==== %s ====\n\n%s", name, text)
	}
	if *update {
		if err := os.WriteFile("licenses.txt", []byte(want.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if licenses != want.String() {
		for name := range modules {
			if !strings.Contains(licenses, "==== "+name+" ====\n") {
				t.Errorf("licenses.txt has no %s", name)
			}
		}
		t.Error("licenses.txt is out of date; run: go test ./cmd/cronclave -run TestLicenses -update")
	}
}

// A program that was installed with `go install` has no version from the linker.
func TestVersionOf(t *testing.T) {
	of := func(module string) *debug.BuildInfo { return &debug.BuildInfo{Main: debug.Module{Version: module}} }
	for _, tc := range []struct {
		linked string
		build  *debug.BuildInfo
		want   string
	}{
		{"v0.1.0", of("v0.0.1"), "0.1.0"}, {"", of("v0.2.0"), "0.2.0"}, {"", of("(devel)"), "dev"}, {"", of(""), "dev"}, {"", nil, "dev"},
	} {
		if got := versionOf(tc.linked, tc.build); got != tc.want {
			t.Errorf("%q, %v: %q, want %q", tc.linked, tc.build, got, tc.want)
		}
	}
}
