package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/units"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// Job is one job with its defaults filled in. Paths that the configuration gives as relative ones have become relative
// to the folder of the file that names them. (The order of the fields, with those of the parts, is that of the digest.)
type Job struct {
	Name        string
	File        string // where it is defined
	Line        int
	Description string
	Tags        []string
	Enabled     bool
	Ticks
	Program
	Slots
	Times
	Output Output
	// Retry says how often a run that failed is tried again; the zero value is not at all.
	Retry Retry `json:",omitzero"`
	// Recover is how many more attempts than the first a tick may have whose run was interrupted; 0 is none.
	Recover int `json:",omitempty"`

	// Digest identifies what the job means; see [Config.Digest].
	Digest string
}

// Ticks say at which instants a job is to run.
type Ticks struct {
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
}

// Program is what a run executes, as which user, and with what of the machine.
type Program struct {
	// Command is the list form, or the shell's list and then the string. Shell is true for the latter.
	Command []string
	Shell   bool
	// Dir is the working directory; "" is the replica's.
	Dir string
	Environment
	User, Group string
	// NoNewPrivs is nil where the job does not say: see [Program.KeepsPrivileges].
	NoNewPrivs *bool `json:",omitempty"`
	// Umask is nil where the job keeps the replica's.
	Umask       *uint32
	OKExitCodes []int
	// Nice is nil where the job keeps the replica's. (Digests contain it only if it is set, as before the key existed.)
	Nice   *int   `json:",omitempty"`
	Limits Limits `json:",omitzero"`
}

// Environment is that of a command.
type Environment struct {
	// Env and EnvFromFile (a variable's name and the file with its value) have no name in common.
	Env         map[string]string
	EnvFile     string
	EnvFromFile map[string]string
	InheritEnv  bool
	// EnvTaken holds the names of the variables that the job's own `env` took from the environment.
	EnvTaken map[string]bool
	// EnvComposed holds the names of those of Env whose values have such a variable in them.
	EnvComposed map[string]bool `json:"-"`
}

// Slots say where a job runs, and how many of its runs there are at once.
type Slots struct {
	// Where are the labels that a replica must have to run the job; none: any replica may.
	Where map[string]string `json:",omitempty"`

	Parallel, PerTick, PerReplica int
	// Pool is the name of the pool of which each run needs a slot, "" for none; PoolSlots is how many it has.
	Pool      string `json:",omitempty"`
	PoolSlots int    `json:",omitempty"`
	// Overlap is "" for skip, "queue" or "replace".
	Overlap string `json:",omitempty"`
}

// Times bound when a tick may start, and how long its run and its lease last.
type Times struct {
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
}

// KeepsPrivileges returns whether programs that the command executes get no more rights than the command has, as by a set-user-ID bit. no_new_privs
// sets it; by default it is true where the job has a user.
func (p *Program) KeepsPrivileges() bool {
	if p.NoNewPrivs != nil {
		return *p.NoNewPrivs
	}
	return p.User != ""
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

// String writes limits as 1GiB of memory, 200 processes and threads.
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
