package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/units"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// Job is one job with its defaults filled in. Relative paths are resolved against the folder of the file that names them. The order of the fields,
// including the fields of the embedded parts, determines the digest.
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
	// Retry limits the tries after a failed run. The zero value permits none.
	Retry Retry `json:",omitzero"`
	// Recover is the maximum number of attempts after the first for a tick whose run was interrupted. 0 permits none.
	Recover int `json:",omitempty"`

	// Digest identifies the meaning of the job: see [Config.Digest].
	Digest string
}

// Ticks define the instants at which a job runs.
type Ticks struct {
	// After has the names of the jobs that this job runs after, sorted. Such a job has no Schedule, and its Spec is nil.
	After []string `json:",omitempty"`
	// Schedule has the expressions as they are written. Spec is their parsed form in the zone Location.
	Schedule []string
	Spec     *cronspec.Schedule
	Location *time.Location
	// Except has the expressions of `except`, ExceptDates the days of its calendars, sorted. Their instants are no ticks. StartsAt and ExpiresAt bound
	// the ticks; they are zero if not set. The digest does not need these fields, because Spec includes them.
	Except      []string  `json:"-"`
	ExceptDates []string  `json:"-"`
	StartsAt    time.Time `json:"-"`
	ExpiresAt   time.Time `json:"-"`
}

// Program defines what a run executes, with which user, limits and environment.
type Program struct {
	// Command is a program with its arguments. If Shell is true, it is the shell with its arguments, followed by the script.
	Command []string
	Shell   bool
	// Dir is the working directory. "" is the replica's.
	Dir string
	Environment
	User, Group string
	// NoNewPrivs is nil if not set: see [Program.KeepsPrivileges].
	NoNewPrivs *bool `json:",omitempty"`
	// Umask is nil for the replica's.
	Umask       *uint32
	OKExitCodes []int
	// Nice is nil for the replica's. Digests contain it only if it is set, as before the key existed.
	Nice   *int   `json:",omitempty"`
	Limits Limits `json:",omitzero"`
}

// Environment defines the environment of a command.
type Environment struct {
	// Env maps variables to values, EnvFromFile to files with the value. They have no name in common.
	Env         map[string]string
	EnvFile     string
	EnvFromFile map[string]string
	InheritEnv  bool
	// EnvTaken has the names of the environment variables that the job's own `env` uses.
	EnvTaken map[string]bool
	// EnvComposed has the names of the variables in Env whose values use such a variable.
	EnvComposed map[string]bool `json:"-"`
}

// Slots limit the number of a job's runs and the replicas that may run it.
type Slots struct {
	// Where has the labels that a replica needs to run the job. Any replica may run a job without labels.
	Where map[string]string `json:",omitempty"`

	Parallel, PerTick, PerReplica int
	// Pool is the name of the pool in which each run needs a slot, or "". PoolSlots is the number of slots in the pool.
	Pool      string `json:",omitempty"`
	PoolSlots int    `json:",omitempty"`
	// Overlap is "" (skip), "queue" or "replace".
	Overlap string `json:",omitempty"`
}

// Times bound the start of a tick and the duration of its run and its lease.
type Times struct {
	// CatchUp is "" (none), "latest" or "all". CatchUpWindow is zero without it.
	CatchUp       string        `json:",omitempty"`
	CatchUpWindow time.Duration `json:",omitempty"`
	// StartDeadline is 0 for "auto": until the job's next tick, but at most 1h. For a job with overlap "queue" it is 1h.
	StartDeadline time.Duration
	// Timeout is 0 for "none".
	Timeout                  time.Duration
	KillGrace, Lease, Jitter time.Duration
	// OutlivesLease is true for `on_lease_lost = "continue"`. Digests contain it only then, as before the key existed.
	OutlivesLease bool `json:",omitempty"`
}

// KeepsPrivileges reports whether programs that the command executes are denied additional rights, for example by a set-user-ID bit. It is
// no_new_privs if that is set; otherwise it is true if the job has a user.
func (p *Program) KeepsPrivileges() bool {
	if p.NoNewPrivs != nil {
		return *p.NoNewPrivs
	}
	return p.User != ""
}

// Retry limits the tries after a failed run.
type Retry struct {
	// Max is the maximum number of tries after the first.
	Max int
	// Delay is the pause before the first of them. It doubles with each try, up to MaxDelay. 0 if not set.
	Delay, MaxDelay time.Duration
}

// Limits bound the resources of a run with all its processes.
type Limits struct {
	// Memory is in bytes; 0 for no limit.
	Memory int64 `json:",omitempty"`
	// Pids is the number of processes and threads; 0 for no limit.
	Pids int `json:",omitempty"`
}

// Output configures the output of runs.
type Output struct {
	// Keep is the number of bytes of the output's end that the history keeps. Defaults to 16 KiB.
	Keep int64
	// Log enables logging of the whole output, line by line. Defaults to true.
	Log bool
}

// String formats the limits for people: "1GiB of memory, 200 processes and threads".
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
