package main

import (
	"strings"
	"testing"
)

// TestExecAndLockStopWhatIsLeftBehind runs a command that ends and leaves a program in the background. exec without and with a lock, and lock, stop it, name it, and
// have the exit code of the command.
func TestExecAndLockStopWhatIsLeftBehind(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	const script = `sh -c 'touch held.lock; trap "rm held.lock; exit" TERM; while :; do sleep 0.1; done' & until [ -e held.lock ]; do sleep 0.1; done; exit 3`
	for name, line := range map[string]func(dir string) []string{
		"exec": func(dir string) []string {
			return execLine(t, "", "dir = \""+dir+"\"\ncommand = '''"+script+"'''\n")
		},
		"exec under its lock": func(dir string) []string {
			return execLine(t, server.URL(), "dir = \""+dir+"\"\ncommand = '''"+script+"'''\n")
		},
		"lock": func(dir string) []string {
			return []string{"cronclave", "lock", "l", "--redis", server.URL(), "--", "sh", "-c", "cd " + dir + "; " + script}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			p := startProcess(t, nil, line(dir)...)
			p.end(t, 3)
			p.nothingLeft(t)
			if said := p.stderr.String(); strings.Count(said, "run left processes behind; stopping them") != 1 || !strings.Contains(said, "sh") {
				t.Errorf("stderr does not name the program:\n%s", said)
			}
		})
	}
}
