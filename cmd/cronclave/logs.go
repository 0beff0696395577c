package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

type logsOptions struct {
	run            string
	n              int
	follow, asJSON bool
	plain          bool
}

func newLogsCommand(a *app) *cobra.Command {
	var o logsOptions
	cmd := &cobra.Command{
		Use:   "logs JOB...",
		Short: "Print what a job's runs have printed, or follow them",
		Long: `Print what the newest run of a job has printed, as far as the history keeps it (output.keep), or what it has printed so far.
With -f: the output of current and later runs of one or more jobs, until Ctrl-C, each line behind its time, its replica and, of several jobs, its job;
with --plain the lines alone; with --run that of one run until it ends. It begins with the newest 64 KiB from before. Output that is followed goes through
Redis in pieces, a few times a second. Of a run that prints faster than that, bytes are left out; stderr says how many.`,
		Example: "  cronclave logs -f nightly-backup\n  cronclave logs -f --plain nightly-backup | grep -i error",
		Args:    cobra.MinimumNArgs(1),

		ValidArgsFunction: a.completeJobs(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.n < 1:
				return usageError("-n %d: it must be at least 1", o.n)
			case o.run != "" && cmd.Flags().Changed("number"):
				return usageError("-n and --run are mutually exclusive")
			case len(args) > 1 && (!o.follow || o.run != ""):
				return usageError("several jobs can only be followed: logs -f %s", strings.Join(args, " "))
			}
			return a.printLogs(cmd.Context(), args, o)
		},
	}
	cmd.Flags().StringVar(&o.run, "run", "", "of this run, by its id")
	cmd.Flags().IntVarP(&o.n, "number", "n", 1, "how many runs, the newest")
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "show what current runs have printed, and what is printed from now on")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON: the runs, or with -f a line for each line")
	cmd.Flags().BoolVar(&o.plain, "plain", false, "with -f, print the lines alone, without time and replica")
	_ = cmd.RegisterFlagCompletionFunc("run", cobra.NoFileCompletions) // no error, because the flag exists
	return cmd
}

func (a *app) printLogs(ctx context.Context, jobs []string, opt logsOptions) error {
	o, err := a.openOperator(ctx)
	if err != nil {
		return err
	}
	defer o.close()
	ctx, done := console.WhileWritable(ctx, a.out)
	defer done()
	switch {
	case opt.run != "" && opt.follow:
		return o.withExitCode(o.Follow(ctx, cluster.FollowRequest{Job: jobs[0], Run: opt.run}, a.logViewer(o.Zones(), jobs, opt)))
	case opt.follow:
		return o.withExitCode(o.FollowJobs(ctx, jobs, a.logViewer(o.Zones(), jobs, opt)))
	}
	records, err := o.Logs(ctx, cluster.LogsRequest{Job: jobs[0], Run: opt.run, Limit: opt.n})
	if err != nil {
		return o.withExitCode(err)
	}
	a.addPrinted(ctx, o, records)
	if opt.asJSON {
		return a.printJSON(records)
	}
	for _, r := range slices.Backward(records) { // print the oldest run first and the latest last, like a log
		fmt.Fprintf(a.err, "==> %s\n", runHeadline(r))
		if r.OutputCut > 0 {
			fmt.Fprintln(a.err, cluster.LeftOut(r.OutputCut))
		}
		if r.Output != nil {
			for line := range strings.Lines(*r.Output) {
				fmt.Fprintln(a.out, strings.TrimSuffix(line, "\n"))
			}
		}
	}
	return nil
}

// addPrinted adds to the records the output of runs in progress so far, and prints how to follow these runs. If Redis fails, it prints a warning and the
// records stay valid.
func (s streams) addPrinted(ctx context.Context, o *operating, records []journal.Record) {
	if err := o.AddPrinted(ctx, records); err != nil {
		fmt.Fprintln(s.err, "cronclave: warning: the output of runs under way is missing:", err)
	}
	for _, r := range records {
		if r.Outcome != journal.OutcomeRunning {
			continue
		}
		state := "goes on"
		switch {
		case r.Output == nil:
			state = "goes on, and its replica has not published its output in time"
		case *r.Output == "":
			state = "goes on, and has printed nothing yet"
		}
		fmt.Fprintf(s.err, "cronclave: run %s %s; follow it with cronclave logs -f %s --run %s\n", r.RunID, state, r.Job, r.RunID)
	}
}

// logViewer returns the viewer for followed output. With --run it prints the lines of the run unchanged. Otherwise it prefixes each line with time and
// replica, unless --plain is given.
func (s streams) logViewer(zones *cronspec.Zones, jobs []string, opt logsOptions) cluster.Viewer {
	logs := s.followedLogs(zones)
	switch {
	case opt.asJSON:
		return logs.JSON()
	case opt.run != "":
		return logs.Bare()
	case opt.plain:
		return logs.Headed()
	}
	return logs.Prefixed(len(jobs) > 1)
}

// followedLogs returns the printer for followed output. On a terminal it uses the machine's time zone, and UTC otherwise.
func (s streams) followedLogs(zones *cronspec.Zones) console.Logs {
	zone, _ := s.displayZone(zones, "") // no error: the name is empty
	return console.Logs{Out: s.out, Err: s.err, Zone: zone}
}

// runHeadline returns the line above the output of a run.
func runHeadline(r journal.Record) string {
	words := []string{"run", r.RunID, "on", r.Replica, console.Stamp(r.Started), strings.TrimSpace(r.Outcome + " " + r.Reason)}
	if r.Trigger == "manual" {
		words = append(words, "(manual)")
	}
	return strings.Join(words, " ")
}
