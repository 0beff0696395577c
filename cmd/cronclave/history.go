package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler/cronspec"
	"github.com/cronclave/cronclave/scheduler/run"
)

type historyOptions struct {
	n                      int
	failed, output, asJSON bool
	notifications          bool
	outcomes               []string
	since, until, zone     string
}

func newHistoryCommand(a *app) *cobra.Command {
	var o historyOptions
	cmd := &cobra.Command{
		Use:     "history [JOB]",
		Short:   "Print the newest runs, and the ticks that were not run",
		Example: "  cronclave history nightly-backup -n 10 --output\n  cronclave history --failed --since 12h",
		Args:    cobra.MaximumNArgs(1),

		ValidArgsFunction: a.completeJobs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.notifications {
				return a.printNotifications(cmd, args, o)
			}
			req, err := o.toRequest(args)
			if err != nil {
				return err
			}
			h, zone, err := a.readHistory(cmd.Context(), req, o)
			if err != nil {
				return err
			}
			if o.asJSON {
				err = a.printJSON(h.Records)
			} else {
				console.Printer{Out: a.out, Zone: zone, Colour: a.useColour()}.History(h.Records)
			}
			if h.More && !cmd.Flags().Changed("number") {
				fmt.Fprintf(a.err, "cronclave: only the newest %d records are shown; -n N shows more\n", o.n)
			}
			return err
		},
	}
	cmd.Flags().IntVarP(&o.n, "number", "n", 50, "how many records at most, the newest")
	cmd.Flags().BoolVar(&o.failed, "failed", false, "only what went wrong: "+strings.Join(outcomeNames(run.Failures()), ", "))
	cmd.Flags().StringSliceVar(&o.outcomes, "outcome", nil, "only these outcomes, with commas between")
	cmd.Flags().StringVar(&o.since, "since", "", "only runs and ticks that ended at or after this instant, and runs under way: RFC 3339, or how long ago, as 12h or 7d")
	cmd.Flags().StringVar(&o.until, "until", "", "only runs and ticks that ended before this instant, and runs under way that began before it: RFC 3339, or how long ago")
	zoneFlag(cmd, &o.zone)
	cmd.Flags().BoolVar(&o.output, "output", false, "with the end of what each run printed")
	cmd.Flags().BoolVar(&o.notifications, "notifications", false, "the notifications that were sent, refused or dropped, and what waits, for all jobs")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON")
	_ = cmd.RegisterFlagCompletionFunc("outcome", cobra.FixedCompletions(outcomeNames(run.Outcomes()), cobra.ShellCompDirectiveNoFileComp)) // cannot fail
	return cmd
}

// printNotifications prints the state of each target of notifications, and the newest deliveries.
func (a *app) printNotifications(cmd *cobra.Command, args []string, o historyOptions) error {
	switch {
	case o.n < 1:
		return usageError("-n %d: it must be at least 1", o.n)
	case len(args) > 0 || o.failed || o.output || o.outcomes != nil || o.since+o.until != "":
		return usageError("--notifications takes only -n, --zone and --json")
	}
	op, zone, err := openInZone(cmd.Context(), a, o.zone)
	if err != nil {
		return err
	}
	defer op.close()
	n, err := op.Notifications(cmd.Context(), o.n)
	if err != nil {
		return op.withExitCode(err)
	}
	if n.Damage != nil {
		fmt.Fprintln(a.err, "cronclave: warning:", n.Damage)
	}
	if o.asJSON {
		return a.printJSON(n)
	}
	console.Printer{Out: a.out, Zone: zone, Colour: a.useColour()}.Notifications(n)
	return nil
}

// openInZone opens the cluster, and returns the zone in which to print times. A wrong name of a zone is reported before the command connects to Redis.
func openInZone(ctx context.Context, a *app, name string) (o *operating, zone *time.Location, err error) {
	o, err = a.openOperatorWith(ctx, func(zones *cronspec.Zones) (err error) {
		zone, err = a.displayZone(zones, name)
		return err
	})
	return o, zone, err
}

// toRequest returns the request that the flags describe. It resolves relative bounds by the clock of this machine; readHistory resolves them again by the
// clock of Redis.
func (o historyOptions) toRequest(args []string) (req cluster.HistoryRequest, err error) {
	req = cluster.HistoryRequest{Limit: o.n, Output: o.output}
	known := strings.Join(outcomeNames(run.Outcomes()), ", ")
	switch {
	case o.n < 1:
		return req, usageError("-n %d: it must be at least 1", o.n)
	case o.failed && o.outcomes != nil:
		return req, usageError("--failed and --outcome are mutually exclusive")
	case o.outcomes != nil && len(o.outcomes) == 0:
		return req, usageError("--outcome is empty: it must be some of %s", known)
	case o.failed:
		req.Outcomes = run.Failures()
	}
	for _, outcome := range o.outcomes {
		if !slices.Contains(run.Outcomes(), run.Outcome(outcome)) {
			return req, usageError("--outcome %q: it must be one of %s", outcome, known)
		}
		req.Outcomes = append(req.Outcomes, run.Outcome(outcome))
	}
	if len(args) > 0 {
		req.Job = args[0]
	}
	err = o.setBounds(&req, time.Now()) // reports a faulty bound before the command connects to Redis
	return req, err
}

func outcomeNames(outcomes []run.Outcome) (names []string) {
	for _, o := range outcomes {
		names = append(names, string(o))
	}
	return names
}

// setBounds sets --since and --until in a request. Durations are relative to now.
func (o historyOptions) setBounds(req *cluster.HistoryRequest, now time.Time) (err error) {
	if o.since != "" {
		if req.Since, err = parsePast(now, o.since); err != nil {
			return usageError("--since: %w", err)
		}
	}
	if o.until != "" {
		if req.Until, err = parsePast(now, o.until); err != nil {
			return usageError("--until: %w", err)
		}
	}
	if o.since != "" && o.until != "" && !req.Since.Before(req.Until) {
		return usageError("--since %s is not before --until %s", o.since, o.until)
	}
	return nil
}

// readHistory reads the latest runs of one job or of all jobs, and returns the zone in which to print times. Relative bounds use the clock of Redis, as the
// times in records do.
func (a *app) readHistory(ctx context.Context, req cluster.HistoryRequest, opt historyOptions) (h *cluster.History, zone *time.Location, err error) {
	o, zone, err := openInZone(ctx, a, opt.zone)
	if err != nil {
		return nil, nil, err
	}
	defer o.close()
	if opt.since+opt.until != "" {
		now, err := o.Now(ctx)
		if err != nil {
			return nil, nil, o.withExitCode(err)
		}
		if err := opt.setBounds(&req, now); err != nil {
			return nil, nil, err
		}
	}
	if h, err = o.History(ctx, req); err != nil {
		return nil, nil, o.withExitCode(err)
	}
	if opt.output {
		a.addPrinted(ctx, o, h.Records)
	}
	if h.Damage != nil {
		fmt.Fprintln(a.err, "cronclave: warning:", h.Damage)
	}
	return h, zone, nil
}

func newWhyCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "why JOB TIME",
		Short: "Explain what became of a job at an instant, and for which reason",
		Long: `Explain what became of a job at an instant: that it is no tick of the job, and for which reason, or how the tick ended, on which replica, with which
token, and for which reason it did not run. TIME is RFC 3339, or a date and a time by the clock of the job's zone. A time without a date is the newest one that
is not in the future. now and -5m mean the newest tick until then.`,
		Example: "  cronclave why nightly-backup '2026-11-01 03:00'\n  cronclave why nightly-backup -12h",
		Args:    cobra.MinimumNArgs(2),

		ValidArgsFunction: a.completeJobs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 3 { // a TIME without quotes is two arguments: date and time
				return usageError("why takes a JOB and a TIME")
			}
			return a.withOperator(cmd.Context(), func(o *operating) error {
				explanation, err := o.Why(cmd.Context(), args[0], strings.TrimSpace(strings.Join(args[1:], " ")))
				switch {
				case err != nil:
					return err
				case asJSON:
					return a.printJSON(explanation)
				}
				console.Printer{Out: a.out, Colour: a.useColour()}.Explanation(explanation)
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

var agoForm = regexp.MustCompile(`^-\d`)

// protectTimes puts a space before the times of the command why that look like flags, such as -5m.
func protectTimes(root *cobra.Command, args []string) []string {
	if cmd, _, err := root.Find(args); err != nil || cmd.Name() != "why" {
		return args
	}
	args = slices.Clone(args)
	for i, arg := range args {
		args[i] = agoForm.ReplaceAllStringFunc(arg, func(ago string) string { return " " + ago })
	}
	return args
}

func newAuditCommand(a *app) *cobra.Command {
	var most int
	var asJSON bool
	cmd := &cobra.Command{
		Use: "audit", Short: "Print the acts of users (trigger, cancel, pause, resume, exec, forget), newest first", Args: cobra.NoArgs, Example: "  cronclave audit -n 100",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if most < 1 {
				return usageError("-n %d: it must be at least 1", most)
			}
			return a.withOperator(cmd.Context(), func(o *operating) error {
				now, err := o.Now(cmd.Context())
				if err != nil {
					return err
				}
				acts, lost, err := o.Acts(cmd.Context(), most)
				switch {
				case err != nil:
					return err
				case lost != "":
					fmt.Fprintln(a.err, "cronclave: warning:", lost)
				}
				if asJSON {
					return a.printJSON(acts)
				}
				console.Printer{Out: a.out}.Acts(now, acts)
				return nil
			})
		},
	}
	cmd.Flags().IntVarP(&most, "number", "n", 20, "how many acts, 1,000 at most")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

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

// addPrinted adds the current output of runs in progress to their records, and prints a command to follow each of these runs. If Redis fails, addPrinted prints
// a warning, and the records stay valid.
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

func runHeadline(r journal.Record) string {
	words := []string{"run", r.RunID, "on", r.Replica, console.Stamp(r.Started), strings.TrimSpace(r.Verdict().String())}
	if r.Trigger == "manual" {
		words = append(words, "(manual)")
	}
	return strings.Join(words, " ")
}
