package main

import (
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/units"
)

func newNextCommand(a *app) *cobra.Command {
	var n int
	var from, until string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "next [JOB...]",
		Short:   "Print the coming ticks, merged in time order, each in its job's zone",
		Example: "  cronclave next nightly-backup --from 2026-10-24T00:00:00Z -n 3",

		ValidArgsFunction: a.completeJobs(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := newWindow(time.Now(), from, until, n, cmd.Flags().Changed("number"))
			if err != nil {
				return err
			}
			cfg, err := a.loadConfig()
			if err != nil {
				return err
			}
			jobs, err := selectJobs(cfg, args)
			if err != nil {
				return err
			}
			for _, j := range jobs {
				if len(args) > 0 && len(j.After) > 0 {
					fmt.Fprintf(a.err, "job %s runs %s: whether it has a tick is known when they have ended\n", j.Name, console.Scheduled(nil, j.After))
				}
			}
			return a.printTicks(nextTicks(jobs, w), asJSON)
		},
	}
	cmd.Flags().IntVarP(&n, "number", "n", 5, "how many rows; without it --until gives all")
	cmd.Flags().StringVar(&from, "from", "", "ticks after this instant: RFC 3339, or a duration from now (default now)")
	cmd.Flags().StringVar(&until, "until", "", "ticks up to this instant: RFC 3339, or a duration from now")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// mostTicks is the maximum number of ticks that next prints with --until and without -n.
const mostTicks = 1_000_000

func newWindow(now time.Time, from, until string, n int, nGiven bool) (cluster.Window, error) {
	w := cluster.Window{From: now, Limit: n}
	var err error
	if from != "" {
		if w.From, err = parseFuture(now, from); err != nil {
			return w, usageError("--from: %w", err)
		}
	}
	if until != "" {
		if w.Until, err = parseFuture(now, until); err != nil {
			return w, usageError("--until: %w", err)
		}
		if !nGiven {
			w.Limit = mostTicks
		}
	}
	if w.Limit < 1 {
		return w, usageError("-n %d: it must be at least 1", n)
	}
	return w, nil
}

// parseFuture parses a time in RFC 3339, or a duration that is added to now.
func parseFuture(now time.Time, s string) (time.Time, error) {
	return readInstant(s, now.Add)
}

// parsePast parses a time in RFC 3339, or a duration that is subtracted from now.
func parsePast(now time.Time, s string) (time.Time, error) {
	return readInstant(s, func(d time.Duration) time.Time { return now.Add(-d) })
}

func readInstant(s string, after func(d time.Duration) time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	if d, err := units.ParseDuration(s); err == nil {
		return after(d), nil
	}
	return time.Time{}, fmt.Errorf("%q is neither RFC 3339, as 2026-11-01T03:00:00Z, nor a duration, as 12h or 7d", s)
}

func selectJobs(cfg *config.Config, names []string) ([]*config.Job, error) {
	if len(names) == 0 {
		return cfg.EnabledJobs(), nil
	}
	byName := map[string]*config.Job{}
	for i := range cfg.Jobs {
		byName[cfg.Jobs[i].Name] = &cfg.Jobs[i]
	}
	var jobs []*config.Job
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if byName[name] == nil {
			return nil, noJob(name, namesOf(cfg))
		}
		jobs = append(jobs, byName[name])
	}
	return jobs, nil
}

// nextTicks returns the coming ticks of jobs. A job with `after` has no ticks of its own.
func nextTicks(jobs []*config.Job, w cluster.Window) []cluster.Tick {
	var scheduled []cluster.Scheduled
	for _, j := range jobs {
		if j.Spec != nil {
			scheduled = append(scheduled, cluster.Scheduled{Job: j.Name, Spec: j.Spec, Zone: j.Location})
		}
	}
	return cluster.Upcoming(scheduled, w)
}

func (s streams) printTicks(ticks []cluster.Tick, asJSON bool) error {
	if asJSON {
		type row struct {
			Job  string `json:"job"`
			Tick string `json:"tick"`
		}
		rows := []row{}
		for _, t := range ticks {
			rows = append(rows, row{t.Job, t.At.In(t.Zone).Format(time.RFC3339)})
		}
		return s.printJSON(rows)
	}
	table := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "TICK\tZONE\tJOB")
	for _, t := range ticks {
		fmt.Fprintf(table, "%s\t%s\t%s\n", t.At.In(t.Zone).Format("Mon 2006-01-02 15:04:05 -0700"), t.Zone, t.Job)
	}
	return table.Flush()
}
