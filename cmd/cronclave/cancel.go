package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/console"
)

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

// cancelRuns stops one run or all runs of a job, and prints them.
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
