package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/internal/command"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/logging"
	"github.com/cronclave/cronclave/internal/safefile"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// The exit codes, beside 0 for done.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitUnavailable = 69 // Redis can't be reached
	exitNotAcquired = 75
	exitLeaseLost   = 76
	exitStale       = 77 // a fencing token
	exitTimeout     = 124
)

// streams are where a command reads and writes.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// exitError ends the program with a code. Without a cause nothing is printed: it was said before.
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

// app is what all commands share: the global flags and the streams.
type app struct {
	streams
	configPath string
	redisURL   string
	trial      trialRedis
	rights     rights // that the user of the Redis in use needs
	namespace  string
	logLevel   string
	logFormat  string
	started    bool                           // the command line was understood
	logWriter  atomic.Pointer[logging.Writer] // nil before something may be logged
	force      func(code int)                 // ends the process, whatever the command waits for
	trust      safefile.Trust                 // whose files are read
}

// execute runs one command line and returns the exit code. A command that is ended by force is left behind: the process is to end.
func execute(ctx context.Context, args []string, s streams) int {
	forced, force := context.WithCancelCause(context.Background())
	defer force(nil)
	a := &app{streams: s, force: func(code int) { force(exitError{code: code}) }}
	ended := make(chan int, 1)
	go func() {
		defer a.closeLog(forced) // also if the command panics: what it logged before may say why
		ended <- a.command(ctx, args)
	}()
	var code int
	select {
	case code = <-ended:
	case <-forced.Done():
		var exit exitError
		errors.As(context.Cause(forced), &exit)
		code = exit.code
	}
	a.closeLog(forced)
	return code
}

// command runs the command and tells what went wrong.
func (a *app) command(ctx context.Context, args []string) (code int) {
	root := newRoot(a) //nolint:contextcheck // the commands get the context from cobra
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	var faults config.Faults
	var exit exitError
	switch {
	case errors.As(err, &faults):
		fmt.Fprintln(a.says(), faults.Error())
		return exitUsage
	case errors.As(err, &exit):
		if exit.cause != nil {
			fmt.Fprintln(a.says(), "cronclave:", exit.cause)
		}
		a.sayRights(cmd.Name(), err)
		return exit.code
	case a.started:
		fmt.Fprintln(a.says(), "cronclave:", err)
		return exitFailed
	default: // cobra's own errors are about usage
		fmt.Fprintf(a.says(), "cronclave: %v\nRun '%s --help' for usage.\n", err, cmd.CommandPath())
		return exitUsage
	}
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "cronclave",
		Short: "Highly available cron: N replicas, one jobs.toml, each tick runs once",
		Long: `cronclave is highly available cron. Run the same binary with the same jobs.toml on N machines: every
replica runs the schedule, and each tick of each job runs on exactly the replica that wins that job's lock in
Redis (or on the K replicas that win its K slots).`,
		Example:       "  cronclave demo\n  cronclave check jobs.toml\n  cronclave run --redis redis://10.0.0.5:6379/0",
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,

		PersistentPreRunE: func(*cobra.Command, []string) error {
			a.started = true
			return a.checkFlags()
		},
	}
	flags := root.PersistentFlags()
	flags.StringVarP(&a.configPath, "config", "c", "", "a file, or a folder of *.toml (default jobs.toml; env CRONCLAVE_CONFIG)")
	flags.StringVar(&a.redisURL, "redis", "", "Redis URL without a password, in the place of the file's url and quorum (env CRONCLAVE_REDIS, which may have one)")
	flags.StringVar(&a.namespace, "namespace", "", "the cluster's name in Redis (default: the configuration's)")
	flags.StringVar(&a.logLevel, "log-level", "info", "trace, debug, info, warn or error")
	flags.StringVar(&a.logFormat, "log-format", "", "text or json (default: text on a terminal)")
	root.SetVersionTemplate("cronclave {{.Version}}\n")
	root.AddCommand(a.runCommand(), a.demoCommand(), a.checkCommand(), a.nextCommand(), a.execCommand(), a.lockCommand(),
		a.statusCommand(), a.historyCommand(), a.cancelCommand(), a.pauseCommand(), a.resumeCommand(), a.logsCommand(), a.triggerCommand(),
		a.fenceCommand(), a.versionCommand(), a.demoWorkCommand())
	root.AddCommand(plannedCommands()...)
	addCompletion(root)
	addExamples(root)
	return root
}

// checkFlags holds the global flags against what they may be, whether the command uses them or not.
func (a *app) checkFlags() error {
	if a.namespace != "" && !config.ValidName(a.namespace) {
		return usageError("--namespace %q: a name is %s", a.namespace, config.NameRule)
	}
	_, err := a.logOptions()
	return err
}

// plannedCommands are in the contract with users, and refused until they work.
func plannedCommands() []*cobra.Command {
	var commands []*cobra.Command
	for _, name := range []string{"import"} {
		commands = append(commands, &cobra.Command{
			Use: name, Hidden: true, DisableFlagParsing: true,
			RunE: func(*cobra.Command, []string) error { return usageError("the command %s is not supported yet", name) },
		})
	}
	return commands
}

// defaultConfig is read if no other is named.
const defaultConfig = "jobs.toml"

// configFile tells where the configuration is, and whether somebody named it.
func (a *app) configFile() (path string, named bool) {
	switch {
	case a.configPath != "":
		return a.configPath, true
	case os.Getenv("CRONCLAVE_CONFIG") != "":
		return os.Getenv("CRONCLAVE_CONFIG"), true
	}
	return defaultConfig, false
}

// load reads the configuration that a command can't do without.
func (a *app) load() (*config.Config, error) {
	if err := a.needConfig(); err != nil {
		return nil, err
	}
	cfg, _, err := a.read()
	return cfg, err
}

// needConfig demands that a configuration is named, or there.
func (a *app) needConfig() error {
	path, named := a.configFile()
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) && !named {
		return usageError("no configuration: there is no %s here; name one with --config or CRONCLAVE_CONFIG", path)
	}
	return nil
}

// read reads the configuration, and tells which files that took, also if it is faulty.
func (a *app) read() (*config.Config, *config.Files, error) {
	path, _ := a.configFile()
	files := &config.Files{}
	cfg, err := config.Load(path, config.Options{Files: files, Trust: a.trust, Rights: command.Rights})
	if err == nil && a.namespace != "" {
		cfg.Namespace = a.namespace
	}
	return cfg, files, err
}

// loadIfNamed reads the configuration if somebody named it; else it is empty, for commands that are run in any folder.
func (a *app) loadIfNamed() (*config.Config, error) {
	if _, named := a.configFile(); named {
		return a.load()
	}
	return a.noConfig(), nil
}

func (a *app) noConfig() *config.Config {
	return &config.Config{Namespace: orDefault(a.namespace, config.DefaultNamespace)}
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

func (a *app) versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version, and that of the zone data", Args: cobra.NoArgs, Example: "  cronclave version",
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version  string `json:"version"`
				ZoneData string `json:"zone_data"`
			}{strings.TrimPrefix(version, "v"), cronspec.ZoneDataVersion()}
			if asJSON {
				return a.printJSON(v)
			}
			fmt.Fprintf(a.out, "cronclave %s\nzone data %s\n", v.Version, v.ZoneData)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
