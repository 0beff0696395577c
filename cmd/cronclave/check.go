package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/process"
	"github.com/cronclave/cronclave/internal/replica"
	"github.com/cronclave/cronclave/internal/units"
	"github.com/cronclave/cronclave/scheduler"
)

func newCheckCommand(a *app) *cobra.Command {
	var strict, asJSON, noEnv bool
	cmd := &cobra.Command{
		Use:     "check [PATH]",
		Short:   "Validate a configuration: every fault at once, each with its place",
		Example: "  cronclave check jobs.toml",
		Args:    cobra.MaximumNArgs(1),

		ValidArgsFunction: tomlFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, _ := a.configFile()
			if len(args) > 0 {
				path = args[0]
			}
			return a.checkConfig(cmd.Context(), path, config.Options{KeepUnset: noEnv, Trust: trustOfRoot(), Machine: !noEnv}, strict, asJSON)
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "warnings are faults")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&noEnv, "no-env", false, "for another machine: do not report ${VARIABLES} that are not set, nor users, folders and files of jobs that are not here")
	return cmd
}

// checked is the JSON output of check.
type checked struct {
	Path string `json:"path"`
	OK   bool   `json:"ok"`
	Jobs int    `json:"jobs"`
	// ZoneData is the version of the time zone data that the jobs use, or "" if the configuration is faulty.
	ZoneData string         `json:"zone_data,omitempty"`
	Faults   []checkedFault `json:"faults"`
	// Accounts maps the names of jobs' users to descriptions. It has only users from the directory service that are not in /etc/passwd.
	Accounts map[string]string `json:"accounts,omitempty"`
	// Everywhere has the names of the jobs with per_tick = "all".
	Everywhere []string `json:"everywhere,omitempty"`
}

type checkedFault struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
	Warning bool   `json:"warning"`
}

func (a *app) checkConfig(ctx context.Context, path string, o config.Options, strict, asJSON bool) error {
	accounts := &process.Accounts{}
	o.Rights = accounts.Rights
	cfg, err := config.Load(path, o)
	if err == nil && o.Machine {
		err = checkSizes(ctx, cfg, accounts)
	}
	var faults config.Faults
	if err != nil && !errors.As(err, &faults) {
		return err
	}
	result := checked{Path: path, OK: err == nil, Faults: []checkedFault{}}
	if err == nil {
		result.Jobs, result.ZoneData, faults = len(cfg.Jobs), cfg.Zones.Version(), cfg.Warnings
		result.Everywhere = cfg.Everywhere()
		result.OK = !strict || len(faults) == 0
	}
	for _, f := range faults {
		result.Faults = append(result.Faults, checkedFault{f.File, f.Line, f.Column, f.Message, f.Warning && !strict})
	}
	if err == nil && o.Machine {
		result.Accounts = directoryAccounts(cfg, accounts)
	}
	if err := a.printCheck(result, asJSON); err != nil {
		return err
	}
	if !result.OK {
		return exitError{code: exitUsage}
	}
	return nil
}

// checkSizes returns faults for the jobs of this replica whose command and environment exceed the kernel's size limit. It uses the environment of this
// process, and ignores files that it cannot read.
func checkSizes(ctx context.Context, cfg *config.Config, accounts *process.Accounts) error {
	const reading = 5 * time.Second // for all files together, because one may be on a hanging mount
	ctx, cancel := context.WithTimeout(ctx, reading)
	defer cancel()
	var faults config.Faults
	labels := scheduler.Labels(cfg.Replica.Labels)
	for i := range cfg.Jobs {
		job := &cfg.Jobs[i]
		if !job.Enabled || job.HTTP != nil || !labels.Include(job.Where) { // this replica runs no command of the job, and the files of the job may be on a hanging mount
			continue
		}
		spec := replica.Environment(cfg, job, &scheduler.Run{Job: job.Name})
		spec.Accounts = accounts
		if silent := cfg.Unchecked[spec.EnvFile] || slices.ContainsFunc(slices.Collect(maps.Values(spec.EnvFromFile)), func(name string) bool { return cfg.Unchecked[name] }); silent {
			spec.EnvFile, spec.EnvFromFile = "", nil
		}
		env, err := process.Environment(ctx, spec)
		if err != nil { // check the size without files that cannot be read
			spec.EnvFile, spec.EnvFromFile = "", nil
			env, err = process.Environment(ctx, spec)
		}
		if err == nil {
			err = process.CheckSize(job.Command, env)
		}
		if errors.Is(err, process.ErrTooLong) {
			faults = append(faults, config.Fault{File: job.File, Line: job.Line, Column: 1, Message: fmt.Sprintf("job %s: %v", job.Name, err)})
		}
	}
	if len(faults) > 0 {
		return append(faults, cfg.Warnings...)
	}
	return nil
}

// directoryAccounts returns the users of jobs that are only in the directory service. The check of the configuration has already warned of unknown users.
func directoryAccounts(cfg *config.Config, from *process.Accounts) map[string]string {
	accounts := map[string]string{}
	for i := range cfg.Jobs {
		name := cfg.Jobs[i].User
		if name == "" || accounts[name] != "" {
			continue
		}
		if account, err := from.Sources(name, cfg.Jobs[i].Group); err == nil && strings.Contains(account, "getent") {
			accounts[name] = account
		}
	}
	return accounts
}

func (s streams) printCheck(c checked, asJSON bool) error {
	if asJSON {
		return s.printJSON(c)
	}
	for _, f := range c.Faults {
		kind := ""
		if f.Warning {
			kind = "warning: "
		}
		fmt.Fprintf(s.out, "%s:%d:%d: %s%s\n", f.File, f.Line, f.Column, kind, f.Message)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Accounts)) {
		fmt.Fprintf(s.out, "user %s: %s\n", name, c.Accounts[name])
	}
	for _, name := range c.Everywhere {
		fmt.Fprintf(s.out, "job %s: runs each tick on every replica\n", name)
	}
	if c.OK {
		fmt.Fprintf(s.out, "%s: ok, %s\n", c.Path, units.Count(c.Jobs, "job"))
	}
	return nil
}

// firstJobs is the configuration that init writes.
//
//go:embed init.toml
var firstJobs string

func newInitCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "init [PATH]",
		Short:   "Write a commented jobs.toml to start from",
		Example: "  cronclave init && cronclave run --embedded-redis",
		Args:    cobra.MaximumNArgs(1),

		ValidArgsFunction: tomlFiles,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := a.takePath(args); err != nil {
				return err
			}
			path, _ := a.configFile()
			return a.writeFirstJobs(path)
		},
	}
}

// writeFirstJobs writes the configuration to a new file. It never overwrites a file.
func (s streams) writeFirstJobs(path string) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // the file has no secrets, and other users may read it
	switch {
	case errors.Is(err, fs.ErrExist):
		return usageError("%s is there already; name another file: cronclave init PATH", path)
	case err != nil:
		return fmt.Errorf("write a configuration: %w", err)
	}
	_, err = f.WriteString(firstJobs)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write a configuration: %w", errors.Join(err, os.Remove(path))) // init removes the incomplete file, because the next init would not overwrite it
	}
	fmt.Fprintf(s.out, "wrote %[1]s; look at it, and try it without a Redis: cronclave run %[1]q --embedded-redis\n", path)
	return nil
}

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
				if j.Everywhere {
					fmt.Fprintf(a.err, "job %s runs each tick on every replica\n", j.Name)
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
		job := byName[name]
		if of, replica := journal.InstanceOf(name); replica != "" && byName[of] != nil && byName[of].Everywhere {
			job = byName[of]
		}
		if job == nil {
			return nil, noJob(name, namesOf(cfg))
		}
		jobs = append(jobs, job)
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
