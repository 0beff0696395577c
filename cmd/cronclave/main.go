// Command cronclave is highly available cron. N machines run it with the same jobs.toml, and each tick of each job runs on exactly one of them.
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	_ "time/tzdata" // zones for times on a terminal, in case the machine has no zone files

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/replica"
	"github.com/cronclave/cronclave/internal/warden"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == warden.Subcommand { // the warden needs no other part of this program
		os.Exit(beWarden())
	}
	keepSignals()
	protectMemory()
	redis.SetLogger(silence{}) // every error is also returned to the caller, which prints it once
	os.Exit(runCommandLine(context.Background(), os.Args[1:], streams{os.Stdin, console.NewOutput(os.Stdout), console.NewOutput(os.Stderr)}))
}

// silence drops the log of the Redis client.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

func beWarden() int {
	if err := warden.Main(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cronclave:", err)
		return exitFailed
	}
	return 0
}

// runCommandLine runs a command line and returns its exit code. If the process is to end by force, it returns at once, even if the command hangs.
func runCommandLine(ctx context.Context, args []string, s streams) int {
	forced, force := context.WithCancelCause(context.Background())
	defer force(nil)
	a := &app{streams: s, force: func(code int) { force(exitError{code: code}) }}
	ended := make(chan int, 1)
	go func() {
		defer a.closeLog(forced) // deferred, so that a panic does not lose earlier log lines, which may explain it
		ended <- a.runCommand(ctx, args)
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

// runCommand runs the command, prints its error, and returns the exit code. If output was lost, the command fails, except for a stale fence: its exit code
// alone reports the result.
func (a *app) runCommand(ctx context.Context, args []string) (code int) {
	root := newRoot(a) //nolint:contextcheck // the commands get the context from cobra
	root.SetArgs(protectTimes(root, args))
	cmd, err := root.ExecuteContextC(ctx)
	_ = console.Finish(a.err) // before the messages about the end
	code = a.exitCode(cmd, err)
	lost := console.Finish(a.out)
	switch {
	case lost == nil, code == exitStale:
	case !errors.Is(lost, syscall.EPIPE):
		fmt.Fprintln(a.messageWriter(), "cronclave:", lost)
		return exitFailed
	case code == 0: // no message: the reader, such as head, has read enough
		return exitFailed
	}
	return code
}

// exitCode prints the error of a command and returns the exit code for it.
func (a *app) exitCode(cmd *cobra.Command, err error) int {
	lost := console.Finish(a.out)
	if err == nil || errors.Is(err, lost) || lost != nil && errors.Is(err, context.Canceled) { // runCommand handles lost output
		return 0
	}
	var faults config.Faults
	var usage replica.UsageError
	var exit exitError
	switch {
	case errors.As(err, &faults):
		fmt.Fprintln(a.messageWriter(), faults.Error())
		return exitUsage
	case errors.As(err, &usage):
		fmt.Fprintln(a.messageWriter(), "cronclave:", err)
		return exitUsage
	case errors.As(err, &exit):
		if exit.cause != nil {
			fmt.Fprintln(a.messageWriter(), "cronclave:", exit.cause)
		}
		a.sayRights(cmd.Name(), err)
		return exit.code
	case a.started:
		fmt.Fprintln(a.messageWriter(), "cronclave:", err)
		return exitFailed
	default: // errors of cobra are about usage
		fmt.Fprintf(a.messageWriter(), "cronclave: %v\nRun '%s --help' for usage.\n", err, cmd.CommandPath())
		return exitUsage
	}
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "cronclave",
		Short: "Highly available cron: N replicas, one jobs.toml, each tick runs once",
		Long: `cronclave is highly available cron. Run the same binary with the same jobs.toml on N machines: every
replica runs the schedule, and each tick of each job runs on exactly one of them: the replica that wins it in
Redis. A job with per_tick = K has K runs of each tick.

` + exitCodeHelp(),
		Example:       "  cronclave demo\n  cronclave check jobs.toml\n  cronclave run --redis redis://10.0.0.5:6379/0",
		Version:       programVersion(),
		SilenceErrors: true,
		SilenceUsage:  true,

		PersistentPreRunE: func(*cobra.Command, []string) error {
			a.started = true
			return a.checkFlags()
		},
	}
	root.SetIn(a.in)
	root.SetOut(a.out) // set before cobra creates its completion command, which keeps the writer
	root.SetErr(a.err)
	flags := root.PersistentFlags()
	flags.StringVarP(&a.configPath, "config", "c", "", "a file, or a folder of *.toml (default jobs.toml; env CRONCLAVE_CONFIG)")
	flags.StringVar(&a.redisURL, "redis", "", "Redis URL without a password, in the place of the file's url and quorum (env CRONCLAVE_REDIS, which may have one)")
	flags.StringVar(&a.namespace, "namespace", "", "the cluster's name in Redis (default: the configuration's)")
	flags.StringVar(&a.logLevel, "log-level", "info", "trace, debug, info, warn or error")
	flags.StringVar(&a.logFormat, "log-format", "", "text or json (default: text on a terminal)")
	root.SetVersionTemplate("cronclave {{.Version}}\n")
	root.AddCommand(newRunCommand(a), newDemoCommand(a), newInitCommand(a), newCheckCommand(a), newNextCommand(a), newExecCommand(a), newLockCommand(a), newImportCommand(a),
		newStatusCommand(a), newWhyCommand(a), newHistoryCommand(a), newAuditCommand(a), newCancelCommand(a), newPauseCommand(a), newResumeCommand(a), newForgetCommand(a), newLogsCommand(a), newTriggerCommand(a),
		newFenceCommand(a), newDoctorCommand(a), newNotifyCommand(a), newVersionCommand(a), newDemoWorkCommand(a))
	addCompletion(root)
	addExamples(root)
	return root
}

// checkFlags checks the global flags, even if the command does not use them.
func (a *app) checkFlags() error {
	if a.namespace != "" && !config.ValidName(a.namespace) {
		return usageError("--namespace %q: a name is %s", a.namespace, config.NameRule)
	}
	_, err := a.logOptions()
	return err
}

// licenses has the licences of everything that is linked into the program. `go test ./cmd/cronclave -run TestLicenses -update` writes it.
//
//go:embed licenses.txt
var licenses string

func newVersionCommand(a *app) *cobra.Command {
	var asJSON, asked bool
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version, and that of the zone data", Args: cobra.NoArgs, Example: "  cronclave version",
		RunE: func(*cobra.Command, []string) error {
			if asked {
				_, err := io.WriteString(a.out, licenses)
				return err //nolint:wrapcheck // the error names the writer
			}
			v := struct {
				Version  string `json:"version"`
				ZoneData string `json:"zone_data"`
			}{programVersion(), cronspec.BuiltIn().Version()}
			if asJSON {
				return a.printJSON(v)
			}
			fmt.Fprintf(a.out, "cronclave %s\nzone data %s\n", v.Version, v.ZoneData)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&asked, "licenses", false, "print the licences of all that is linked into the program")
	return cmd
}
