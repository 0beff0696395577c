package replica

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/process"
	"github.com/cronclave/cronclave/internal/warden"
	"github.com/cronclave/cronclave/internal/web"
	"github.com/cronclave/cronclave/scheduler"
)

// Processes runs the commands of jobs. If this process dies or freezes, the warden kills the commands.
type Processes struct {
	// Host runs the commands.
	Host   *process.Host
	warden *warden.Warden
	log    hclog.Logger
}

// A WardenLog is the destination of the warden's log after this process is gone. Its zero value logs nothing.
type WardenLog struct {
	Stderr *os.File
	JSON   bool
}

// StartProcesses starts the warden. [Processes.Close] ends it.
func StartProcesses(log hclog.Logger, own WardenLog) (*Processes, error) {
	p := &Processes{log: log}
	var err error
	if p.warden, err = warden.Start(warden.Config{Logger: log, Stderr: own.Stderr, JSON: own.JSON}); err != nil {
		return nil, err
	}
	if p.Host, err = process.NewHost(process.HostConfig{Logger: log, Warden: watchman{p.warden}}); err != nil {
		p.Close()
		return nil, fmt.Errorf("prepare to run commands: %w", err)
	}
	return p, nil
}

// Close ends the warden. Call it after the last run has ended.
func (p *Processes) Close() {
	if p.Host != nil {
		if err := p.Host.Close(); err != nil {
			p.log.Warn("cleanup after commands failed", "error", err)
		}
	}
	p.warden.Close()
}

// watchWarden waits until the warden is gone and cannot be started again, and then calls drain. If ctx ends first, it returns without a call.
func (p *Processes) watchWarden(ctx context.Context, drain func(cause error)) {
	select {
	case <-p.warden.Failed():
		p.log.Error("draining: warden cannot be started", "error", p.warden.Err())
		drain(p.warden.Err())
	case <-ctx.Done():
	}
}

// A watchman adapts a warden to the interface of package process.
type watchman struct{ *warden.Warden }

// Watch registers a run.
func (w watchman) Watch(r process.Watched) process.Ward { return w.Warden.Watch(warden.Run(r)) }

const (
	// filesOfRun is the number of open files per run: the ends of two pipes, the process, and the cgroup with two of its files.
	filesOfRun = 6
	// filesOfReplica is the number of open files for everything else: connections to Redis, the warden, a start in progress (four more files than a run), and
	// reads of /proc.
	filesOfReplica = 120
	// filesOfServer is the number of open files for the HTTP server: its clients' connections, and its own connections to Redis.
	filesOfServer = web.MaxConnections + 64
	// processesOfReplica is the number of threads of the replica and its warden, which count as processes.
	processesOfReplica = 64
)

// resourceLimits are the limits that the system sets for this process; 0 means no limit.
type resourceLimits struct{ files, processes int }

func (l resourceLimits) withServer() resourceLimits {
	if l.files > 0 {
		l.files = max(l.files-filesOfServer, 1)
	}
	return l
}

func limitsFor(server bool) resourceLimits {
	if server {
		return limitsOfProcess().withServer()
	}
	return limitsOfProcess()
}

// fittingRuns returns the number of runs that the limits allow, at least 1 and at most wanted.
func (l resourceLimits) fittingRuns(wanted int) int {
	fit := wanted
	if l.files > 0 {
		fit = min(fit, (l.files-filesOfReplica)/filesOfRun)
	}
	if l.processes > 0 {
		fit = min(fit, l.processes-processesOfReplica)
	}
	return max(fit, 1)
}

// maxRunning returns the maximum number of runs on this replica. If the limits of the system allow fewer than configured, it returns that number and logs a
// warning.
func maxRunning(wanted int, limits resourceLimits, log hclog.Logger) int {
	fit := limits.fittingRuns(wanted)
	if fit < wanted {
		log.Warn("max_running exceeds what the limits of this process allow; running fewer jobs at once", "max_running", wanted, "fits", fit,
			"open_files", limits.files, "open_files_needed", filesOfReplica+wanted*filesOfRun,
			"processes", limits.processes, "processes_needed", processesOfReplica+wanted,
			"remedy", "raise ulimit -n and -u (LimitNOFILE= and LimitNPROC= of systemd), or lower [replica].max_running")
	}
	return fit
}

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

// A UsageError is an error that a retry does not remedy: a fault of the configuration, a machine that does not fit the configuration, or data of a newer
// version.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e UsageError) Unwrap() error { return e.Err }
