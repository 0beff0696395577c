package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/units"
)

// selectionFlags adds the flags that select jobs by tag, or all jobs.
func selectionFlags(cmd *cobra.Command, s *cluster.Selection) {
	cmd.Flags().StringArrayVar(&s.Tags, "tag", nil, "the jobs that have this tag; may be repeated")
	cmd.Flags().BoolVar(&s.All, "all", false, "all jobs of the namespace")
}

// checkSelection requires that jobs are selected in exactly one way.
func checkSelection(s cluster.Selection) error {
	ways := 0
	for _, given := range []bool{len(s.Jobs) > 0, len(s.Tags) > 0, s.All} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		return usageError("name the jobs, or use one of --tag and --all")
	}
	return nil
}

func newPauseCommand(a *app) *cobra.Command {
	req := cluster.PauseRequest{Requester: thisRequester()}
	var length string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "pause JOB...",
		Short: "Skip the ticks of jobs, until they are resumed or for a time",
		Long: `Ticks of a paused job are skipped, and not caught up later. Runs that are under way go on. For a job
that is paused already it changes the end and the reason, and keeps the beginning.`,
		Example: "  cronclave pause nightly-backup --for 2h --reason 'disks are replaced'",

		ValidArgsFunction: a.completeJobs(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("for") {
				d, err := units.ParseDuration(length)
				if err != nil || d <= 0 {
					return usageError("--for %q: it must be a duration, as 2h or 7d", length)
				}
				req.For = d
			}
			req.Jobs = args
			if err := checkSelection(req.Selection); err != nil {
				return err
			}
			return a.pauseOrResume(cmd.Context(), asJSON, func(o *cluster.Operator) ([]cluster.PausedJob, error) { return o.Pause(cmd.Context(), req) })
		},
	}
	selectionFlags(cmd, &req.Selection)
	cmd.Flags().StringVar(&length, "for", "", "how long, by the clock of Redis (default: until the jobs are resumed)")
	reasonFlag(cmd, &req.Requester)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newResumeCommand(a *app) *cobra.Command {
	req := cluster.ResumeRequest{Requester: thisRequester()}
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "resume JOB...",
		Short:   "Run jobs again that were paused, from their next tick",
		Example: "  cronclave resume --tag database",

		ValidArgsFunction: a.completeJobs(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Jobs = args
			if err := checkSelection(req.Selection); err != nil {
				return err
			}
			return a.pauseOrResume(cmd.Context(), asJSON, func(o *cluster.Operator) ([]cluster.PausedJob, error) { return o.Resume(cmd.Context(), req) })
		},
	}
	selectionFlags(cmd, &req.Selection)
	reasonFlag(cmd, &req.Requester)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// pauseOrResume calls do, which pauses or resumes jobs, and prints the result for each job.
func (a *app) pauseOrResume(ctx context.Context, asJSON bool, do func(*cluster.Operator) ([]cluster.PausedJob, error)) error {
	o, err := a.openOperator(ctx)
	if err != nil {
		return err
	}
	defer o.close()
	jobs, err := do(o.Operator)
	if err = o.withExitCode(err); jobs == nil { // do has changed no job
		return err
	}
	if asJSON {
		return errors.Join(a.printJSON(jobs), err)
	}
	console.Printer{Out: a.out}.Paused(jobs)
	return err
}
