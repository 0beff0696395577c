package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

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

		ValidArgsFunction: a.completeJobs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if n < 1 {
				return usageError("-n %d: it must be at least 1", n)
			}
			job := ""
			if len(args) > 0 {
				job = args[0]
			}
			records, err := a.history(cmd.Context(), job, n, output)
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
func (a *app) history(ctx context.Context, job string, n int, output bool) ([]journal.Record, error) {
	v, err := a.openView(ctx)
	if err != nil {
		return nil, err
	}
	defer v.close()
	records, err := v.journal.Runs(ctx, job, n, output)
	switch {
	case errors.Is(err, journal.ErrCorrupt) && len(records) == 0:
		return nil, fmt.Errorf("read the history of namespace %s: %w", v.cfg.Namespace, err)
	case errors.Is(err, journal.ErrCorrupt): // the others are good
		fmt.Fprintln(a.err, "cronclave: warning:", err)
	case err != nil:
		return nil, unavailable("read the history of namespace "+v.cfg.Namespace, err)
	case len(records) == 0 && job != "":
		return []journal.Record{}, v.knows(ctx, job)
	}
	return append([]journal.Record{}, records...), nil // an empty list, never null
}

// view is what a command that only looks works with.
type view struct {
	cfg     *config.Config
	faults  int // of the configuration, whose jobs are not known then
	redis   *store
	journal *journal.Journal
}

func (a *app) openView(ctx context.Context) (*view, error) {
	cfg, faults, err := a.loadIfAny()
	if err != nil {
		return nil, err
	}
	rdb, err := a.openRedis(cfg)
	if err != nil {
		return nil, err
	}
	j, err := greet(ctx, cfg, rdb)
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	return &view{cfg, faults, rdb, j}, nil
}

func (v *view) close() { _ = v.redis.Close() } // nothing is under way

// knows demands of a job without a history that it is configured, here or on a replica.
func (v *view) knows(ctx context.Context, job string) error {
	names := namesOf(v.cfg)
	infos, err := v.journal.Jobs(ctx)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return unavailable("list the jobs of namespace "+v.cfg.Namespace, err)
	}
	for _, info := range infos {
		names = append(names, info.Name)
	}
	if slices.Contains(names, job) {
		return nil
	}
	// Jobs of the past are good for a hint only, unless the configuration that may still have them was not searched.
	const enough = 1000
	past, _ := v.journal.Runs(ctx, "", enough, false)
	for _, r := range past {
		if names = append(names, r.Job); r.Job != job {
			continue
		}
		if v.faults > 0 {
			return nil
		}
		return usageError("job %q has runs in the history but is no longer configured, here or on any replica", job)
	}
	return v.besideFaults(noJob(job, names))
}

// besideFaults adds to an error about an unknown job that the faulty configuration may have it.
func (v *view) besideFaults(err error) error {
	if v.faults == 0 {
		return err
	}
	return usageError("%w (no replica has it; the faulty configuration was not searched)", err)
}

func (a *app) printHistory(records []journal.Record) error {
	if len(records) == 0 {
		fmt.Fprintln(a.out, "no runs")
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
	fmt.Fprintln(a.out, header)
	for _, r := range records { // its output follows each row, which is as wide as the others
		row, below, _ := strings.Cut(rest, "\n")
		rest = below
		fmt.Fprintln(a.out, row)
		if r.Output == nil {
			continue
		}
		for line := range strings.Lines(*r.Output) {
			fmt.Fprintf(a.out, "    %s\n", strings.TrimRight(line, "\n"))
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

// oneLine makes a text one cell of a table.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// ifRun leaves out what a tick without a run does not have.
func ifRun(r journal.Record, s string) string {
	if r.Token == 0 && r.Started.IsZero() {
		return "-"
	}
	return s
}

// askedTick is a run's tick, and whether somebody has asked for the run.
func askedTick(r journal.Record) string {
	switch {
	case r.Trigger != "manual":
		return stamp(r.Tick)
	case r.Tick.IsZero():
		return "manual"
	}
	return stamp(r.Tick) + " manual"
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
