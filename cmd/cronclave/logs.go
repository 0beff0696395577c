package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/operator"
)

type logsOptions struct {
	run            string
	n              int
	follow, asJSON bool
}

func newLogsCommand(a *app) *cobra.Command {
	var o logsOptions
	cmd := &cobra.Command{
		Use:   "logs JOB",
		Short: "Print what a job's runs have printed, or follow them",
		Long: `Print what the newest run of a job has printed, as far as the history keeps it (output.keep). With -f: the output of current
and later runs from now on, until Ctrl-C; with --run that of one run until it ends. Output that is followed goes through Redis in pieces, a few times a
second, and a run that prints faster than that has bytes left out.`,
		Example: "  cronclave logs nightly-backup -f",
		Args:    cobra.ExactArgs(1),

		ValidArgsFunction: a.completeJobs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.n < 1:
				return usageError("-n %d: it must be at least 1", o.n)
			case o.run != "" && cmd.Flags().Changed("number"):
				return usageError("-n and --run are mutually exclusive")
			}
			return a.logs(cmd.Context(), args[0], o)
		},
	}
	cmd.Flags().StringVar(&o.run, "run", "", "of this run, by its id")
	cmd.Flags().IntVarP(&o.n, "number", "n", 1, "of how many runs")
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "show what is printed from now on")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON: the runs, or with -f a line for each line")
	_ = cmd.RegisterFlagCompletionFunc("run", cobra.NoFileCompletions) // it is there
	return cmd
}

func (a *app) logs(ctx context.Context, job string, opt logsOptions) error {
	o, err := a.openOperator(ctx)
	if err != nil {
		return err
	}
	defer o.close()
	if opt.follow {
		return o.exit(o.Follow(ctx, operator.FollowRequest{Job: job, Run: opt.run}, a.logViewer(opt)))
	}
	records, err := o.Logs(ctx, operator.LogsRequest{Job: job, Run: opt.run, Limit: opt.n})
	switch {
	case err != nil:
		return o.exit(err)
	case opt.asJSON:
		return a.printJSON(records)
	}
	for _, r := range slices.Backward(records) { // the newest comes last, as in any log
		fmt.Fprintf(a.err, "==> %s\n", headline(r))
		if r.Output != nil {
			for line := range strings.Lines(*r.Output) {
				fmt.Fprintln(a.out, strings.TrimSuffix(line, "\n"))
			}
		}
	}
	return nil
}

// logViewer prints the followed output: that of one run as it is, and that of several under headings.
func (s streams) logViewer(opt logsOptions) operator.Viewer {
	switch {
	case opt.asJSON:
		return s.liveJSON()
	case opt.run != "":
		return s.liveText()
	}
	return s.underHeadings(s.liveText())
}

// headline says whose output follows.
func headline(r journal.Record) string {
	words := []string{"run", r.RunID, "on", r.Replica, console.Stamp(r.Started), strings.TrimSpace(r.Outcome + " " + r.Reason)}
	if r.Trigger == "manual" {
		words = append(words, "(manual)")
	}
	return strings.Join(words, " ")
}

// liveText prints output where the runs wrote it.
func (s streams) liveText() operator.Viewer {
	return operator.Viewer{Note: s.noteLive, Line: func(l operator.OutputLine) {
		w := s.out
		if l.Stream == "stderr" {
			w = s.err
		}
		fmt.Fprintln(w, l.Line)
	}}
}

// liveJSON prints each line of output as a line of JSON.
func (s streams) liveJSON() operator.Viewer {
	return operator.Viewer{Note: s.noteLive, Line: func(l operator.OutputLine) {
		_ = json.NewEncoder(s.out).Encode(l) // as with all output, a reader that is gone needs no error
	}}
}

// underHeadings prints a heading wherever the output of another run begins.
func (s streams) underHeadings(v operator.Viewer) operator.Viewer {
	current, show := "", v.Line
	v.Line = func(l operator.OutputLine) {
		if l.RunID != current {
			fmt.Fprintf(s.err, "==> run %s\n", l.RunID)
			current = l.RunID
		}
		show(l)
	}
	return v
}

// noteLive prints a remark on a run's output.
func (s streams) noteLive(run, text string) { fmt.Fprintf(s.err, "cronclave: run %s: %s\n", run, text) }
