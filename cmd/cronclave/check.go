package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/internal/command"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/console"
)

func newCheckCommand(a *app) *cobra.Command {
	var strict, asJSON, noEnv bool
	cmd := &cobra.Command{
		Use:     "check [PATH]",
		Short:   "Validate a configuration: every fault at once, each with its place",
		Example: "  cronclave check jobs.toml",
		Args:    cobra.MaximumNArgs(1),

		ValidArgsFunction: tomlFiles,
		RunE: func(_ *cobra.Command, args []string) error {
			path, _ := a.configFile()
			if len(args) > 0 {
				path = args[0]
			}
			return a.check(path, config.Options{KeepUnset: noEnv, Trust: trustOfRoot(), Rights: command.Rights, Machine: !noEnv}, strict, asJSON)
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "warnings are faults")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&noEnv, "no-env", false, "for another machine: do not report ${VARIABLES} that are not set, nor users, folders and files of jobs that are not here")
	return cmd
}

// checked is the JSON of check.
type checked struct {
	Path string `json:"path"`
	OK   bool   `json:"ok"`
	Jobs int    `json:"jobs"`
	// ZoneData is the version of the time zones by which jobs have ticks; "" for a faulty configuration.
	ZoneData string         `json:"zone_data,omitempty"`
	Faults   []checkedFault `json:"faults"`
}

type checkedFault struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
	Warning bool   `json:"warning"`
}

func (a *app) check(path string, o config.Options, strict, asJSON bool) error {
	cfg, err := config.Load(path, o)
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
	if err := a.printCheck(result, asJSON); err != nil {
		return err
	}
	if !result.OK {
		return exitError{code: exitUsage}
	}
	return nil
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
	if c.OK {
		fmt.Fprintf(s.out, "%s: ok, %s\n", c.Path, console.Count(c.Jobs, "job"))
	}
	return nil
}
