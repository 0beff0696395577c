package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/internal/journal"
)

type logsOptions struct {
	run            string
	n              int
	follow, asJSON bool
}

func (a *app) logsCommand() *cobra.Command {
	var o logsOptions
	cmd := &cobra.Command{
		Use:   "logs JOB",
		Short: "Print what a job's runs have printed, or follow them",
		Long: `Print what the newest run of a job has printed, as far as the history keeps it (output.keep). With -f: what is running prints
from now on, and what comes after it, until Ctrl-C; with --run until that run has ended. What is followed goes through Redis in pieces, a few times a second, and
a run that prints faster than that has bytes left out.`,
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

func (a *app) logs(ctx context.Context, job string, o logsOptions) error {
	v, err := a.openView(ctx)
	if err != nil {
		return err
	}
	defer v.close()
	if err := v.knows(ctx, job); err != nil && o.run == "" {
		if records, _ := v.journal.Runs(ctx, job, 1, false); len(records) == 0 { // a job of the past has logs, too
			return err
		}
	}
	if o.follow {
		return a.followLogs(ctx, v, job, o)
	}
	records, err := v.logged(ctx, job, o)
	if err != nil {
		return err
	}
	if o.asJSON {
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

// headline tells whose output follows.
func headline(r journal.Record) string {
	words := []string{"run", r.RunID, "on", r.Replica, stamp(r.Started), strings.TrimSpace(r.Outcome + " " + r.Reason)}
	if r.Trigger == "manual" {
		words = append(words, "(manual)")
	}
	return strings.Join(words, " ")
}

// logged are the newest runs of a job, newest first, or the one that is asked for.
func (v *view) logged(ctx context.Context, job string, o logsOptions) ([]journal.Record, error) {
	if o.run != "" {
		r, err := v.run(ctx, job, o.run)
		return []journal.Record{r}, err
	}
	all, err := v.journal.Runs(ctx, job, 0, true)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return nil, unavailable("read the history of namespace "+v.cfg.Namespace, err)
	}
	runs := []journal.Record{} // never null
	for _, r := range all {
		if !r.Started.IsZero() && len(runs) < o.n {
			runs = append(runs, r)
		}
	}
	return runs, nil
}

// run demands that there is such a run.
func (v *view) run(ctx context.Context, job, id string) (journal.Record, error) {
	r, ok, err := v.journal.Run(ctx, job, id)
	switch {
	case errors.Is(err, journal.ErrCorrupt):
		return r, err
	case err != nil:
		return r, unavailable("read the history of namespace "+v.cfg.Namespace, err)
	case !ok:
		return r, fmt.Errorf("job %s has no run %q in the history", job, id)
	}
	return r, nil
}

// followLogs shows one run until it has ended, or all until ctx has.
func (a *app) followLogs(ctx context.Context, v *view, job string, o logsOptions) error {
	f := &follower{journal: v.journal, job: job, show: a.printLive, note: a.noteLive}
	if o.asJSON {
		f.show = a.printLiveJSON
	}
	if o.run != "" {
		if _, err := v.run(ctx, job, o.run); err != nil {
			return err
		}
		return f.follow(ctx, &followed{id: o.run})
	}
	current := ""
	show := f.show
	f.show = func(run string, line journal.Line) {
		if run != current && !o.asJSON {
			fmt.Fprintf(a.err, "==> run %s\n", run)
			current = run
		}
		show(run, line)
	}
	err := f.followAll(ctx)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// printLiveJSON shows a line as JSON, one on each line.
func (a *app) printLiveJSON(run string, line journal.Line) {
	said := struct {
		RunID  string `json:"run_id"`
		Stream string `json:"stream"`
		Line   string `json:"line"`
	}{run, "stdout", line.Text}
	if line.Stderr {
		said.Stream = "stderr"
	}
	_ = json.NewEncoder(a.out).Encode(said) // as with all output, nobody is there to be told
}

// maxFollowed is how many of the newest runs are looked at: no job has more at once, or in so short a time, that anybody could read.
const maxFollowed = 50

// followAll shows the runs of the job that have not ended, and those that come.
func (f *follower) followAll(ctx context.Context) error {
	known := map[string]*followed{} // nil for those that are over
	timer := time.NewTimer(0)
	defer timer.Stop()
	for first := true; ; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		err := f.stay(ctx)
		if err == nil {
			err = f.lookAtAll(ctx, known, first)
			first = first && err != nil
		}
		if err := f.tolerate(err); err != nil {
			return err
		}
		timer.Reset(followEvery)
	}
}

// isTry tells whether a record is of a try that another has followed, whose output is that of the run.
func isTry(r journal.Record) bool { return strings.HasSuffix(r.RunID, fmt.Sprintf(".%d", r.Attempt)) }

// lookAtAll shows what is new. Runs that were over at the first look are none of it.
func (f *follower) lookAtAll(ctx context.Context, known map[string]*followed, first bool) error {
	records, err := f.journal.Runs(ctx, f.job, maxFollowed, false)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return err
	}
	kept := map[string]bool{}
	for _, r := range records {
		kept[r.RunID] = true
		if _, ok := known[r.RunID]; ok || r.Started.IsZero() || isTry(r) {
			continue
		}
		known[r.RunID] = &followed{id: r.RunID}
		if first && r.Outcome != journal.OutcomeRunning {
			known[r.RunID] = nil
		}
	}
	for id, r := range known {
		if r == nil {
			if !kept[id] {
				delete(known, id)
			}
			continue
		}
		over, err := f.look(ctx, r)
		if err != nil {
			return err
		}
		if over {
			known[id] = nil
		}
	}
	return nil
}
