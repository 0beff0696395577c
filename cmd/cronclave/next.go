package main

import (
	"container/heap"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/internal/config"
)

func (a *app) nextCommand() *cobra.Command {
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
			cfg, err := a.load()
			if err != nil {
				return err
			}
			jobs, err := selectJobs(cfg, args)
			if err != nil {
				return err
			}
			for _, j := range jobs {
				if len(args) > 0 && len(j.After) > 0 {
					fmt.Fprintf(a.err, "job %s runs %s: whether it has a tick is known when they have ended\n", j.Name, scheduled(nil, j.After))
				}
			}
			return a.printTicks(coming(jobs, w), asJSON)
		},
	}
	cmd.Flags().IntVarP(&n, "number", "n", 5, "how many rows; without it --until gives all")
	cmd.Flags().StringVar(&from, "from", "", "ticks after this instant: RFC 3339, or a duration from now (default now)")
	cmd.Flags().StringVar(&until, "until", "", "ticks up to this instant: RFC 3339, or a duration from now")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// window is which ticks to show: from < tick <= until, and at most limit of them.
type window struct {
	from, until time.Time // until is zero for no end
	limit       int
}

// mostTicks bounds what --until alone may print.
const mostTicks = 1_000_000

func newWindow(now time.Time, from, until string, n int, nGiven bool) (window, error) {
	w := window{from: now, limit: n}
	var err error
	if from != "" {
		if w.from, err = instant(now, from); err != nil {
			return w, usageError("--from: %w", err)
		}
	}
	if until != "" {
		if w.until, err = instant(now, until); err != nil {
			return w, usageError("--until: %w", err)
		}
		if !nGiven {
			w.limit = mostTicks
		}
	}
	if w.limit < 1 {
		return w, usageError("-n %d: it must be at least 1", n)
	}
	return w, nil
}

// instant reads RFC 3339, or a duration from now.
func instant(now time.Time, s string) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	if d, err := config.ParseDuration(s); err == nil {
		return now.Add(d), nil
	}
	return time.Time{}, fmt.Errorf("%q is neither RFC 3339, as 2026-11-01T03:00:00Z, nor a duration, as 12h or 7d", s)
}

func selectJobs(cfg *config.Config, names []string) ([]*config.Job, error) {
	byName := map[string]*config.Job{}
	var enabled []*config.Job
	for i := range cfg.Jobs {
		byName[cfg.Jobs[i].Name] = &cfg.Jobs[i]
		if cfg.Jobs[i].Enabled {
			enabled = append(enabled, &cfg.Jobs[i])
		}
	}
	if len(names) == 0 {
		return enabled, nil
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

// upcoming is a job's next tick.
type upcoming struct {
	job  *config.Job
	tick time.Time
}

// coming merges the ticks of the jobs in time order, those of one instant by the jobs' names.
func coming(jobs []*config.Job, w window) []upcoming {
	var next merge
	for _, j := range jobs {
		if j.Spec == nil { // it runs after others
			continue
		}
		if t := j.Spec.Next(w.from); !t.IsZero() {
			next = append(next, upcoming{j, t})
		}
	}
	heap.Init(&next)
	var ticks []upcoming
	for len(next) > 0 && len(ticks) < w.limit {
		u := next[0]
		if !w.until.IsZero() && u.tick.After(w.until) {
			break
		}
		ticks = append(ticks, u)
		if next[0].tick = u.job.Spec.Next(u.tick); next[0].tick.IsZero() {
			heap.Pop(&next)
			continue
		}
		heap.Fix(&next, 0)
	}
	return ticks
}

func (a *app) printTicks(ticks []upcoming, asJSON bool) error {
	if asJSON {
		type row struct {
			Job  string `json:"job"`
			Tick string `json:"tick"`
		}
		rows := []row{}
		for _, u := range ticks {
			rows = append(rows, row{u.job.Name, u.tick.In(u.job.Location).Format(time.RFC3339)})
		}
		return a.printJSON(rows)
	}
	table := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "TICK\tZONE\tJOB")
	for _, u := range ticks {
		fmt.Fprintf(table, "%s\t%s\t%s\n", u.tick.In(u.job.Location).Format("Mon 2006-01-02 15:04:05 -0700"), u.job.Location, u.job.Name)
	}
	return table.Flush()
}

// merge is a heap of the jobs' next ticks.
type merge []upcoming

func (m merge) Len() int { return len(m) }
func (m merge) Less(i, j int) bool {
	if c := m[i].tick.Compare(m[j].tick); c != 0 {
		return c < 0
	}
	return m[i].job.Name < m[j].job.Name
}
func (m merge) Swap(i, j int) { m[i], m[j] = m[j], m[i] }
func (m *merge) Push(x any)   { *m = append(*m, x.(upcoming)) }
func (m *merge) Pop() any {
	old := *m
	last := old[len(old)-1]
	*m = old[:len(old)-1]
	return last
}
