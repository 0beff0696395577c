package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/operator"
)

func newHistoryCommand(a *app) *cobra.Command {
	var n int
	var output, asJSON bool
	cmd := &cobra.Command{
		Use:     "history [JOB]",
		Short:   "Print the newest runs, and the ticks that were not run",
		Example: "  cronclave history nightly-backup -n 10 --output",
		Args:    cobra.MaximumNArgs(1),

		ValidArgsFunction: a.completeJobs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if n < 1 {
				return usageError("-n %d: it must be at least 1", n)
			}
			req := operator.HistoryRequest{Limit: n, Output: output}
			if len(args) > 0 {
				req.Job = args[0]
			}
			records, err := a.history(cmd.Context(), req)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(records)
			}
			return a.printHistory(records)
		},
	}
	cmd.Flags().IntVarP(&n, "number", "n", 50, "how many")
	cmd.Flags().BoolVar(&output, "output", false, "with the end of what each run printed")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// history reads the newest runs of a job, or of all.
func (a *app) history(ctx context.Context, req operator.HistoryRequest) ([]journal.Record, error) {
	o, err := a.openOperator(ctx)
	if err != nil {
		return nil, err
	}
	defer o.close()
	h, err := o.History(ctx, req)
	if err != nil {
		return nil, o.exit(err)
	}
	if h.Damage != nil {
		fmt.Fprintln(a.err, "cronclave: warning:", h.Damage)
	}
	return h.Records, nil
}

func (s streams) printHistory(records []journal.Record) error {
	if len(records) == 0 {
		fmt.Fprintln(s.out, "no runs")
		return nil
	}
	var rows strings.Builder
	table := tabwriter.NewWriter(&rows, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "TIME\tJOB\tTICK\tREPLICA\tSLOT\tTOKEN\tOUTCOME\tDURATION\tRUN")
	for _, r := range records {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", stamp(whenOf(r)), r.Job, askedTick(r), oneLine(r.Replica),
			slotOf(r), ifRun(r, fmt.Sprint(r.Token)), oneLine(r.Outcome+" "+r.Reason+ofTries(r)), duration(r), ifRun(r, r.RunID))
	}
	_ = table.Flush() // into memory
	header, rest, _ := strings.Cut(rows.String(), "\n")
	fmt.Fprintln(s.out, header)
	for _, r := range records { // its output follows each row, which is as wide as the others
		row, below, _ := strings.Cut(rest, "\n")
		rest = below
		fmt.Fprintln(s.out, row)
		if r.Output == nil {
			continue
		}
		for line := range strings.Lines(*r.Output) {
			fmt.Fprintf(s.out, "    %s\n", strings.TrimRight(line, "\n"))
		}
	}
	return nil
}

// whenOf is when a run began, or a tick was found not to be run.
func whenOf(r journal.Record) time.Time {
	if r.Started.IsZero() {
		return r.Finished
	}
	return r.Started
}

// ofTries says of a try that it was followed by another, and of a run how many have failed before its end.
func ofTries(r journal.Record) string {
	switch {
	case r.Retried:
		return " (tried again)"
	case r.FailedTries == 1:
		return " (after 1 failed try)"
	case r.FailedTries > 1:
		return fmt.Sprintf(" (after %d failed tries)", r.FailedTries)
	}
	return ""
}

// ifRun leaves out what a tick without a run does not have.
func ifRun(r journal.Record, s string) string {
	if r.Token == 0 && r.Started.IsZero() {
		return "-"
	}
	return s
}

// askedTick is a run's tick, with a mark where the run was asked for by hand.
func askedTick(r journal.Record) string {
	switch {
	case r.Trigger != "manual":
		return stamp(r.Tick)
	case r.Tick.IsZero():
		return "manual"
	}
	return stamp(r.Tick) + " manual"
}

func duration(r journal.Record) string {
	if r.DurationMS == nil {
		return "-"
	}
	return (time.Duration(*r.DurationMS) * time.Millisecond).String()
}

func slotOf(r journal.Record) string {
	if r.Slot == nil {
		return "-"
	}
	return fmt.Sprint(*r.Slot)
}
