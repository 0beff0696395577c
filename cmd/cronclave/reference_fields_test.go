package main

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// commonFields are the fields that many log lines have. The first four are those of each line, in JSON.
var commonFields = []entry{
	{"time", "When it was logged."},
	{"level", "`trace`, `debug`, `info`, `warn` or `error`."},
	{"msg", "What happened; of a run's output, its line."},
	{"module", "The command, where it is not `run`: `lock` or `exec`."},
	{"replica", "The name of the replica that logs."},
	{"job", "The job."},
	{"tick", "The tick, in RFC 3339."},
	{"run_id", "The run."},
	{"token", "The fencing token of the run, or of the leadership."},
	{"try", "A command that shows more."},
	{"slot", "The slot of the run."},
	{"attempt", "The number of the try."},
	{"outcome", "What a tick or a run ended with: see [outcomes](#outcomes). Of a tick that was not run, also the reason."},
	{"reason", "Why: see [reasons](#reasons); else an error."},
	{"duration", "How long the run took."},
	{"failed_tries", "How many tries failed before the one that ended the run."},
	{"failures", "How many times in a row the job has failed since it was last ok."},
	{"failing_since", "The end of the first of these failures."},
	{"last_ok", "The end of the newest run that was ok."},
	{"stream", "`stdout` or `stderr`. It marks a line that a run has printed."},
	{"error", "What went wrong."},
	{"remedy", "What a person can do about it."},
	{"retry_in", "How long it waits before it tries again."},
	{"code", "The code of the warning in `status --json`."},
}

// everyLine are the fields that no call of ours names.
var everyLine = []string{"time", "level", "msg", "module"}

// otherFields are those of single events.
var otherFields = []entry{
	{"account", "The uid, gid and groups that a run gets, and the source that stated them."},
	{"act", "What a user has the cluster do: `trigger`, `cancel`, `pause` or `resume`."},
	{"added", "Jobs that a reload added."},
	{"address", "Where HTTP requests are answered, or where one came from."},
	{"after", "How long it took, or the tick after which a gap begins."},
	{"at", "`FILE:LINE:COLUMN` of a fault or a warning of the configuration."},
	{"attempts", "How often the warden was started in a row."},
	{"by", "How far the clock of Redis was set back."},
	{"bytes", "Bytes of a run's output that the log does not have."},
	{"changed", "Jobs that a reload changed."},
	{"channel", "The channel of Redis that the user may not use."},
	{"config", "The start of the configuration's digest."},
	{"differ", "On which jobs the configurations of replicas differ."},
	{"drain_timeout", "`[replica].drain_timeout`."},
	{"dropped", "How many records were dropped at once."},
	{"error_ms", "How far the measured offset of the clock may be wrong, in milliseconds."},
	{"files", "The files that were replaced."},
	{"first", "The first of the ticks."},
	{"fits", "How many runs the limits of the process leave room for."},
	{"group", "`group` of the job."},
	{"holder", "The first runs or processes that hold a slot of the pool."},
	{"isolation", "How the processes of runs are kept together: cgroups or process groups."},
	{"jobs", "How many jobs, or which."},
	{"labels", "The labels of the replica."},
	{"last_seen", "When a lost replica was seen last."},
	{"lines", "Lines that the log does not have."},
	{"look_every", "How often the files of the configuration are looked at."},
	{"max_running", "`[replica].max_running`."},
	{"message", "The fault or the warning of the configuration."},
	{"namespace", "The cluster's namespace."},
	{"of_replica", "The replica whose run is recovered."},
	{"of_run", "The run that is recovered."},
	{"offset_ms", "This machine's clock less that of Redis, in milliseconds."},
	{"open_files", "The limit of open files."},
	{"open_files_needed", "How many `max_running` needs."},
	{"other_id", "The id of another replica with the same name."},
	{"other_started", "When that replica was started."},
	{"panic", "What a Go job panicked with."},
	{"phase", "The phase of a run that a fault of cronclave left it in."},
	{"paused", "How many ticks of a gap were skipped, as the job was paused."},
	{"pid", "The process of the warden."},
	{"pool", "The pool."},
	{"process_group", "The process group that outlives SIGKILL."},
	{"processes", "The limit of processes, or how many processes a run left behind."},
	{"processes_needed", "How many `max_running` needs."},
	{"programs", "The programs that a run left behind."},
	{"quorum", "The masters that hold locks and ticks, without passwords."},
	{"recorded", "How many ticks of a gap have a record of their own."},
	{"records", "How many records wait, or were lost."},
	{"redis", "The Redis, without password."},
	{"refused", "The change of phase that was refused."},
	{"removed", "Jobs that a reload removed."},
	{"replica_lost", "A replica that is gone."},
	{"replicas", "Which replicas run which configuration."},
	{"request", "The request of `trigger`."},
	{"requests", "How many HTTP requests were refused, or sign-ins failed, since the last such line."},
	{"role", "The role of a person that has signed in."},
	{"running", "How many runs go on."},
	{"said", "What the warden wrote to stderr before it ended."},
	{"sections", "Tables of the configuration that take effect with a restart."},
	{"seen", "When the replica was seen last."},
	{"signal", "The signal."},
	{"since", "When the standstill began, when the registration was renewed last, or since when the first one waits for the pool."},
	{"stack", "Where a Go job or an HTTP request panicked."},
	{"started", "When the replica was started."},
	{"state", "How the warden ended."},
	{"stood_still", "How long the replica stood still."},
	{"subject", "The identifier of a person's account at the provider."},
	{"through", "The last tick of a gap."},
	{"ticks", "How many ticks."},
	{"together", "How many ticks of a gap one record counts."},
	{"url", "The URL, without the parts that may be secret."},
	{"user", "The user that asked for an act or has signed in, or `user` of the job."},
	{"version", "The version of cronclave."},
	{"waiters", "How many runs and processes wait for a slot of the pool."},
	{"warden", "The process of the warden."},
}

// TestLogFieldsAreThose looks for fields in the log calls of all packages that log.
func TestLogFieldsAreThose(t *testing.T) {
	t.Parallel()
	known, found := slices.Concat(words(commonFields), words(otherFields)), slices.Clone(everyLine)
	for _, dir := range packages(t) {
		files := parsed(t, dir)
		if !slices.ContainsFunc(files, logs) {
			continue
		}
		for _, file := range files {
			found = append(found, fieldsOf(file)...)
		}
	}
	slices.Sort(known)
	slices.Sort(found)
	if found = slices.Compact(found); !slices.Equal(found, known) {
		t.Errorf("in the source only: %q\nin the reference only, or twice: %q", besides(found, known), besides(known, slices.Clone(found)))
	}
}

// besides is what a sorted list has besides, and more often than, another one.
func besides(list, other []string) (rest []string) {
	for _, s := range list {
		if i := slices.Index(other, s); i >= 0 {
			other = slices.Delete(slices.Clone(other), i, i+1)
		} else {
			rest = append(rest, s)
		}
	}
	return rest
}

// logs reports whether a file imports the logger.
func logs(file *ast.File) bool {
	return slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return strings.Contains(i.Path.Value, "hclog") })
}

// fieldName is how a field is told from other strings.
var fieldName = regexp.MustCompile(`^[a-z][a-z_]*$`)

// methods of a logger, with the number of arguments before the first field.
var logMethods = map[string]int{"Trace": 1, "Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "Log": 2, "With": 0}

// fieldsOf are the names of fields in the log calls of a file: constants at every second place of their arguments, and of the lists that are made for them.
func fieldsOf(file *ast.File) (fields []string) {
	pairs := func(args []ast.Expr) {
		for i := 0; i+1 < len(args); i += 2 {
			if name, ok := textOf(args[i]); ok && fieldName.MatchString(name) {
				fields = append(fields, name)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			before, isLog := logCall(n)
			switch {
			case isLog && len(n.Args) > before:
				pairs(n.Args[before:])
			case isAppend(n) && len(n.Args) > 2: // of a field and its value, or more
				pairs(n.Args[1:])
			}
		case *ast.CompositeLit:
			if isAnyList(n.Type) {
				pairs(n.Elts)
			}
		}
		return true
	})
	return fields
}

// logCall returns how many arguments of a logger's call stand before the fields.
func logCall(call *ast.CallExpr) (before int, isLog bool) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return 0, false
	}
	before, isLog = logMethods[method.Sel.Name]
	receiver := ""
	switch on := method.X.(type) {
	case *ast.Ident:
		receiver = on.Name
	case *ast.SelectorExpr:
		receiver = on.Sel.Name
	case *ast.CallExpr:
		if made, ok := on.Fun.(*ast.SelectorExpr); ok {
			receiver = made.Sel.Name
		}
	}
	return before, isLog && strings.HasPrefix(strings.ToLower(receiver), "log")
}

func isAppend(call *ast.CallExpr) bool {
	name, ok := call.Fun.(*ast.Ident)
	return ok && name.Name == "append"
}

// isAnyList reports whether a type is []any.
func isAnyList(of ast.Expr) bool {
	list, ok := of.(*ast.ArrayType)
	if !ok {
		return false
	}
	element, ok := list.Elt.(*ast.Ident)
	return ok && element.Name == "any"
}

// textOf is the value of a string literal.
func textOf(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(lit.Value)
	return s, err == nil
}
