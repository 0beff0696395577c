package config

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
	"github.com/cronclave/cronclave/internal/units"
)

func commandKeys() []schema.Key[draft] {
	return []schema.Key[draft]{
		{
			Name: "command", Kind: "list of strings, or string", Read: readCommand, Value: commandOf,
			Doc: "A list runs directly, as program and arguments; a string runs with `shell`. This or `http` is required.",
		},
		{
			Name: "http", Kind: schema.KindTable, Read: readHTTP, Value: httpOf,
			Doc: "A [request](#http) instead of a command.",
		},
		schema.Field("shell", schema.KindStrings, func(d *draft) *[]string { return &d.shell }, func(r *schema.Reader, v document.Value) ([]string, bool) {
			return readArguments(r, v, `a list of strings such as ["/bin/bash", "-eo", "pipefail", "-c"]`)
		}, "Program and arguments before a `command` that is a string.").DefaultOf(func(d *draft) any { return d.shell }).
			ValueOf(func(d *draft) any { return programOf(d.shell) }),
		pathKey("dir", func(d *draft) *string { return &d.Dir }, "Working directory.").By("the replica's"),
		schema.Field("ok_exit_codes", "list of integers", func(d *draft) *[]int { return &d.OKExitCodes }, exitCodes, "Exit codes of an `ok` run.").
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

// fromFile is the prefix of the keys in hidden.files that belong to env_from_file.
const fromFile = "env_from_file."

// ownVariables returns the variables that cronclave itself sets in a job's environment.
func ownVariables() []string {
	return []string{
		"CRONCLAVE_JOB", "CRONCLAVE_NAMESPACE", "CRONCLAVE_REPLICA", "CRONCLAVE_RUN_ID", "CRONCLAVE_TICK",
		"CRONCLAVE_TICK_UNIX", "CRONCLAVE_ATTEMPT", "CRONCLAVE_FENCING_TOKEN", "CRONCLAVE_SLOT", "CRONCLAVE_SLOTS",
		"CRONCLAVE_TRIGGER", "TRACEPARENT",
	}
}

func environmentKeys() []schema.Key[draft] {
	return []schema.Key[draft]{
		{Name: "env", Kind: "table of strings", Read: readEnv, Value: variablesOf, Doc: "Variables of the command. `[defaults]` may have more of them."},
		pathKey("env_file", func(d *draft) *string { return &d.EnvFile },
			"File of `NAME=VALUE` lines."),
		{Name: "env_from_file", Kind: "table of paths", Read: readEnvFromFile, Value: filedOf,
			Doc: "Variables with values in files."},
		schema.Bool("inherit_env", func(d *draft) *bool { return &d.InheritEnv },
			"Passes on the replica's environment."),
	}
}

// readEnv reads the variables of `env`. A job's own variables are added to the variables of [defaults]. A variable of the job replaces the variable of the same
// name in the `env` or `env_from_file` of [defaults].
func readEnv(r *schema.Reader, v document.Value, d *draft) {
	if d.EnvTaken != nil {
		r = r.Noting(d.EnvTaken)
	}
	eachVariable(r, v, `{ LANG = "C" }`, func(item document.Value) {
		e, ok := r.Text(item, "a string")
		if !ok || !validArgument(r, item, e.Text) {
			return
		}
		if n := len(item.Name) + len("=") + len(e.Text); n > longestArgument {
			r.Fault(item, "%q has %d bytes with its name; the kernel takes at most %d: put it into a file, and name that", item.Name, n, longestArgument)
			return
		}
		d.named[item.Name] = true
		delete(d.EnvFromFile, item.Name)
		delete(d.hidden.files, fromFile+item.Name)
		d.Env[item.Name] = e.Text
		d.hidden.env[item.Name] = item.Raw.(string)
	})
}

// readEnvFromFile reads the files of `env_from_file`. A variable that is also in the `env` of the same table is a fault. That `env` has already been read,
// because keys are read in alphabetical order.
func readEnvFromFile(r *schema.Reader, v document.Value, d *draft) {
	eachVariable(r, v, `{ PGPASSWORD = "/run/secrets/pg" }`, func(item document.Value) {
		if d.named[item.Name] {
			r.Fault(item.AtKey(), "%q is in env as well; remove one of them", item.Name)
			return
		}
		if path, ok := r.Path(item); ok && validArgument(r, item, path) {
			delete(d.Env, item.Name)
			delete(d.hidden.env, item.Name)
			d.EnvFromFile[item.Name], d.filed[item.Name] = path, item
			d.hidden.files[fromFile+item.Name] = item.Raw.(string)
		}
	})
}

func eachVariable(r *schema.Reader, v document.Value, example string, each func(document.Value)) {
	table, ok := v.Raw.(map[string]any)
	if !ok {
		r.Mistyped(v, "a table of strings such as "+example)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		item, _ := v.Get(name)
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			r.Fault(item.AtKey(), "%q can't be the name of a variable", name)
		case slices.Contains(ownVariables(), name):
			r.Fault(item.AtKey(), "%s is set by cronclave itself; remove it", name)
		default:
			each(item)
		}
	}
}

// readLabels reads the labels of a replica or the `where` of a job. The table of a job replaces the whole table of [defaults], so a job with an empty table
// runs on any replica.
func readLabels(r *schema.Reader, v document.Value) (all map[string]string, ok bool) {
	table, ok := v.Raw.(map[string]any)
	if !ok {
		r.Mistyped(v, `a table of strings such as { zone = "a" }`)
		return nil, false
	}
	all = make(map[string]string, len(table))
	for _, name := range slices.Sorted(maps.Keys(table)) {
		item, _ := v.Get(name)
		if _, err := validName(name); err != nil {
			r.Fault(item.AtKey(), "label %q %v", name, err)
			ok = false
		}
		text, fine := r.Word(item, "a string")
		all[name], ok = text, ok && fine
	}
	return all, ok
}

// finishUser warns about a job that, by default, passes the environment of the replica to another user. An explicit inherit_env silences the warning.
func finishUser(r *schema.Reader, d *draft) {
	user, set := d.at["user"]
	if _, said := d.at["inherit_env"]; set && d.User != "" && !said && len(d.Command) > 0 {
		r.Warn(user.AtKey(), "user is set and inherit_env is not: the job inherits the replica's environment, with its secrets; "+
			"write inherit_env = false, or inherit_env = true to keep it")
	}
}

func machineKeys() []schema.Key[draft] {
	return []schema.Key[draft]{
		schema.Field("where", "table of strings", func(d *draft) *map[string]string { return &d.Where }, readLabels,
			"Labels that a replica needs to run the job. `{}` overrides `[defaults]`."),
		schema.String("user", func(d *draft) *string { return &d.User }, "User of the command; cronclave must be root. Sets `HOME`, `USER`, `LOGNAME` and `SHELL`."),
		schema.String("group", func(d *draft) *string { return &d.Group }, "Group of the command; cronclave must be root.").By("the user's"),
		schema.Field("no_new_privs", schema.KindBool, func(d *draft) **bool { return &d.NoNewPrivs }, optionalField((*schema.Reader).Boolean),
			"Denies more rights to programs, such as sudo (set-user-ID).").By("true with `user`, otherwise false").
			ValueOf(func(d *draft) any { return d.KeepsPrivileges() }),
		schema.Field("umask", schema.KindString, func(d *draft) **uint32 { return &d.Umask }, optionalField(readUmask), "Umask of the command.").
			Allow("three octal digits, such as `\"027\"`").By("the replica's").ValueOf(umaskOf),
		schema.Field("nice", schema.KindInteger, func(d *draft) **int { return &d.Nice }, optionalField(readNice), "Scheduling priority; 19 is the lowest.").
			Allow("-20 to 19").By("the replica's"),
		schema.Table("limits", func(d *draft) *Limits { return &d.Limits }, limitsKeys(),
			"[Limits](jobs.md#machines-and-limits) of a run. Needs a writable cgroup (v2)."),
	}
}

// optionalField adapts a reader to a field that is a pointer, which stays nil if the key is not set.
func optionalField[T any](read func(*schema.Reader, document.Value) (T, bool)) func(*schema.Reader, document.Value) (*T, bool) {
	return func(r *schema.Reader, v document.Value) (*T, bool) {
		value, ok := read(r, v)
		return &value, ok
	}
}

func readNice(r *schema.Reader, v document.Value) (int, bool) { return r.Integer(v, -20, 19) }

var umaskPattern = regexp.MustCompile(`^0?[0-7]{1,3}$`)

func readUmask(r *schema.Reader, v document.Value) (uint32, bool) {
	return schema.Parsed(r, v, `a string such as "027"`, func(s string) (uint32, error) {
		if !umaskPattern.MatchString(s) {
			return 0, errors.New(`is not a umask; write three octal digits such as "027"`)
		}
		mask, err := strconv.ParseUint(s, 8, 32)
		return uint32(mask), err
	})
}

func umaskOf(d *draft) any {
	if d.Umask == nil {
		return nil
	}
	return fmt.Sprintf("%03o", *d.Umask)
}

// mostPids is the largest pid_max of Linux.
const mostPids = 4 << 20

// leastMemory is the smallest permitted memory limit. A program can hardly start with less.
const leastMemory = 1 << 20

func limitsKeys() schema.Section[Limits] {
	return schema.Section[Limits]{Keys: []schema.Key[Limits]{
		schema.Field("memory", schema.KindSize, func(l *Limits) *int64 { return &l.Memory }, readMemory,
			"Memory of all processes of a run.").Allow("1MiB or more").
			DefaultOf(func(l *Limits) any { return schema.Bytes(l.Memory) }).Optional(),
		schema.Integer("pids", 1, mostPids, func(l *Limits) *int { return &l.Pids }, "Processes and threads of a run.").Optional(),
	}}
}

func readMemory(r *schema.Reader, v document.Value) (int64, bool) {
	return schema.Parsed(r, v, `a size in a string, such as "512MiB" or "1GiB"`, func(s string) (int64, error) {
		n, err := units.ParseSize(s)
		if err == nil && n < leastMemory {
			err = errors.New("is too small; 1MiB is the least")
		}
		return n, err
	})
}
