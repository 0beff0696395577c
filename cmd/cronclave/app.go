package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/logging"
	"github.com/cronclave/cronclave/internal/process"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/internal/safefile"
	"github.com/cronclave/cronclave/internal/units"
)

// app is one execution of the program: its streams, and the global flags of all commands.
type app struct {
	streams
	configPath string
	redisURL   string
	trial      redisconn.Embedded
	rights     redisconn.Rights // rights that cronclave needs from Redis, for advice if some are missing
	namespace  string
	logLevel   string
	logFormat  string
	started    bool                           // true once cobra has accepted the command line; an error before that is a usage error
	logWriter  atomic.Pointer[logging.Writer] // nil until a logger exists
	force      func(code int)                 // ends the process with an exit code, even if the command hangs
	trust      safefile.Trust                 // which owners of configuration files are accepted
}

const defaultConfig = "jobs.toml"

// configFile returns the path of the configuration. named reports whether the user gave it.
func (a *app) configFile() (path string, named bool) {
	switch {
	case a.configPath != "":
		return a.configPath, true
	case os.Getenv(envConfig) != "":
		return os.Getenv(envConfig), true
	}
	return defaultConfig, false
}

// takePath uses the argument of a command, if there is one, as the path of the configuration.
func (a *app) takePath(args []string) error {
	switch {
	case len(args) > 0 && a.configPath != "":
		return usageError("a PATH and --config name the same: leave one of them out")
	case len(args) > 0:
		a.configPath = args[0]
	}
	return nil
}

func (a *app) loadConfig() (*config.Config, error) {
	if err := a.needConfig(); err != nil {
		return nil, err
	}
	cfg, _, err := a.readConfig()
	return cfg, err
}

func (a *app) needConfig() error {
	path, named := a.configFile()
	if named {
		return nil
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return usageError("no configuration: there is no %s here; name one with --config or CRONCLAVE_CONFIG", path)
	}
	return nil
}

// readConfig reads the configuration. It returns the list of files that were read even if the configuration is faulty.
func (a *app) readConfig() (*config.Config, *config.Files, error) {
	path, _ := a.configFile()
	files := &config.Files{}
	cfg, err := config.Load(path, config.Options{Files: files, Trust: a.trust, Rights: new(process.Accounts).Rights})
	if err == nil && a.namespace != "" {
		cfg.Namespace = a.namespace
	}
	return cfg, files, err
}

// loadIfNamed reads the configuration if the user gave a path. Otherwise it returns an empty configuration, so that the command does the same in any folder.
func (a *app) loadIfNamed() (*config.Config, error) {
	if _, named := a.configFile(); named {
		return a.loadConfig()
	}
	return a.noConfig(), nil
}

func (a *app) noConfig() *config.Config {
	return &config.Config{Namespace: cmp.Or(a.namespace, config.DefaultNamespace), History: config.WholeHistory()}
}

// loadIfAny reads the configuration if the user gave a path or the default file exists. Otherwise it returns an empty configuration, for commands that need
// only Redis. faults is the number of faults. If there are any, the returned configuration has only the namespace and the access to Redis.
func (a *app) loadIfAny() (cfg *config.Config, faults int, err error) {
	path, named := a.configFile()
	if !named {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return a.noConfig(), 0, nil
		}
	}
	cfg, err = a.loadConfig()
	var found config.Faults
	if !errors.As(err, &found) {
		return cfg, 0, err
	}
	for _, f := range found {
		if !f.Warning {
			faults++
		}
	}
	cfg, err = a.clusterAccess(path, units.Count(faults, "fault"))
	return cfg, faults, err
}

// clusterAccess returns the namespace and the access to Redis from a faulty configuration. Flags and environment variables take precedence. If a fault makes
// one of the values uncertain, its flag or environment variable is required.
func (a *app) clusterAccess(path, faults string) (*config.Config, error) {
	known := config.ReadAccess(path, config.Options{})
	namespace := a.namespace
	if namespace == "" {
		if known.NamespaceErr != nil {
			return nil, usageError("the namespace is not known: %s has %s, and %w; use --namespace, or mend the faults that cronclave check prints", path, faults, known.NamespaceErr)
		}
		namespace = known.Namespace
	}
	if known.RedisErr != nil {
		if a.redisURL == "" && os.Getenv(envRedis) == "" {
			return nil, usageError("no Redis named: %s has %s, and %w; use --redis or CRONCLAVE_REDIS, or mend the faults that cronclave check prints", path, faults, known.RedisErr)
		}
	}
	withheld := ""
	if known.RedisErr != nil && known.Redis.PasswordFile != "" { // a faulty [redis] could send the password to a wrong server, or without TLS
		known.Redis.PasswordFile = ""
		withheld = "; its password_file is not sent, since its [redis] is faulty: use CRONCLAVE_REDIS with the password"
	}
	fmt.Fprintf(a.err, "cronclave: warning: %s has %s; its jobs are ignored (run cronclave check)%s\n", path, faults, withheld)
	return &config.Config{Namespace: namespace, Redis: known.Redis, History: config.WholeHistory()}, nil
}

// The environment variables that cronclave reads. The test of the reference documents them.
const (
	envConfig      = "CRONCLAVE_CONFIG"
	envRedis       = "CRONCLAVE_REDIS"
	envClockOffset = "CRONCLAVE_CLOCK_OFFSET"
	envRunID       = "CRONCLAVE_RUN_ID"
	envNoColor     = "NO_COLOR"
	envTerm        = "TERM"
	envUser        = "USER"
	envGC          = "GOGC"
)

// trustOfRoot returns the trust for files whose content this command executes. A command that runs as root refuses files that other users can change.
func trustOfRoot() safefile.Trust {
	if os.Geteuid() == 0 {
		return safefile.Administrators
	}
	return safefile.Everybody
}

// duration is the value of a flag, in the syntax of the configuration: 90s, 1h30m or 30d.
type duration time.Duration

// durationFlag adds a flag for a duration. The current value of *d is the default.
func durationFlag(flags *pflag.FlagSet, d *time.Duration, name, usage string) {
	flags.Var((*duration)(d), name, usage)
}

func (d *duration) Type() string { return "duration" }

// String returns "" for 0, so that the help shows no default.
func (d *duration) String() string {
	if *d == 0 {
		return ""
	}
	return time.Duration(*d).String()
}

func (d *duration) Set(s string) error {
	v, err := units.ParseDuration(s)
	*d = duration(v)
	return err //nolint:wrapcheck // pflag names the flag and the value
}

type streams struct {
	in       io.Reader
	out, err io.Writer
}

func (s streams) printJSON(v any) error {
	e := json.NewEncoder(s.out)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	return nil
}

const (
	// logPatience bounds the wait for the reader of the log when a command ends. If the process is ended by force, the bound is lastLog.
	logPatience, lastLog = time.Second, 50 * time.Millisecond
)

// newLogger returns a logger that writes to stderr. By default it writes text to a terminal, and JSON otherwise. It never waits for the reader of stderr.
func (a *app) newLogger() (hclog.Logger, error) {
	o, err := a.logOptions()
	if err != nil {
		return nil, err
	}
	out := a.err
	if !console.IsTerminal(out) {
		out = console.Behind(out) // logging.New duplicates an *os.File; a write to stderr itself would end the process by SIGPIPE if the reader of stderr has gone
	}
	log, writer := logging.New(out, o)
	a.logWriter.Store(writer)
	return log, nil
}

func (a *app) logOptions() (logging.Options, error) {
	o := logging.Options{Level: hclog.LevelFromString(a.logLevel)}
	if o.Level == hclog.NoLevel {
		return o, usageError("--log-level %q: it is one of trace, debug, info, warn, error", a.logLevel)
	}
	terminal := console.IsTerminal(a.err)
	switch {
	case a.logFormat == "json", a.logFormat == "" && !terminal:
		o.JSON = true
	case a.logFormat == "text", a.logFormat == "":
		o.Color = terminal && os.Getenv(envNoColor) == ""
	default:
		return o, usageError("--log-format %q: it is text or json", a.logFormat)
	}
	return o, nil
}

// messageWriter returns the writer for messages that are not log lines. If there is a logger, it is the writer of the log. Messages and log lines then stay
// in order, and no message waits for the reader of stderr.
func (a *app) messageWriter() io.Writer {
	if w := a.logWriter.Load(); w != nil {
		return w
	}
	return a.err
}

func (a *app) logDropped() uint64 {
	if w := a.logWriter.Load(); w != nil {
		return w.Dropped()
	}
	return 0
}

// closeLog waits for the reader of the log: up to logPatience, or up to lastLog if forced has ended.
func (a *app) closeLog(forced context.Context) {
	w := a.logWriter.Load()
	if w == nil {
		return
	}
	ctx, cancel := context.WithTimeout(forced, logPatience)
	if forced.Err() != nil {
		ctx, cancel = context.WithTimeout(context.WithoutCancel(forced), lastLog)
	}
	defer cancel()
	w.Close(ctx)
}

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

type exitMeaning struct {
	code    int
	meaning string // in a few words
	detail  string // sentence in Markdown about the commands that return it
}

// exitCodes returns all exit codes in numerical order.
func exitCodes() []exitMeaning {
	return []exitMeaning{
		{0, "done", "`run`: drained, even if jobs had to be stopped."},
		{exitFailed, "failed", "The reason is on stderr. `run`: also after a forced end. `doctor`: a promise does not hold."},
		{exitUsage, "wrong usage or faulty configuration", "Also if the data in Redis has a newer format, or the machine can't do what a job asks for."},
		{exitUnavailable, "Redis can't be reached", "Also if it refuses the credentials or a right; the message says which. `notify test`: the target did not take the event now."},
		{exitNotAcquired, "not acquired in time", "`lock` (`-E` changes it) and `exec`: all slots are held. `trigger --wait`: the run was skipped or missed."},
		{exitLeaseLost, "lease lost", "`lock`: the lease was lost, and the command was killed."},
		{exitStale, "stale token", "`fence`: a greater token was there before; it is printed."},
		{exitTimeout, "timeout", "`trigger --wait`: `--timeout` has passed. A run that was started goes on."},
	}
}

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

// version is set by the linker in releases.
var version string

// programVersion returns the version without a leading v: the version that was linked in, or the version of the module, which `go install MODULE@VERSION` and a
// build in a git checkout record. Without both it returns "dev".
func programVersion() string {
	build, _ := debug.ReadBuildInfo()
	return versionOf(version, build)
}

func versionOf(linked string, build *debug.BuildInfo) string {
	if linked == "" && build != nil && build.Main.Version != "(devel)" {
		linked = build.Main.Version
	}
	return strings.TrimPrefix(cmp.Or(linked, "dev"), "v")
}
