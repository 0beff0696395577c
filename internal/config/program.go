package config

import (
	"slices"
	"strings"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
)

// commandKeys returns the keys for the command of a job.
func commandKeys() []schema.Key[draft] {
	return []schema.Key[draft]{
		{
			Name: "command", Kind: "list of strings, or string", Read: readCommand, Value: commandOf,
			Doc: "A list is a program and its arguments, and runs directly; a string runs with `shell`. Required.",
		},
		schema.Field("shell", schema.KindStrings, func(d *draft) *[]string { return &d.shell }, func(r *schema.Reader, v document.Value) ([]string, bool) {
			return readArguments(r, v, `a list of strings such as ["/bin/bash", "-eo", "pipefail", "-c"]`)
		}, "The program and arguments before a `command` that is a string.").DefaultOf(func(d *draft) any { return d.shell }).
			ValueOf(func(d *draft) any { return programOf(d.shell) }),
		pathKey("dir", func(d *draft) *string { return &d.Dir }, "The folder in which the command runs.").By("the replica's"),
		schema.Field("ok_exit_codes", "list of integers", func(d *draft) *[]int { return &d.OKExitCodes }, exitCodes, "Exit codes of a run that ended `ok`.").
			Allow("0 to 255").DefaultOf(func(d *draft) any { return d.OKExitCodes }),
	}
}

// readCommand reads a command: a list of arguments, or a string for the shell. Variables are not replaced in a command.
func readCommand(r *schema.Reader, v document.Value, d *draft) {
	const want = `a list of strings such as ["/usr/bin/backup", "--all"], or a string for the shell`
	if script, isString := v.Raw.(string); isString {
		if validArgument(r, v, script) {
			d.script, d.argv = script, nil
		}
		if strings.TrimSpace(script) == "" {
			r.Fault(v, "%q is empty", v.Name)
		}
		return
	}
	if argv, ok := readArguments(r, v, want); ok {
		d.script, d.argv = "", argv
	}
}

// readArguments reads a list with a program and its arguments. It warns about ${NAME}, because variables are not replaced there.
func readArguments(r *schema.Reader, v document.Value, want string) ([]string, bool) {
	argv, ok := schema.List(r, v, want, func(item document.Value) (string, bool) {
		s, ok := item.Raw.(string)
		if !ok {
			r.Mistyped(item, want)
			return "", false
		}
		for _, m := range schema.Find(s) {
			if r.FullOfWarnings() {
				break
			}
			r.Warn(item.AtByte(m[0]), "%s is not replaced in %s, it is passed on as it is; set env, or write the command as a string for the shell", s[m[0]:m[1]], v.Name)
		}
		return s, validArgument(r, item, s)
	})
	if ok && argv[0] == "" {
		r.Fault(v.Items()[0], "%q names no program", v.Name)
		return nil, false
	}
	return argv, ok
}

// validArgument reports whether Linux can pass a string to a program as an argument. If it can't, validArgument adds a fault.
func validArgument(r *schema.Reader, v document.Value, s string) bool {
	if i := strings.IndexByte(s, 0); i >= 0 {
		r.Fault(v.AtByte(i), "%q must not hold a NUL character", v.Name)
		return false
	}
	if len(s) > longestArgument {
		r.Fault(v, "%q has %d bytes; the kernel takes at most %d: put it into a file, and name that", v.Name, len(s), longestArgument)
		return false
	}
	return true
}

// longestArgument is the maximum number of bytes of an argument, or of NAME=value, in Linux: MAX_ARG_STRLEN without the final NUL.
const longestArgument = 128<<10 - 1

func exitCodes(r *schema.Reader, v document.Value) ([]int, bool) {
	return schema.List(r, v, "a list of whole numbers such as [0, 1]", func(item document.Value) (int, bool) { return r.Integer(item, 0, 255) })
}

// finishCommand sets the command, with the shell before it if the command is a string.
func finishCommand(r *schema.Reader, v document.Value, d *draft) {
	requireKey(r, v, d, "command", "http")
	d.Command = d.argv
	if d.script != "" {
		d.Shell, d.Command = true, append(slices.Clone(d.shell), d.script)
	}
	if shell := d.at["shell"]; d.argv != nil && shell.Path == v.Path+".shell" {
		r.Warn(shell.AtKey(), "shell has no effect here: command is a list, which runs directly")
	}
}
