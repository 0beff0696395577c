package main

import (
	"fmt"
	"strings"
)

// The exit codes of cronclave, besides 0. exitCodes documents them.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitUnavailable = 69
	exitNotAcquired = 75
	exitLeaseLost   = 76
	exitStale       = 77
	exitTimeout     = 124
)

// exitMeaning is the meaning of an exit code.
type exitMeaning struct {
	code    int
	meaning string // in a few words
	detail  string // sentence in Markdown about the commands that return it
}

// exitCodes returns all exit codes in numerical order.
func exitCodes() []exitMeaning {
	return []exitMeaning{
		{0, "done", "`run`: drained, also when jobs had to be stopped at the end of the drain."},
		{exitFailed, "failed", "What was asked for did not work; the reason is on stderr. `run`: also when it had to end by force after a second signal."},
		{exitUsage, "wrong usage or faulty configuration", "`check`: there are faults. All others: also where the data in Redis is of a newer version, or the machine can't do what a job asks for."},
		{exitUnavailable, "Redis can't be reached", "Also where it refuses the credentials or a right; the message says which."},
		{exitNotAcquired, "not acquired in time", "`lock` (`-E` changes it) and `exec`: all slots are held. `trigger --wait`: the run was skipped or missed."},
		{exitLeaseLost, "lease lost", "`lock`: the lease was lost, and the command was killed."},
		{exitStale, "stale token", "`fence`: a greater token was there before; it is printed."},
		{exitTimeout, "timeout", "`trigger --wait`: `--timeout` has passed. A run that was started goes on."},
	}
}

// exitCodeHelp returns the section about exit codes for the help.
func exitCodeHelp() string {
	var b strings.Builder
	b.WriteString("Exit codes:\n")
	for _, c := range exitCodes() {
		fmt.Fprintf(&b, "  %-4d %s\n", c.code, c.meaning)
	}
	b.WriteString("lock, exec and trigger --wait end with the code of the command: its own, or 128+N where signal N ended it.")
	return b.String()
}

// exitError is an error with the exit code of the program. If cause is nil, no message is printed, because the command has printed one before.
type exitError struct {
	code  int
	cause error
}

func (e exitError) Error() string {
	if e.cause == nil {
		return ""
	}
	return e.cause.Error()
}

func (e exitError) Unwrap() error { return e.cause }

func usageError(format string, args ...any) error {
	return exitError{exitUsage, fmt.Errorf(format, args...)}
}
