// Package command runs one execution of a command as a tree of processes, and promises that the whole
// tree is dead when [Host.Run] returns.
//
// A job's command is rarely one process: shells fork, daemons leave their session, and a pipeline goes on
// when its first member is killed. Exclusivity ("at most parallel runs") is worth nothing if a grandchild
// writes on after the lease was released, so the unit here is the tree. Two means hold it together:
//
//   - A cgroup (version 2) for each run, where the machine lets us make one. The command is born inside it,
//     so nothing it forks can get out by setsid or by a double fork. One write to cgroup.kill ends it all.
//   - A process group for each run, always. Without cgroups it is all there is: a grandchild that made a
//     session of its own escapes SIGTERM. After the run its orphans are handed to us, because the replica is
//     a subreaper, and those that carry this run's CRONCLAVE_RUN_ID in their environment are killed. One that
//     cleared its environment, or runs as a user whom we may not inspect, gets away.
//
// The leader of the group, which is the command itself, stays unreaped (a zombie) until its group was
// killed: as long as it is there, the kernel gives its number to no other process and the signal can't hit a
// stranger.
//
// This package can't keep the promise when the replica dies or stands still. That is the job of a helper process
// outside of the replica, the [Warden]. A Host with a warden registers each run there before the command starts.
//
// Production is on Linux. On macOS there are process groups only; elsewhere [NewHost] refuses.
package command

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Errors of a command that could not be started, for errors.Is. A shell's exit codes for them are 127 and 126, see [Exit.Status].
var (
	// ErrNotFound says that there is no such command.
	ErrNotFound = errors.New("command not found")
	// ErrNotExecutable says that the command is there, but the system won't execute it.
	ErrNotExecutable = errors.New("command can't be executed")
	// ErrNice says that the command's priority can't be set: it is above the replica's own, which takes a privilege.
	ErrNice = errors.New("the priority can't be set")
	// ErrLimits says that this machine can't limit what a run takes.
	ErrLimits = errors.New("limits can't be kept on this machine")
	// ErrUserLimit says that the command's user has as many processes as that user may have.
	ErrUserLimit = errors.New("the user's limit of processes is reached")
	// ErrNotStarted says that the command was not started, and that this is not its fault: the machine lacks something for it (file descriptors, processes,
	// memory), there is no warden, or the start was given up. Nothing of it has begun.
	ErrNotStarted = errors.New("not started")
	// ErrNotSupported says that this platform runs no commands.
	ErrNotSupported = errors.New("running commands is not supported on this platform")
)

// HostConfig is what a [Host] needs.
type HostConfig struct {
	// Logger gets the messages that belong to no single run, such as a cgroup that could not be made. Defaults to none.
	Logger hclog.Logger
	// Warden ends runs in this process' place. Defaults to none: then runs outlive a process that is killed.
	Warden Warden
}

// Spec describes one execution of a command.
type Spec struct {
	// Name is the run's id, which no other run has at the time. The run's cgroup is called after it. Where
	// Env has it as CRONCLAVE_RUN_ID and there are no cgroups, an orphan that has it too is taken as this
	// run's.
	Name string
	// Job is the job's name, for the log.
	Job string
	// Argv is the command and its arguments. A command with a slash is a path, relative to Dir; one without
	// is looked up in the PATH of Env (not the replica's), whose empty and relative entries are passed over.
	Argv []string
	// Dir is the working directory. Defaults to the replica's.
	Dir string
	// Env is the whole environment, as NAME=value. See [Environment].
	Env []string
	// User and Group are whom the command runs as, by name or by number. A User without a Group gets its
	// primary group; either way it gets its own supplementary groups and none of the replica's. A Group
	// without a User replaces the primary group only. Default to the replica's.
	User, Group string
	// NoNewPrivs keeps programs that the command executes from getting more rights than it has, by a set-user-ID bit or capabilities of a file. Only Linux can.
	NoNewPrivs bool
	// Umask is the command's file mode creation mask. Defaults to the replica's.
	Umask *uint32
	// Nice is the command's priority, from -20 (goes first) to 19 (goes last). Defaults to the replica's.
	Nice *int
	// Limits are what the command may take together with all processes that come from it. Default to none.
	Limits Limits
	// Lease is what the run must not outlive, and KillGrace the time between SIGTERM and SIGKILL before its end, as far as a third
	// of the lease allows. They are for the [Warden]: stop and kill are up to the caller. Lease defaults to none. KillGrace also
	// bounds the time that processes have which the command leaves behind.
	Lease     Lease
	KillGrace time.Duration
	// Begin is called when all is prepared and the next step is the start; an error keeps the command from being started. Started is called when it was started.
	// Either may be nil.
	Begin   func() error
	Started func()
	// Keep is how many bytes of the output's end [Exit.Tail] has. Defaults to none.
	Keep int64
	// Line gets each line of the output without its newline, stream being "stdout" or "stderr". Lines longer
	// than 64 KiB come in pieces. It is called from one goroutine at a time, never after Run has returned,
	// and must not keep line. May be nil.
	Line func(stream string, line []byte)
	// Attached hands this process' own stdin, stdout and stderr to the command, in place of an empty stdin and of Keep and Line.
	// Where this process has a terminal the command may use it, and is stopped (Ctrl-Z) and continued together with this process.
	Attached bool
	// account describes the entries of User and Group, as found at the start.
	account string
	// Signals are passed on to the command's process group, as a terminal does with that of Ctrl-C. May be nil.
	Signals <-chan os.Signal
}

// Limits bound what the processes of a run may take together. The kernel keeps them, by the run's cgroup: see [Host.Check].
type Limits struct {
	// Memory is in bytes. A run that needs more is killed as a whole: [Exit.OutOfMemory]. Its memory is not swapped out. 0 is no limit.
	Memory int64
	// Pids is the number of processes and threads; beyond it fork fails. 0 is no limit.
	Pids int
}

// Exit is how a run ended.
type Exit struct {
	// Code is the command's exit code, 0 to 255; -1 if a signal ended it or if it never started.
	Code int
	// Signal is the name of the signal that ended the command, such as "SIGKILL"; else "".
	Signal string
	// Late says that the [Warden] has stopped the run, or killed it, or kept it from being started, since its lease was about to end:
	// then how it ended is none of the command's doing.
	Late bool
	// Killed is when the [Warden] has killed the run; zero if it has not. This process may have stood still since.
	Killed time.Time
	// Left names the programs of the processes that the command left behind when it ended by itself. They got SIGTERM, and SIGKILL a little later.
	Left []string
	// OutOfMemory says that the kernel has killed processes of a run that did not end well, since memory was short: that of its Limits, or what
	// a cgroup around it has.
	OutOfMemory bool
	// OOMKills is the number of processes of this process's cgroup that the kernel has killed for memory while the run took place, if that did not end well.
	// They may have been other runs'.
	OOMKills int64
	// Tail is the end of the output, at most Spec.Keep bytes, both streams in the order of their lines.
	Tail []byte
	// Cut is how many bytes of output were before the Tail, if any is kept.
	Cut int64
	// Err says why the command could not be started, or not be waited for. It wraps [ErrNotFound] or [ErrNotExecutable] where
	// that is the reason.
	Err error
}

// Status is the exit code by which a shell reports such an end: the command's own, 128+N where signal N ended it, 127 where it was not found, 126
// where it can't be executed, and 1 where it could not be started for another reason.
func (e Exit) Status() int {
	switch {
	case errors.Is(e.Err, ErrNotFound):
		return 127
	case errors.Is(e.Err, ErrNotExecutable):
		return 126
	case e.Err != nil:
		return 1
	case e.Signal != "":
		return 128 + signalNumber(e.Signal)
	}
	return e.Code
}

// refused is the end of a run that never started.
func refused(err error) Exit { return Exit{Code: -1, Err: err} }

// fromNumbered reads the name of a signal that has none of its own, such as SIG42; 0 if it is none.
func fromNumbered(name string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(name, "SIG"))
	if err != nil {
		return 0
	}
	return n
}
