package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/internal/units"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

type operating struct {
	*cluster.Operator
	redis  *redisconn.Conn
	faulty bool // the configuration is faulty, so its jobs are unknown
}

// openOperator opens the cluster that the flags, the environment or the configuration describe.
func (a *app) openOperator(ctx context.Context) (*operating, error) {
	return a.openOperatorWith(ctx, func(*cronspec.Zones) error { return nil })
}

// openOperatorWith is openOperator, but first calls take with the configuration's time zones. A wrong --zone is therefore reported before the command
// connects to Redis.
func (a *app) openOperatorWith(ctx context.Context, take func(*cronspec.Zones) error) (*operating, error) {
	cfg, faults, err := a.loadIfAny()
	if err == nil {
		err = take(cfg.Zones)
	}
	if err != nil {
		return nil, err
	}
	rdb, err := a.openRedis(cfg)
	if err != nil {
		return nil, err
	}
	j, err := checkRedis(ctx, cfg, rdb)
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	o, err := cluster.New(cluster.Config{Conn: rdb, Journal: j, Namespace: cfg.Namespace, Jobs: configuredJobs(cfg), Incomplete: faults > 0,
		Zones: func() *cronspec.Zones { return cfg.Zones }})
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	return &operating{o, rdb, faults > 0}, nil
}

func (a *app) withOperator(ctx context.Context, do func(*operating) error) error {
	o, err := a.openOperator(ctx)
	if err != nil {
		return err
	}
	defer o.close()
	return o.withExitCode(do(o))
}

func configuredJobs(cfg *config.Config) []cluster.ConfiguredJob {
	jobs := make([]cluster.ConfiguredJob, len(cfg.Jobs))
	for i, j := range cfg.Jobs {
		jobs[i] = cluster.ConfiguredJob{Name: j.Name, Tags: j.Tags, Everywhere: j.Everywhere, Where: j.Where}
	}
	return jobs
}

func (o *operating) close() {
	_ = o.Close()       // waits for background work; an error would not matter
	_ = o.redis.Close() // an error would not matter: no request is in progress
}

// withExitCode adds the exit code to an error of an operator, and advice for the command line.
func (o *operating) withExitCode(err error) error {
	var away *cluster.UnavailableError
	switch {
	case errors.As(err, &away):
		return unavailableError(away.Doing, away.Err)
	case errors.Is(err, cluster.ErrUnknownJob), errors.Is(err, cluster.ErrUnknownTag), errors.Is(err, cluster.ErrNoJobs):
		if o.faulty {
			err = fmt.Errorf("%w (no replica has it; the faulty configuration was not searched)", err)
		}
		return exitError{exitUsage, err}
	case errors.Is(err, cluster.ErrNotATick):
		return usageError("--tick %w", err)
	case errors.Is(err, cluster.ErrInvalid):
		return exitError{exitUsage, err}
	case errors.Is(err, cluster.ErrNotStarted):
		return exitError{exitTimeout, err}
	}
	return err
}

func selectionFlags(cmd *cobra.Command, s *cluster.Selection) {
	cmd.Flags().StringArrayVar(&s.Tags, "tag", nil, "the jobs that have this tag; may be repeated")
	cmd.Flags().BoolVar(&s.All, "all", false, "all jobs of the namespace")
}

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

func newCancelCommand(a *app) *cobra.Command {
	req := cluster.CancelRequest{Requester: thisRequester()}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "cancel JOB",
		Short: "Stop what runs of a job, on whichever replica",
		Long: `Stop what runs of a job, on whichever replica: SIGTERM, and SIGKILL at the end of its kill_grace. The runs end as canceled (user),
and are neither tried again nor recovered; later ticks are run as ever. Prints the runs that are to stop, and does not wait for their end;
history shows it. Where nothing runs, there is nothing to do (0); a run that is named and does not run is an error (1).`,
		Example: "  cronclave cancel nightly-backup",
		Args:    cobra.ExactArgs(1),

		ValidArgsFunction: a.completeJobs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Job = args[0]
			return a.cancelRuns(cmd.Context(), req, asJSON)
		},
	}
	cmd.Flags().StringVar(&req.Run, "run", "", "only the run of this id, as history and the log have it")
	reasonFlag(cmd, &req.Requester)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) cancelRuns(ctx context.Context, req cluster.CancelRequest, asJSON bool) error {
	o, err := a.openOperator(ctx)
	if err != nil {
		return err
	}
	defer o.close()
	canceled, err := o.Cancel(ctx, req)
	if err != nil && !errors.Is(err, cluster.ErrUnknownRun) {
		return o.withExitCode(err)
	}
	if !asJSON {
		console.Printer{Out: a.out}.Canceled(req.Job, canceled)
		return err
	}
	return errors.Join(a.printJSON(canceled), err)
}

func newForgetCommand(a *app) *cobra.Command {
	by := thisRequester()
	cmd := &cobra.Command{
		Use:   "forget REPLICA",
		Short: "Take a lost replica that will not come back off the list of problems",
		Long: `A replica whose registration expired, because it died or was cut off, is a problem for a day: status --check exits with 1 until it is
up again, it is forgotten, or as many replicas are up as [cluster].replicas expects. A replica that is up is not forgotten.`,
		Example: "  cronclave forget node-7 --reason 'the machine is gone'",
		Args:    cobra.ExactArgs(1),

		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withOperator(cmd.Context(), func(o *operating) error {
				if err := o.Forget(cmd.Context(), args[0], by); err != nil {
					return err //nolint:wrapcheck // the error says that nothing was done
				}
				_, err := fmt.Fprintf(a.out, "forgot replica %s\n", args[0])
				return err //nolint:wrapcheck // the output says what failed
			})
		},
	}
	reasonFlag(cmd, &by)
	return cmd
}
