package replica

import (
	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/web"
)

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

// withServer returns the limits minus the files that the HTTP server needs.
func (l resourceLimits) withServer() resourceLimits {
	if l.files > 0 {
		l.files = max(l.files-filesOfServer, 1)
	}
	return l
}

// limitsFor returns the limits of this process, minus the files of the HTTP server if the replica has one.
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
