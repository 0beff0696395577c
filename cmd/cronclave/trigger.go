package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/journal"
)

type triggerOptions struct {
	wait, asJSON bool
	timeout      time.Duration
	tick         string
}

func newTriggerCommand(a *app) *cobra.Command {
	var o triggerOptions
	by := thisRequester()
	cmd := &cobra.Command{
		Use:   "trigger JOB",
		Short: "Have one of the replicas run a job now",
		Long: `Have one of the replicas run a job now, outside its schedule: no tick is taken for it. If all slots of the job are held the run is
skipped, or waits, as its ticks do. A request that no replica has started after a minute is dropped.

With --wait the output is shown while the job runs, and the exit code is the job's own (128+N where signal N ended it), 75 if it was not run, and 124 after
--timeout; the run goes on then, as it does after Ctrl-C. With --tick the run gets that past tick of the schedule as its CRONCLAVE_TICK.

A job with per_tick = "all" is run on every replica, JOB@REPLICA on that one. --wait is for one of them.`,
		Example: "  cronclave trigger nightly-backup --wait",
		Args:    cobra.ExactArgs(1),

		ValidArgsFunction: a.completeJobs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			tick, err := o.checkFlags()
			if err != nil {
				return err
			}
			return a.triggerJob(cmd.Context(), cluster.TriggerRequest{Requester: by, Job: args[0], Tick: tick, Follow: o.wait}, o)
		},
	}
	cmd.Flags().BoolVar(&o.wait, "wait", false, "show the output, and exit with the job's exit code")
	durationFlag(cmd.Flags(), &o.timeout, "timeout", "with --wait: exit with 124 if it takes longer (default: none)")
	reasonFlag(cmd, &by)
	cmd.Flags().StringVar(&o.tick, "tick", "", "run this past tick again, RFC 3339")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON: what became of the request, with --wait also of the run")
	return cmd
}

func (o triggerOptions) checkFlags() (tick time.Time, err error) {
	switch {
	case o.timeout < 0:
		return tick, usageError("--timeout %v: it must not be negative", o.timeout)
	case o.timeout > 0 && !o.wait:
		return tick, usageError("--timeout is for --wait")
	}
	if o.tick == "" {
		return tick, nil
	}
	if tick, err = time.Parse(time.RFC3339, o.tick); err != nil {
		return tick, usageError("--tick %q is not RFC 3339, as 2026-12-24T03:00:00Z", o.tick)
	}
	return tick, nil
}

var errTimeout = errors.New("--timeout has passed")

func (a *app) triggerJob(ctx context.Context, req cluster.TriggerRequest, opt triggerOptions) error {
	o, err := a.openOperator(ctx)
	if err != nil {
		return err
	}
	defer o.close()
	asked, err := o.Trigger(ctx, req)
	switch {
	case errors.Is(err, cluster.ErrDisabled):
		return fmt.Errorf("%w; run it here with: cronclave exec %s", err, req.Job)
	case err != nil:
		return o.withExitCode(err)
	case len(asked) > 1:
		return a.awaitStarts(ctx, o, asked, opt)
	}
	r := asked[0].Request
	if opt.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, opt.timeout, errTimeout)
		defer cancel()
	}
	t, err := o.AwaitStart(ctx, r, func(replica string) { a.printWaiting(r, replica) })
	switch {
	case err != nil:
		return o.withExitCode(err)
	case !t.Started():
		return errors.Join(a.printTriggered(t, opt), notRun(t, opt.wait))
	case !opt.wait:
		return a.printTriggered(t, opt)
	}
	return a.followRun(ctx, o, t, opt)
}

// awaitStarts waits for the starts of the instances of a job with per_tick = "all". If some of them are not run, it continues with the others, and returns all
// errors.
func (a *app) awaitStarts(ctx context.Context, o *operating, asked []cluster.Asked, opt triggerOptions) error {
	all := []*cluster.Triggered{}
	var faults []error
	for _, r := range asked {
		if r.Err != nil {
			faults = append(faults, fmt.Errorf("job %s: %w", r.Job, o.withExitCode(r.Err)))
			continue
		}
		t, err := o.AwaitStart(ctx, r.Request, func(replica string) { a.printWaiting(r.Request, replica) })
		if err != nil {
			faults = append(faults, o.withExitCode(err))
			continue
		}
		if !t.Started() {
			faults = append(faults, notRun(t, false))
		}
		if all = append(all, t); !opt.asJSON {
			faults = append(faults, a.printTriggered(t, opt))
		}
	}
	if opt.asJSON {
		faults = append(faults, a.printJSON(all))
	}
	return errors.Join(faults...)
}

// thisRequester returns the user of this command, as user@host. The name is only informative: it is not verified.
func thisRequester() cluster.Requester {
	host, _ := os.Hostname() // on an error host is "", and the name says "somewhere"
	return cluster.Requester{By: cmp.Or(os.Getenv(envUser), "somebody") + "@" + cmp.Or(host, "somewhere")}
}

func reasonFlag(cmd *cobra.Command, r *cluster.Requester) {
	cmd.Flags().StringVar(&r.Reason, "reason", "", "why, for people: one line of at most 200 characters")
}

func (s streams) printWaiting(r journal.Request, replica string) {
	if replica == "" {
		fmt.Fprintf(s.err, "cronclave: no replica has taken it yet; waiting until %s\n", r.Expires.Format(time.RFC3339))
		return
	}
	fmt.Fprintf(s.err, "cronclave: replica %s has taken it and waits for a slot of the job, until %s\n", replica, r.Expires.Format(time.RFC3339))
}

func notRun(t *cluster.Triggered, wait bool) error {
	err := fmt.Errorf("job %s: %s: %s", t.Job, t.Outcome, t.Reason)
	if wait && t.Outcome != journal.OutcomeFailed {
		return exitError{exitNotAcquired, err}
	}
	return err
}

func (s streams) printTriggered(t *cluster.Triggered, opt triggerOptions) error {
	switch {
	case opt.asJSON:
		return s.printJSON(t)
	case t.RunID == "": // the error of notRun has the details
	case opt.wait: // stdout is for the output of the job
		fmt.Fprintf(s.err, "cronclave: run %s started by replica %s\n", t.RunID, t.Replica)
	default:
		fmt.Fprintf(s.out, "run %s started by replica %s\n", t.RunID, t.Replica)
	}
	return nil
}

func (a *app) followRun(ctx context.Context, o *operating, t *cluster.Triggered, opt triggerOptions) error {
	ctx, done := console.WhileWritable(ctx, a.out)
	defer done()
	var viewer cluster.Viewer
	if !opt.asJSON {
		viewer = a.followedLogs(o.Zones()).Bare()
		if err := a.printTriggered(t, opt); err != nil {
			return err
		}
	}
	if err := o.AwaitEnd(ctx, t, viewer); err != nil {
		if errors.Is(err, errTimeout) {
			return exitError{exitTimeout, fmt.Errorf("job %s: %w; run %s goes on", t.Job, err, t.RunID)}
		}
		return o.withExitCode(err)
	}
	if opt.asJSON {
		if err := a.printJSON(t); err != nil {
			return err
		}
	}
	return execResult(*t.Run, nil)
}
