package main

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
)

func (a *app) historyCommand() *cobra.Command {
	var n int
	var output, asJSON bool
	cmd := &cobra.Command{
		Use:     "history [JOB]",
		Short:   "Print the newest runs, and the ticks that were not run",
		Example: "  cronclave history nightly-backup -n 10 --output",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if n < 1 {
				return usageError("-n %d: it must be at least 1", n)
			}
			cfg, rdb, j, err := a.openHistory(cmd)
			if err != nil {
				return err
			}
			defer rdb.Close()
			job := ""
			if len(args) > 0 {
				job = args[0]
			}
			records, err := j.Runs(cmd.Context(), job, n, output)
			if errors.Is(err, journal.ErrCorrupt) { // the others are good
				fmt.Fprintln(a.err, "cronclave: warning:", err)
				err = nil
			}
			if err != nil {
				return exitError{exitUnavailable, fmt.Errorf("read the history of namespace %s: %w", cfg.Namespace, err)}
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

// openHistory connects a command that only looks.
func (a *app) openHistory(cmd *cobra.Command) (*config.Config, *redis.Client, *journal.Journal, error) {
	cfg, err := a.loadIfAny()
	if err != nil {
		return nil, nil, nil, err
	}
	rdb, err := a.openRedis(cfg.Redis)
	if err != nil {
		return nil, nil, nil, err
	}
	j, err := openJournal(rdb, cfg)
	if err == nil {
		err = ping(cmd.Context(), rdb)
	}
	if err == nil {
		err = checkFormat(cmd.Context(), j)
	}
	if err != nil {
		return nil, nil, nil, errors.Join(err, rdb.Close())
	}
	return cfg, rdb, j, nil
}

func (a *app) printHistory(records []journal.Record) error {
	if len(records) == 0 {
		fmt.Fprintln(a.out, "no runs")
		return nil
	}
	table := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "TIME\tJOB\tTICK\tREPLICA\tSLOT\tTOKEN\tOUTCOME\tDURATION\tRUN")
	for _, r := range records {
		at := r.Started
		if at.IsZero() {
			at = r.Finished
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", stamp(at), r.Job, stamp(r.Tick), r.Replica,
			slotOf(r), ifRun(r, fmt.Sprint(r.Token)), strings.TrimSpace(r.Outcome+" "+r.Reason), duration(r), ifRun(r, r.RunID))
		if r.Output != nil && *r.Output != "" {
			if err := table.Flush(); err != nil {
				return err
			}
			for line := range strings.Lines(*r.Output) {
				fmt.Fprintf(a.out, "    %s\n", strings.TrimRight(line, "\n"))
			}
		}
	}
	return table.Flush()
}

// ifRun leaves out what a tick without a run does not have.
func ifRun(r journal.Record, s string) string {
	if r.Token == 0 && r.Started.IsZero() {
		return "-"
	}
	return s
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
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
