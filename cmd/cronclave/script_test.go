package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/cronclave/cronclave/internal/embedded"
)

// TestMain makes the command cronclave available to the scripts and to tests that run it as a process: the test binary
// is the program, too.
func TestMain(m *testing.M) {
	testscript.Main(leakChecked{m}, map[string]func(){"cronclave": main})
}

// leakChecked demands that no goroutine outlives the tests.
type leakChecked struct{ *testing.M }

func (m leakChecked) Run() int {
	code := m.M.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// TestScripts runs the command lines of testdata/script, each as a user would, in a folder of its own.
// Promise: P4, P8
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			example, err := filepath.Abs("../../jobs.example.toml")
			env.Setenv("EXAMPLE", example)
			env.Setenv("GORACE", "atexit_sleep_ms=0") // else each program that was built with the race detector pauses at its end
			if err != nil {
				return err
			}
			server, err := embedded.Start(embedded.Config{})
			if err != nil {
				return err
			}
			env.Defer(server.Close)
			env.Setenv("EMBEDDED", server.URL())
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// exits runs a program and demands its exit code: exits CODE PROGRAM [ARGS...].
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARGS...]")
	}
	code := "0"
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		code = fmt.Sprint(exitCode(err))
	}
	if code != args[0] {
		ts.Fatalf("exit code %s, want %s", code, args[0])
	}
}

// startRedis starts a server that the end of the test stops.
func startRedis(t *testing.T) *embedded.Server {
	t.Helper()
	server, err := embedded.Start(embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return server
}

// TestEveryCommandHasAnExample looks at all commands that help shows, also those that cobra brings along.
func TestEveryCommandHasAnExample(t *testing.T) {
	t.Parallel()
	seen := 0
	var look func(*cobra.Command)
	look = func(cmd *cobra.Command) {
		seen++
		if cmd.Example == "" || !strings.HasPrefix(cmd.Example, "  ") || !strings.Contains(cmd.Example, cmd.CommandPath()) && cmd.Parent() != nil {
			t.Errorf("%s: example %q", cmd.CommandPath(), cmd.Example)
		}
		if cmd.Short == "" {
			t.Errorf("%s: it does not say what it does", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			if !sub.Hidden {
				look(sub)
			}
		}
	}
	look(newRoot(&app{}))
	if seen < 15 {
		t.Errorf("only %d commands seen", seen)
	}
}
