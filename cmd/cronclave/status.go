package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/zonedata"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

type statusOptions struct {
	cluster.StatusRequest
	layout       string
	zone         string
	watch, check bool
	asJSON       bool
}

func newStatusCommand(a *app) *cobra.Command {
	var o statusOptions
	cmd := &cobra.Command{
		Use:   "status [JOB]",
		Short: "Print what is wrong, the replicas, the leader and the jobs; or one job",
		Long: `Print problems first (✗ failures, ! warnings, · advice), then replicas, jobs, pools and locks. Marks of runs: ✓ ok, ✗ failed, timeout, lost or
abandoned, ! missed, - skipped or canceled, ▸ running. With a JOB: its schedule, slots, holders, newest runs and all settings; those in which
replicas differ are marked.`,
		Example: "  cronclave status --failed\n  cronclave status --check && echo all is well",
		Args:    cobra.MaximumNArgs(1),

		ValidArgsFunction: a.completeJobs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.Job = args[0]
			}
			return o.printStatus(cmd.Context(), a)
		},
	}
	cmd.Flags().BoolVar(&o.Failed, "failed", false, "only jobs that failed or missed a tick, and have had no ok run since")
	cmd.Flags().BoolVar(&o.Running, "running", false, "only jobs that run")
	cmd.Flags().BoolVar(&o.Paused, "paused", false, "only jobs that are paused")
	cmd.Flags().StringVar(&o.Tag, "tag", "", "only jobs with this tag")
	cmd.Flags().StringVar(&o.Match, "match", "", "only jobs with this in their names, or whose names match this pattern: 'backup-*'")
	cmd.Flags().StringVarP(&o.layout, "format", "o", "", "wide: more columns, and nothing cut to fit 100 characters")
	zoneFlag(cmd, &o.zone)
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "print it anew every two seconds, until Ctrl-C")
	cmd.Flags().BoolVar(&o.check, "check", false, "exit with 1 if there is a failure or a warning")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON")
	return cmd
}

const watchEvery = 2 * time.Second

func (o statusOptions) printStatus(ctx context.Context, a *app) error {
	var p console.Printer
	op, err := a.openOperatorWith(ctx, func(zones *cronspec.Zones) (err error) {
		p, err = o.newPrinter(a.streams, zones)
		return err
	})
	if err != nil {
		return err
	}
	defer op.close()
	if o.watch {
		ctx, done := console.WhileWritable(ctx, a.out)
		defer done()
		return o.watchCluster(ctx, op, p, a.streams)
	}
	st, err := op.Status(ctx, o.StatusRequest)
	switch {
	case err != nil:
		return op.withExitCode(err)
	case o.asJSON:
		err = a.printJSON(st)
	default:
		err = o.printText(p, st)
	}
	if err == nil && o.check && st.NeedsPerson() {
		return exitError{code: exitFailed}
	}
	return err
}

// watchCluster prints the status every two seconds until ctx ends. If Redis does not answer the first time, it returns the error. Later it prints errors and
// continues.
func (o statusOptions) watchCluster(ctx context.Context, op *operating, p console.Printer, s streams) error {
	for first := true; ; first = false {
		st, err := op.Status(ctx, o.StatusRequest)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return op.withExitCode(err)
		case err != nil:
			fmt.Fprintln(s.err, "cronclave:", err)
		default:
			if console.IsTerminal(s.out) {
				console.Clear(s.out)
			}
			if err := o.printText(p, st); err != nil {
				return err
			}
		}
		backoff.Sleep(ctx, watchEvery)
	}
}

// newPrinter checks the flags and returns the printer that they describe.
func (o statusOptions) newPrinter(s streams, zones *cronspec.Zones) (p console.Printer, err error) {
	p = console.Printer{Out: s.out, Colour: s.useColour(), Wide: o.layout == "wide"}
	switch {
	case o.layout != "" && o.layout != "wide":
		return p, usageError("-o %q: it must be wide", o.layout)
	case o.Job != "" && (o.Failed || o.Running || o.Paused || o.Tag != "" || o.Match != ""):
		return p, usageError("--failed, --running, --paused, --tag and --match pick jobs of a list; leave them out with a JOB")
	case o.watch && (o.asJSON || o.check):
		return p, usageError("--watch goes with neither --json nor --check")
	}
	p.Zone, err = s.displayZone(zones, o.zone)
	return p, err
}

func zoneFlag(cmd *cobra.Command, zone *string) {
	cmd.Flags().StringVar(zone, "zone", "", "the zone of instants (default: the machine's on a terminal, else UTC)")
}

// displayZone returns the time zone with the given name. If the name is "", it returns the machine's zone for a terminal, and UTC otherwise.
func (s streams) displayZone(zones *cronspec.Zones, name string) (*time.Location, error) {
	switch {
	case name != "":
		zone, err := zones.Location(name)
		if err != nil {
			return nil, usageError("--zone: %w", err)
		}
		return zone, nil
	case console.IsTerminal(s.out):
		return zonedata.Local(zones), nil
	}
	return time.UTC, nil
}

func (s streams) useColour() bool {
	return console.IsTerminal(s.out) && os.Getenv(envNoColor) == "" && os.Getenv(envTerm) != "dumb"
}

func (o statusOptions) printText(p console.Printer, st *cluster.Status) error {
	out, text := p.Out, strings.Builder{}
	p.Out = &text
	if o.Job != "" {
		p.Job(st, st.Jobs[0])
	} else {
		p.Status(st)
	}
	if _, err := io.WriteString(out, text.String()); err != nil {
		return fmt.Errorf("print the status: %w", err)
	}
	return nil
}
