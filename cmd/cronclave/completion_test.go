package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

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
