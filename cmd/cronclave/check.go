package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/process"
	"github.com/cronclave/cronclave/internal/replica"
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
	// Accounts has, by name, the users of jobs that are only in the directory service and not in /etc/passwd. The value is the entry of the user.
	Accounts map[string]string `json:"accounts,omitempty"`
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
		if !job.Enabled || !labels.Include(job.Where) { // check does not read the files of this job, which may be on a hanging mount
			continue
		}
		spec := replica.Environment(cfg, job, &scheduler.Run{Job: job.Name})
		spec.Accounts = accounts
		if silent := cfg.Unchecked[spec.EnvFile] || slices.ContainsFunc(slices.Collect(maps.Values(spec.EnvFromFile)), func(name string) bool { return cfg.Unchecked[name] }); silent {
			spec.EnvFile, spec.EnvFromFile = "", nil
		}
		env, err := process.Environment(ctx, spec)
		if err != nil { // another check warns of the unreadable file
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
	if c.OK {
		fmt.Fprintf(s.out, "%s: ok, %s\n", c.Path, console.Count(c.Jobs, "job"))
	}
	return nil
}
