package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/units"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// Job is one job with its defaults filled in. Relative paths are resolved against the folder of the file that contains them. The digest depends on the order
// of the fields, including the fields of embedded structs.
type Job struct {
	Name        string
	File        string // the file that defines the job
	Line        int
	Description string
	Tags        []string
	Enabled     bool
	Ticks
	Program
	Slots
	Times
	Output Output
	// Retry limits the attempts after a failed run. The zero value permits none.
	Retry Retry `json:",omitzero"`
	// Recover is the maximum number of attempts, after the first one, for a tick whose run was interrupted. 0 permits none.
	Recover int `json:",omitempty"`

	// Digest identifies the meaning of the job: see [Config.Digest].
	Digest string
}

// Ticks defines the instants at which a job runs.
type Ticks struct {
	// After lists the jobs after which this job runs, sorted by name. Such a job has no Schedule, and its Spec is nil.
	After []string `json:",omitempty"`
	// Schedule has the cron expressions with their variables replaced. Spec is their parsed form in the zone Location.
	Schedule []string
	Spec     *cronspec.Schedule
	Location *time.Location
	// Except has the expressions of `except`, and ExceptDates the days of its calendars, sorted. The job does not run at these instants. StartsAt and
	// ExpiresAt bound the ticks; they are zero if not set. These fields are left out of the digest, because Spec includes them.
	Except      []string  `json:"-"`
	ExceptDates []string  `json:"-"`
	StartsAt    time.Time `json:"-"`
	ExpiresAt   time.Time `json:"-"`
}

// Program defines the command of a run, with its user, limits and environment.
type Program struct {
	// Command is a program with its arguments. If Shell is true, it is the shell with its arguments, followed by the script.
	Command []string
	Shell   bool
	// Dir is the working directory; "" means the replica's.
	Dir string
	Environment
	User, Group string
	// NoNewPrivs is nil if not set: see [Program.KeepsPrivileges].
	NoNewPrivs *bool `json:",omitempty"`
	// Umask is the file mode creation mask; nil means the replica's.
	Umask       *uint32
	OKExitCodes []int
	// Nice is the scheduling priority; nil means the replica's. It is left out of the digest if it is nil, so that old configurations keep their digests.
	Nice   *int   `json:",omitempty"`
	Limits Limits `json:",omitzero"`
}

// Environment defines the environment of a command.
type Environment struct {
	// Env maps variables to values, and EnvFromFile maps variables to files that contain the value. No variable is in both.
	Env         map[string]string
	EnvFile     string
	EnvFromFile map[string]string
	InheritEnv  bool
	// EnvTaken is the set of environment variables that the job's own `env` uses.
	EnvTaken map[string]bool
	// EnvComposed is the set of variables in Env whose values use the environment.
	EnvComposed map[string]bool `json:"-"`
}

// Slots limits the number of concurrent runs of a job, and the replicas that may run it.
type Slots struct {
	// Where has the labels that a replica needs for this job. If it is empty, any replica may run the job.
	Where map[string]string `json:",omitempty"`

	Parallel, PerTick, PerReplica int
	// Pool is the name of the pool in which each run needs a slot, or "". PoolSlots is the total number of slots in the pool.
	Pool      string `json:",omitempty"`
	PoolSlots int    `json:",omitempty"`
	// Overlap is "" (skip), "queue" or "replace".
	Overlap string `json:",omitempty"`
}

// Times bounds the start of a tick, the duration of its run, and the duration of its lease.
type Times struct {
	// CatchUp is "" (none), "latest" or "all". CatchUpWindow is zero if CatchUp is "".
	CatchUp       string        `json:",omitempty"`
	CatchUpWindow time.Duration `json:",omitempty"`
	// StartDeadline is the delay after which a tick is missed. 0 means "auto": the time until the job's next tick, but at most 1h; for a job with overlap
	// "queue", 1h.
	StartDeadline time.Duration
	// Timeout is the maximum duration of a run. 0 means "none".
	Timeout                  time.Duration
	KillGrace, Lease, Jitter time.Duration
	// OutlivesLease is true for `on_lease_lost = "continue"`. It is left out of the digest if it is false, so that old configurations keep their digests.
	OutlivesLease bool `json:",omitempty"`
}

// KeepsPrivileges reports whether the programs that the command executes are denied additional rights, for example by a set-user-ID bit. The result is
// no_new_privs if that key is set. Otherwise it is true if the job sets a user.
func (p *Program) KeepsPrivileges() bool {
	if p.NoNewPrivs != nil {
		return *p.NoNewPrivs
	}
	return p.User != ""
}

// Retry limits the attempts after a failed run.
type Retry struct {
	// Max is the maximum number of attempts after the first one.
	Max int
	// Delay is the pause before the second attempt. The pause doubles with each attempt, up to MaxDelay. 0 means not set.
	Delay, MaxDelay time.Duration
}

// Limits bounds the resources that all processes of a run use together.
type Limits struct {
	// Memory is in bytes; 0 means no limit.
	Memory int64 `json:",omitempty"`
	// Pids is the maximum number of processes and threads; 0 means no limit.
	Pids int `json:",omitempty"`
}

// Output configures the output of runs.
type Output struct {
	// Keep is the number of bytes at the end of the output that the history keeps. Defaults to 16 KiB.
	Keep int64
	// Log reports whether the whole output is logged, line by line. Defaults to true.
	Log bool
}

// String formats the limits for display: "1GiB of memory, 200 processes and threads".
func (l Limits) String() string {
	var list []string
	if l.Memory > 0 {
		list = append(list, units.FormatSize(l.Memory)+" of memory")
	}
	if l.Pids > 0 {
		list = append(list, fmt.Sprintf("%d processes and threads", l.Pids))
	}
	return strings.Join(list, ", ")
}
