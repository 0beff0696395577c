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
	{"time", "Time of the line."},
	{"level", "`trace`, `debug`, `info`, `warn` or `error`."},
	{"msg", "What happened, or a line of output."},
	{"module", "`lock` or `exec`; none for `run`."},
	{"replica", "Replica that logs."},
	{"job tick run_id slot", "Job, tick (RFC 3339), run and slot."},
	{"token", "Fencing token of the run or leadership."},
	{"try", "Command that shows more."},
	{"attempt", "Number of the try."},
	{"outcome", "[Outcome](#outcomes); without a run, with the reason."},
	{"reason", "[Reason](#reasons), or an error."},
	{"duration", "Duration of the run."},
	{"failed_tries", "Failed tries before the last one."},
	{"failures failing_since", "Failures in a row since the last ok, and the end of the first."},
	{"last_ok", "End of the last run that was ok."},
	{"stream", "`stdout` or `stderr`."},
	{"error", "What went wrong."},
	{"remedy", "What a person can do."},
	{"retry_in", "Pause before the next attempt."},
	{"code", "Code of the warning in `status --json`."},
}

// everyLine are the fields that no call of ours names.
var everyLine = []string{"time", "level", "msg", "module"}

// otherFields are those of single events.
var otherFields = []entry{
	{"account", "Uid, gid and groups of a run, and their source."},
	{"act", "`trigger`, `cancel`, `pause` or `resume`."},
	{"added changed removed", "Jobs, by a reload."},
	{"address", "Address of the HTTP server, or of a client."},
	{"after", "Elapsed time, or the tick before a gap."},
	{"at", "`FILE:LINE:COLUMN` of a fault or warning."},
	{"by", "Step of the clock of Redis, backwards."},
	{"bytes lines", "Bytes or lines missing in the log."},
	{"channel", "Redis channel forbidden to the user."},
	{"config", "Start of the configuration's digest."},
	{"count events", "Number of events of a notification, and the first."},
	{"differ", "Jobs with different configurations."},
	{"drain_timeout labels max_running namespace", "Settings of these names."},
	{"dropped", "Records dropped at once."},
	{"files look_every", "Replaced files, and the interval of checks for them."},
	{"first through ticks", "First tick, last tick of a gap, number of ticks."},
	{"fits", "Runs within the process limits."},
	{"group", "`group` of the job."},
	{"isolation", "Cgroups or process groups."},
	{"jobs", "Jobs, or their number."},
	{"last_seen seen", "Last sign of the replica."},
	{"message", "Fault or warning of the configuration."},
	{"of_run of_replica", "Recovered run, and its replica."},
	{"offset_ms error_ms", "This machine's clock minus Redis's in milliseconds, and its maximum error."},
	{"open_files open_files_needed processes_needed", "Limit of open files, and the numbers that `max_running` needs."},
	{"other_id other_started", "Another replica with this name: id and start."},
	{"panic stack", "Panic of a Go job, and its stack."},
	{"pid warden attempts", "Process id of the warden, and its starts in a row."},
	{"pool holder waiters", "Pool, first holders of its slots, and runs and processes that wait for it."},
	{"process_group", "Process group that outlives SIGKILL."},
	{"processes programs", "Limit of processes, or number and programs of those left behind by a run."},
	{"recorded paused together", "Ticks of a gap with a record, skipped by a pause, or counted by one record."},
	{"records", "Records that wait or were lost."},
	{"redis quorum url", "URLs without secrets."},
	{"replica_lost", "Lost replica."},
	{"replicas", "Replicas of each configuration."},
	{"request requests", "Request of `trigger`; HTTP requests refused or sign-ins failed since the last such line."},
	{"retry_at", "Earliest time of the next attempt."},
	{"role subject", "Role of a signed-in user, and id at the provider."},
	{"running", "Number of runs in progress."},
	{"sections", "Tables that take effect after a restart."},
	{"signal", "The signal."},
	{"since", "Start of a standstill or wait for the pool, or last registration."},
	{"state said", "End of the warden, and its last stderr output."},
	{"stood_still", "Duration of the standstill."},
	{"target answer waiting", "Target of notifications, its answer, and notifications that wait for it."},
	{"user", "User of an act or a sign-in, or `user` of the job."},
	{"version started", "Version of cronclave, and start of the replica."},
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
