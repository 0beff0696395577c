package process

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cronclave/cronclave/internal/safefile"
)

// EnvSpec lists the parts of a job's environment. If several parts set the same variable, the part whose field comes last in this struct takes precedence.
type EnvSpec struct {
	// Base is the replica's own environment, as from os.Environ.
	Base []string
	// InheritEnv passes on all of Base except CRONCLAVE_ variables, the service manager's variables, and the trace context. Without it, only PATH, HOME, LANG and TZ are passed
	// on.
	InheritEnv bool
	// EnvTaken is the set of variables of Base that the configuration uses outside the job's own env. They are never passed on, because they may hold
	// secrets, such as the password of Redis.
	EnvTaken map[string]bool
	// KeepTrace passes on the trace context in Base, because the command continues the trace of its caller. A job of a replica must not, because the trace
	// of the replica's own start would then contain all its runs.
	KeepTrace bool
	// User sets HOME, USER, LOGNAME and SHELL; "" leaves them unchanged. A user without an entry in the user database gets / as HOME and /bin/sh as SHELL.
	// EnvFile and EnvFromFile are opened with the rights of User and Group, if this process may assume them, so that a job gets no file that it could not
	// read itself.
	User, Group string
	// Accounts caches the lookups of User and Group. nil looks them up each time.
	Accounts *Accounts
	// EnvFile is a file of NAME=value lines, in the format of [safefile.ParseEnv]; "" means no file. Each call of [Environment] reads the file again.
	EnvFile string
	// Env is the job's env table.
	Env map[string]string
	// EnvFromFile maps variables to files. The value of a variable is the content of its file without one final newline.
	EnvFromFile map[string]string
	// Trust restricts who may own the files. The zero value permits everybody.
	Trust safefile.Trust
	// Extra has the variables that the replica sets, such as CRONCLAVE_JOB.
	Extra map[string]string
}

// Environment returns a job's environment, sorted by name. Its errors contain names of variables, files and line numbers, but no values. It stops reading the
// files when ctx ends.
func Environment(ctx context.Context, s EnvSpec) ([]string, error) {
	env := s.inheritedVars()
	if s.User != "" {
		a := account{by: s.Accounts}
		if _, err := a.setUser(s.User, s.Group); err != nil {
			return nil, err
		}
		maps.Copy(env, map[string]string{"HOME": a.home, "USER": a.name, "LOGNAME": a.name, "SHELL": a.shell})
	}
	files, err := s.newJobFiles(ctx)
	if err != nil {
		return nil, err
	}
	if s.EnvFile != "" {
		vars, err := files.readEnvFile(s.EnvFile)
		if err != nil {
			return nil, err
		}
		maps.Copy(env, vars)
	}
	maps.Copy(env, s.Env)
	for _, name := range slices.Sorted(maps.Keys(s.EnvFromFile)) {
		value, err := files.readValue(s.EnvFromFile[name])
		if err != nil {
			return nil, fmt.Errorf("env_from_file %s: %w", name, err)
		}
		env[name] = value
	}
	maps.Copy(env, s.Extra)
	if err := checkVariables(env); err != nil {
		return nil, err
	}
	return sortedEntries(env), nil
}

// supervision lists the variables that connect a process to its service manager (sd_notify(3), sd_watchdog_enabled(3), sd_listen_fds(3)). A job that
// inherited them could report to the service manager as if it were the replica.
var supervision = []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "LISTEN_PIDFDID"}

// traceContext lists the variables with a trace context (OpenTelemetry, environment variables as context propagation carriers).
var traceContext = []string{"TRACEPARENT", "TRACESTATE", "BAGGAGE"}

func (s *EnvSpec) inheritedVars() map[string]string {
	few := []string{"PATH", "HOME", "LANG", "TZ"}
	env := map[string]string{}
	for _, entry := range s.Base {
		name, value, ok := strings.Cut(entry, "=")
		switch {
		case !ok, name == "": // Windows has variables such as "=C:"
		case s.EnvTaken[name], strings.HasPrefix(name, "CRONCLAVE_"), slices.Contains(supervision, name):
		case slices.Contains(traceContext, name) && !s.KeepTrace:
		case s.InheritEnv, slices.Contains(few, name):
			env[name] = value
		}
	}
	return env
}

// checkVariables refuses variables that the system can't pass to a program.
func checkVariables(env map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return fmt.Errorf("%q can't be a variable's name", name)
		}
		if strings.Contains(env[name], "\x00") {
			return fmt.Errorf("the value of %s has a NUL byte in it", name)
		}
	}
	return nil
}

func sortedEntries(env map[string]string) []string {
	entries := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		entries = append(entries, name+"="+env[name])
	}
	return entries
}

// jobFiles reads the files of a job with the rights of the job's user. It stops when ctx ends.
type jobFiles struct {
	ctx  context.Context //nolint:containedctx // it lives as long as one call
	user string
	as   *safefile.Identity // rights to open the files with; nil means the rights of this process

	trust safefile.Trust
}

func (s *EnvSpec) newJobFiles(ctx context.Context) (*jobFiles, error) {
	f := &jobFiles{ctx: ctx, user: s.User, trust: s.Trust}
	if s.EnvFile == "" && len(s.EnvFromFile) == 0 {
		return f, nil
	}
	var err error
	f.as, err = s.Accounts.Rights(s.User, s.Group)
	return f, err
}

func (f *jobFiles) readFile(path string, limit int64) (string, error) {
	content, err := safefile.Read(f.ctx, path, safefile.Policy{MaxBytes: limit, As: f.as, Trust: f.trust})
	if err != nil && f.as != nil {
		return "", fmt.Errorf("as the user %s: %w", f.user, err)
	}
	return string(content), err
}

func (f *jobFiles) readValue(path string) (string, error) {
	content, err := f.readFile(path, safefile.MaxEnvValue)
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(strings.TrimSuffix(content, "\n"), "\r"), nil
}

func (f *jobFiles) readEnvFile(path string) (map[string]string, error) {
	text, err := f.readFile(path, safefile.MaxEnvFile)
	if err != nil {
		return nil, fmt.Errorf("env_file: %w", err)
	}
	vars, _, err := safefile.ParseEnv(path, text) // `cronclave check` reports the warnings
	return vars, err                              //nolint:wrapcheck // the error names the file
}
