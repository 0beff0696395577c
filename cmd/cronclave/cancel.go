package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/election"
)

func (a *app) cancelCommand() *cobra.Command {
	var run string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "cancel JOB",
		Short: "Stop what runs of a job, on whichever replica",
		Long: `Stop what runs of a job, on whichever replica: SIGTERM, and SIGKILL at the end of its kill_grace. The runs end as canceled (user),
and are neither tried again nor recovered; later ticks are run as ever. Prints who was told to stop, and does not wait until they have: history tells. Where
nothing runs, there is nothing to do (0); a run that is named and does not run is an error (1).`,
		Example: "  cronclave cancel nightly-backup",
		Args:    cobra.ExactArgs(1),

		ValidArgsFunction: a.completeJobs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			told, err := a.cancel(cmd.Context(), args[0], run)
			if err != nil {
				return err
			}
			if asJSON {
				err = a.printJSON(told)
			} else {
				a.printCanceled(args[0], told)
			}
			if err == nil && run != "" && len(told) == 0 {
				return fmt.Errorf("job %s has no run %s that is under way", args[0], run)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&run, "run", "", "only the run of this id, as history and the log have it")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// canceledRun is the JSON of the command, for each run that was told to stop.
type canceledRun struct {
	RunID   string     `json:"run_id"`
	Job     string     `json:"job"`
	Replica string     `json:"replica"`
	Slot    int        `json:"slot"`
	Token   int64      `json:"token"`
	Tick    *time.Time `json:"tick,omitempty"`
}

// cancel has the runs of a job stopped, or one of them.
func (a *app) cancel(ctx context.Context, job, run string) (told []canceledRun, err error) {
	v, err := a.openView(ctx)
	if err != nil {
		return nil, err
	}
	defer v.close()
	locks, err := openLocks(v.redis, v.cfg.Namespace, "cancel")
	if err != nil {
		return nil, err
	}
	defer func() { _ = locks.Close() }() // it only waits
	elector, err := election.New(election.Config{Locks: locks})
	if err != nil {
		return nil, err
	}
	runs, err := elector.Cancel(ctx, job, run)
	told = []canceledRun{} // an empty list, never null
	for _, r := range runs {
		c := canceledRun{RunID: r.ID, Job: job, Replica: r.Holder, Slot: r.Slot, Token: r.Token}
		if !r.Tick.IsZero() {
			c.Tick = &r.Tick
		}
		told = append(told, c)
	}
	switch {
	case errors.Is(err, election.ErrUnknown):
		return told, unavailable("cancel job "+job, err)
	case err != nil:
		return told, exitError{exitUsage, err} // a name that can't be one
	case len(told) == 0:
		return told, v.knows(ctx, job)
	}
	return told, nil
}

func (a *app) printCanceled(job string, told []canceledRun) {
	if len(told) == 0 {
		fmt.Fprintf(a.out, "nothing runs of job %s\n", job)
		return
	}
	for _, r := range told {
		fmt.Fprintf(a.out, "told replica %s to stop run %s of job %s (slot %d, token %d)\n", r.Replica, r.RunID, r.Job, r.Slot, r.Token)
	}
}
