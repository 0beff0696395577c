package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// historyOptions has the flags of history.
type historyOptions struct {
	n                      int
	failed, output, asJSON bool
	outcomes               []string
	since, until, zone     string
}

func newHistoryCommand(a *app) *cobra.Command {
	var o historyOptions
	cmd := &cobra.Command{
		Use:     "history [JOB]",
		Short:   "Print the newest runs, and the ticks that were not run",
		Example: "  cronclave history nightly-backup -n 10 --output\n  cronclave history --failed --since 12h",
		Args:    cobra.MaximumNArgs(1),

		ValidArgsFunction: a.completeJobs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := o.toRequest(args)
			if err != nil {
				return err
			}
			h, zone, err := a.readHistory(cmd.Context(), req, o)
			if err != nil {
				return err
			}
			if o.asJSON {
				err = a.printJSON(h.Records)
			} else {
				console.Printer{Out: a.out, Zone: zone, Colour: a.useColour()}.History(h.Records)
			}
			if h.More && !cmd.Flags().Changed("number") {
				fmt.Fprintf(a.err, "cronclave: only the newest %d records are shown; -n N shows more\n", o.n)
			}
			return err
		},
	}
	cmd.Flags().IntVarP(&o.n, "number", "n", 50, "how many records at most, the newest")
	cmd.Flags().BoolVar(&o.failed, "failed", false, "only what went wrong: "+strings.Join(journal.Failures(), ", "))
	cmd.Flags().StringSliceVar(&o.outcomes, "outcome", nil, "only these outcomes, with commas between")
	cmd.Flags().StringVar(&o.since, "since", "", "only runs and ticks that ended at or after this instant, and runs under way: RFC 3339, or how long ago, as 12h or 7d")
	cmd.Flags().StringVar(&o.until, "until", "", "only runs and ticks that ended before this instant, and runs under way that began before it: RFC 3339, or how long ago")
	zoneFlag(cmd, &o.zone)
	cmd.Flags().BoolVar(&o.output, "output", false, "with the end of what each run printed")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON")
	_ = cmd.RegisterFlagCompletionFunc("outcome", cobra.FixedCompletions(journal.Outcomes(), cobra.ShellCompDirectiveNoFileComp)) // cannot fail
	return cmd
}

// toRequest returns the request that the flags describe. It resolves relative bounds by the clock of this machine; readHistory resolves them again by the
// clock of Redis.
func (o historyOptions) toRequest(args []string) (req cluster.HistoryRequest, err error) {
	req = cluster.HistoryRequest{Limit: o.n, Output: o.output, Outcomes: o.outcomes}
	switch {
	case o.n < 1:
		return req, usageError("-n %d: it must be at least 1", o.n)
	case o.failed && o.outcomes != nil:
		return req, usageError("--failed and --outcome are mutually exclusive")
	case o.outcomes != nil && len(o.outcomes) == 0:
		return req, usageError("--outcome is empty: it must be some of %s", strings.Join(journal.Outcomes(), ", "))
	case o.failed:
		req.Outcomes = journal.Failures()
	}
	for _, outcome := range o.outcomes {
		if !slices.Contains(journal.Outcomes(), outcome) {
			return req, usageError("--outcome %q: it must be one of %s", outcome, strings.Join(journal.Outcomes(), ", "))
		}
	}
	if len(args) > 0 {
		req.Job = args[0]
	}
	err = o.setBounds(&req, time.Now()) // reports a faulty bound before the command connects to Redis
	return req, err
}

// setBounds sets --since and --until in a request. Durations are relative to now.
func (o historyOptions) setBounds(req *cluster.HistoryRequest, now time.Time) (err error) {
	if o.since != "" {
		if req.Since, err = parsePast(now, o.since); err != nil {
			return usageError("--since: %w", err)
		}
	}
	if o.until != "" {
		if req.Until, err = parsePast(now, o.until); err != nil {
			return usageError("--until: %w", err)
		}
	}
	if o.since != "" && o.until != "" && !req.Since.Before(req.Until) {
		return usageError("--since %s is not before --until %s", o.since, o.until)
	}
	return nil
}

// readHistory reads the latest runs of one job or of all jobs, and returns the zone in which to print times. Relative bounds use the clock of Redis, as the
// times in records do.
func (a *app) readHistory(ctx context.Context, req cluster.HistoryRequest, opt historyOptions) (h *cluster.History, zone *time.Location, err error) {
	o, err := a.openOperatorWith(ctx, func(zones *cronspec.Zones) (err error) {
		zone, err = a.displayZone(zones, opt.zone)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	defer o.close()
	if opt.since+opt.until != "" {
		now, err := o.Now(ctx)
		if err != nil {
			return nil, nil, o.withExitCode(err)
		}
		if err := opt.setBounds(&req, now); err != nil {
			return nil, nil, err
		}
	}
	if h, err = o.History(ctx, req); err != nil {
		return nil, nil, o.withExitCode(err)
	}
	if opt.output {
		a.addPrinted(ctx, o, h.Records)
	}
	if h.Damage != nil {
		fmt.Fprintln(a.err, "cronclave: warning:", h.Damage)
	}
	return h, zone, nil
}
