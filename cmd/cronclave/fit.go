package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cronclave/cronclave/internal/command"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/scheduler"
)

// fit tells what this machine can't give to the jobs that this replica may run, as far as its host knows.
func fit(cfg *config.Config, check func(command.Spec) error) error {
	labels := scheduler.Labels(cfg.Replica.Labels)
	var faults []error
	for i := range cfg.Jobs {
		if j := &cfg.Jobs[i]; j.Enabled && labels.Include(j.Where) {
			faults = append(faults, fitJob(j, check))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return exitError{exitUsage, err}
	}
	return nil
}

func fitJob(j *config.Job, check func(command.Spec) error) error {
	err := check(command.Spec{Nice: j.Nice, Limits: command.Limits(j.Limits)})
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s:%d: job %s: %s; remove that, or keep the job to other replicas by where", j.File, j.Line, j.Name,
		strings.ReplaceAll(err.Error(), "\n", "; "))
}

// labelled writes labels as zone=a, rack=7.
func labelled(labels map[string]string) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		list = append(list, name+"="+labels[name])
	}
	return strings.Join(list, ", ")
}

// limitsOf writes a job's limits as 1GiB of memory, 200 processes and threads.
func limitsOf(l config.Limits) string {
	var list []string
	if l.Memory > 0 {
		list = append(list, inUnits(l.Memory)+" of memory")
	}
	if l.Pids > 0 {
		list = append(list, fmt.Sprintf("%d processes and threads", l.Pids))
	}
	return strings.Join(list, ", ")
}

// inUnits writes a size as a configuration has it.
func inUnits(n int64) string {
	unit := 0
	for ; unit < 3 && n%1024 == 0; unit++ {
		n /= 1024
	}
	return fmt.Sprint(n, []string{"B", "KiB", "MiB", "GiB"}[unit])
}
