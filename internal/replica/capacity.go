package replica

import (
	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/httpapi"
)

const (
	// filesOfRun is how many files a run has open here: the ends of its two pipes, its process, and its cgroup with two files of that.
	filesOfRun = 6
	// filesOfReplica is for all else: connections to Redis, the warden, a start that is under way (four more than a run has), looks at /proc.
	filesOfReplica = 120
	// filesOfServer is for the connections of [server], and for its own to Redis.
	filesOfServer = httpapi.MaxConnections + 64
	// processesOfReplica is for its threads and its warden's, which count as processes.
	processesOfReplica = 64
)

// resourceLimits are the system's limits of this process; 0 is no limit.
type resourceLimits struct{ files, processes int }

// withServer leaves room for the connections of a server.
func (l resourceLimits) withServer() resourceLimits {
	if l.files > 0 {
		l.files = max(l.files-filesOfServer, 1)
	}
	return l
}

// limitsFor are the limits of this process, less the room for a server if it has one.
func limitsFor(server bool) resourceLimits {
	if server {
		return limitsOfProcess().withServer()
	}
	return limitsOfProcess()
}

// fits is how many runs the limits leave room for, at most so many as are wanted, and one at least.
func (l resourceLimits) fits(wanted int) int {
	fit := wanted
	if l.files > 0 {
		fit = min(fit, (l.files-filesOfReplica)/filesOfRun)
	}
	if l.processes > 0 {
		fit = min(fit, l.processes-processesOfReplica)
	}
	return max(fit, 1)
}

// maxRunning is how many runs this replica has at most: as configured, or as many as the limits of the system leave room for, which it warns of.
func maxRunning(wanted int, limits resourceLimits, log hclog.Logger) int {
	fit := limits.fits(wanted)
	if fit < wanted {
		log.Warn("max_running exceeds what the limits of this process allow; running fewer jobs at once", "max_running", wanted, "fits", fit,
			"open_files", limits.files, "open_files_needed", filesOfReplica+wanted*filesOfRun,
			"processes", limits.processes, "processes_needed", processesOfReplica+wanted,
			"remedy", "raise ulimit -n and -u (LimitNOFILE= and LimitNPROC= of systemd), or lower [replica].max_running")
	}
	return fit
}
