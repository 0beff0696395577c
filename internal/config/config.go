// Package config reads jobs.toml: TOML in, typed values out, and when anything is wrong then all of it at once, each
// fault with its file, line and column.
//
// A configuration is a file, or a folder of *.toml files, and what they include; all of them are one configuration,
// in which every setting and every job has one place. Reading goes in three steps:
//
//   - Each file is decoded by the TOML library, and a small scanner finds where in the text each key and value stands
//     (the library keeps no positions of what it has decoded).
//   - Each value is read by the entry for its key in a table of its section. A key without an entry is a fault, with
//     the nearest known key suggested; one that is specified and does not work yet is a fault that says so.
//     A faulty value is noted and left out, and reading goes on.
//   - Each job starts from [defaults], takes its own keys, and is checked as a whole.
//
// The package does not look at the machine: whether a user, a folder or a program exists is found out where it is used. With
// [Options.Trust] it checks the owners of the files. It reads the environment, for ${NAME} in strings, and no message contains a value from there; and the clock,
// for the warning of a job that has expired.
package config

import (
	"fmt"
	"os"
	"time"

	"github.com/cronclave/cronclave/internal/safefile"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// Options say how Load reads.
type Options struct {
	// Env looks a variable up; nil is the process's environment.
	Env func(name string) (value string, set bool)
	// KeepUnset takes a variable that is not set as given: ${NAME} stays as it is written, and what it stands in is
	// not checked. Such a configuration is good for checking only; a job's Spec may be nil in it.
	KeepUnset bool
	// Files, if set, gets the names of all files and folders that were looked at, also if there are faults.
	Files *Files
	// Trust says whose files are read: those of the configuration, and of those that it names. Where it judges, secrets that others
	// may read are a warning.
	Trust safefile.Trust
	// Rights looks up with whose rights a job's files are opened; nil, as its result, is this process's own.
	Rights func(user, group string) (*safefile.Identity, error)
	// Now is the instant by which a job has expired; nil is time.Now.
	Now func() time.Time
}

// MaxLease is the longest `lease`: that of package locking, which this one does not know.
const MaxLease = 24 * time.Hour

// DefaultNamespace is the cluster's name where none is set.
const DefaultNamespace = "default"

// Config is a configuration without faults.
type Config struct {
	// Namespace is the cluster's name; DefaultNamespace if not set.
	Namespace string
	// Timezone is the zone of jobs that name none; UTC if not set.
	Timezone *time.Location
	Redis    Redis
	Replica  Replica
	History  History
	// Heartbeat has no URL if the configuration names none.
	Heartbeat Heartbeat
	// Server has no address if the configuration names none.
	Server Server
	// Pools are the semaphores that jobs and locks share, by their names.
	Pools map[string]Pool
	// Jobs are sorted by name; those with `enabled = false` are among them.
	Jobs []Job
	// Warnings are about values that are accepted, but hardly meant.
	Warnings Faults
	// EnvTaken holds the names of the variables that were taken from the environment outside all jobs' own `env`.
	EnvTaken map[string]bool
	// Trust is that of the Options.
	Trust safefile.Trust
}

// Redis says where the coordinating Redis is.
type Redis struct {
	// URL is what [ParseRedisURL] accepts; "" if the configuration names none. It may hold a password.
	URL string
	// Quorum are the URLs of independent masters for leases, an odd number, 3 at least; URL keeps the history then. nil if not set.
	Quorum []string
	// PasswordFile is a file with the password; "" for none.
	PasswordFile string
	// TLS is nil unless [redis].tls is set.
	TLS *TLS
	// AckedReplicas is how many replicas must have a grant or a renewal before it counts; 0 if not set.
	AckedReplicas int
	// AckTimeout is how long they have for it; 100ms if not set.
	AckTimeout time.Duration
}

// TLS holds the names of PEM files, and the name that the server's certificate must be for; each may be "".
type TLS struct {
	CAFile, CertFile, KeyFile, ServerName string
}

// Replica says how much a replica takes on, and how it stops.
type Replica struct {
	// DrainTimeout is how long SIGTERM waits for running jobs, their grace included; 25s if not set.
	DrainTimeout time.Duration
	// MaxRunning is how many runs a replica has at once; 100 if not set.
	MaxRunning int
	// Labels are matched by the `where` of jobs; none if not set.
	Labels map[string]string
}

// History says what Redis keeps for each job.
type History struct {
	// Runs is the number of runs; 50 if not set.
	Runs int
	// MaxAge is how old they become; 30 days if not set.
	MaxAge time.Duration
	// MaxBytes bounds the output of a job's runs together; 1 MiB if not set.
	MaxBytes int64
}

// Pool is a semaphore.
type Pool struct {
	// Slots is how many may be in it at once.
	Slots int
}

// Job is one job with its defaults filled in. Paths that the configuration gives as relative ones have become relative
// to the folder of the file that names them.
type Job struct {
	Name        string
	File        string // where it is defined
	Line        int
	Description string
	Tags        []string
	Enabled     bool

	// After names the jobs that it runs after, sorted; then it has no Schedule, and Spec is nil.
	After []string `json:",omitempty"`
	// Schedule holds the expressions as they are written, and Spec what they mean, in Location.
	Schedule []string
	Spec     *cronspec.Schedule
	Location *time.Location
	// Except holds the expressions of `except`, and ExceptDates the days of its calendars, sorted: their instants are no ticks.
	// StartsAt and ExpiresAt bound the ticks; they are zero if not set. (Spec has it all, and so has the digest.)
	Except      []string  `json:"-"`
	ExceptDates []string  `json:"-"`
	StartsAt    time.Time `json:"-"`
	ExpiresAt   time.Time `json:"-"`

	// Command is the list form, or the shell's list and then the string. Shell is true for the latter.
	Command []string
	Shell   bool
	// Dir is the working directory; "" is the replica's.
	Dir string
	// Env and EnvFromFile (a variable's name and the file with its value) have no name in common.
	Env         map[string]string
	EnvFile     string
	EnvFromFile map[string]string
	InheritEnv  bool
	// EnvTaken holds the names of the variables that the job's own `env` took from the environment.
	EnvTaken map[string]bool
	// EnvComposed holds the names of those of Env whose values have such a variable in them.
	EnvComposed map[string]bool `json:"-"`
	User, Group string
	// NoNewPrivs is nil where the job does not say: see [Job.KeepsPrivileges].
	NoNewPrivs *bool `json:",omitempty"`
	// Umask is nil where the job keeps the replica's.
	Umask       *uint32
	OKExitCodes []int
	// Nice is nil where the job keeps the replica's. (Digests contain it only if it is set, as before the key existed.)
	Nice   *int   `json:",omitempty"`
	Limits Limits `json:",omitzero"`
	// Where are the labels that a replica must have to run the job; none: any replica may.
	Where map[string]string `json:",omitempty"`

	Parallel, PerTick, PerReplica int
	// Pool is the name of the pool of which each run needs a slot, "" for none; PoolSlots is how many it has.
	Pool      string `json:",omitempty"`
	PoolSlots int    `json:",omitempty"`
	// Overlap is "" for skip, "queue" or "replace".
	Overlap string `json:",omitempty"`
	// CatchUp is "" for none, "latest" or "all"; CatchUpWindow is zero without it.
	CatchUp       string        `json:",omitempty"`
	CatchUpWindow time.Duration `json:",omitempty"`
	// StartDeadline is 0 for "auto": until the job's next tick, at most 1h; of a job that queues 1h.
	StartDeadline time.Duration
	// Timeout is 0 for "none".
	Timeout                  time.Duration
	KillGrace, Lease, Jitter time.Duration
	// OutlivesLease is true for `on_lease_lost = "continue"`. (A digest has it only then, as it was before there was the key.)
	OutlivesLease bool `json:",omitempty"`
	Output        Output

	// Retry says how often a run that failed is tried again; the zero value is not at all.
	Retry Retry `json:",omitzero"`
	// Recover is how many more attempts than the first a tick may have whose run was interrupted; 0 is none.
	Recover int `json:",omitempty"`

	// Digest identifies what the job means; see [Config.Digest].
	Digest string
}

// Retry says how a run that failed is tried again.
type Retry struct {
	// Max is how many more tries there are at most.
	Max int
	// Delay lies before the first of them, and doubles with each, up to MaxDelay; 0 if not set.
	Delay, MaxDelay time.Duration
}

// Limits bound what a run may take, with all its processes.
type Limits struct {
	// Memory is in bytes; 0 for no limit.
	Memory int64 `json:",omitempty"`
	// Pids is the number of processes and threads; 0 for no limit.
	Pids int `json:",omitempty"`
}

// Output configures the handling of a run's output.
type Output struct {
	// Keep is how many bytes of the tail the history gets; 16 KiB if not set.
	Keep int64
	// Log is whether all of it goes to the log, line by line; true if not set.
	Log bool
}

// Load reads the configuration at path, which is a file or a folder of *.toml files. If anything is wrong with it the
// error is [Faults]: all faults, and the warnings among them.
func Load(path string, o Options) (*Config, error) {
	if o.Env == nil {
		o.Env = os.LookupEnv
	}
	r := newReader(o)
	r.load(path)
	c := r.config()
	r.noteExcess()
	faults, warnings := r.faults.sorted(r.order).split()
	if len(faults) > 0 {
		return nil, append(faults, warnings...).sorted(r.order)
	}
	c.Warnings, c.Trust = warnings, o.Trust
	return c, nil
}

// noteExcess says that there are more faults than are reported.
func (r *reader) noteExcess() {
	if more := r.count.faults - maxFaults; more > 0 && len(r.faults) > 0 {
		r.faults = append(r.faults, Fault{File: r.faults[0].File, Line: 1, Column: 1,
			Message: fmt.Sprintf("more than %d faults; these are the first that were found", maxFaults)})
	}
}

// EnabledJobs returns the jobs that have ticks, in the order of the configuration.
func (c *Config) EnabledJobs() []*Job {
	var jobs []*Job
	for i := range c.Jobs {
		if c.Jobs[i].Enabled {
			jobs = append(jobs, &c.Jobs[i])
		}
	}
	return jobs
}

// Withheld returns the names of the variables that the job does not inherit: all that the configuration took from the
// environment, but for those that nothing except the job's own `env` took.
func (c *Config) Withheld(j *Job) map[string]bool {
	names := make(map[string]bool)
	for name := range c.EnvTaken {
		names[name] = true
	}
	for i := range c.Jobs {
		if c.Jobs[i].Name == j.Name {
			continue
		}
		for name := range c.Jobs[i].EnvTaken {
			names[name] = true
		}
	}
	return names
}
