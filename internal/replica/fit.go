package replica

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/process"
	"github.com/cronclave/cronclave/scheduler"
)

// checkFit returns an error that lists the jobs with settings that this machine can't provide, such as limits. It checks the jobs that this replica may run.
// check finds the faults of one job.
func checkFit(cfg *config.Config, check func(process.Spec) error) error {
	labels := scheduler.Labels(cfg.Replica.Labels)
	var faults []error
	for i := range cfg.Jobs {
		if j := &cfg.Jobs[i]; j.Enabled && labels.Include(j.Where) {
			faults = append(faults, fitJob(j, check))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return UsageError{err}
	}
	return nil
}

func fitJob(j *config.Job, check func(process.Spec) error) error {
	err := check(process.Spec{Nice: j.Nice, Limits: process.Limits(j.Limits)})
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s:%d: job %s: %s; remove that, or restrict the job to other replicas with where", j.File, j.Line, j.Name,
		strings.ReplaceAll(err.Error(), "\n", "; "))
}
