#!/bin/sh
# spf13/cobra v1.10.2: a command's flag in front of the command's name makes the
# next word the command.
#
# One would guess: "app --force remove list" removes the thing called list, or
# fails because the root has no flag --force.
# Guess before the run: one of these two, with a suspicion that the flag takes
# "remove" as its value. The guess missed, the suspicion held.
#
# What happens: the search for the command reads the line with the flags of the
# root, which has no --force. A flag that it does not know is taken to have a
# value, even though all commands declare --force as a bool. "remove" is skipped as
# the value, "list" is the command. Then list reads the same line with its own
# flags: --force is true, and "remove" is its argument.
#
# Why it matters: another command runs than the line says, with --force, and
# exits with 0. With TraverseChildren on the root the line is refused; with --force
# as a persistent flag of the root it removes list.
#
# Output seen:
#   app remove --force list       -> remove [list] force=true
#   app --force=true remove list  -> remove [list] force=true
#   app --force remove list       -> list [remove] force=true
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'GO'
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

func run(args []string) string {
	var ran string
	root := &cobra.Command{Use: "app"}
	for _, name := range []string{"remove", "list"} {
		command := &cobra.Command{Use: name}
		force := command.Flags().Bool("force", false, "")
		command.Run = func(_ *cobra.Command, args []string) {
			ran = fmt.Sprintf("%s %v force=%v", name, args, *force)
		}
		root.AddCommand(command)
	}
	root.SetArgs(args)
	if err := root.Execute(); err != nil {
		return err.Error()
	}
	return ran
}

func main() {
	for _, example := range []struct{ line, want string }{
		{"remove --force list", "remove [list] force=true"},
		{"--force=true remove list", "remove [list] force=true"},
		{"--force remove list", "list [remove] force=true"},
	} {
		got := run(strings.Fields(example.line))
		fmt.Printf("app %-25s -> %s\n", example.line, got)
		if got != example.want {
			fmt.Println("changed: this was", example.want)
			os.Exit(1)
		}
	}
}
GO
go mod init finding
go get github.com/spf13/cobra@v1.10.2
go run .
