// Package process runs a command as a tree of processes. When [Host.Run] returns, the whole tree is dead.
//
// A job's command is rarely one process: shells fork, daemons leave their session, and a pipeline continues after its first member was killed. A lease would
// not guarantee exclusivity (at most `parallel` runs) if a grandchild still wrote after the release. So a run is a tree of processes, and two mechanisms keep
// track of them:
//
//   - A cgroup (version 2) for each run, if the machine permits it. The command starts in it, so its descendants can't escape by setsid or by a double fork.
//     One write to cgroup.kill kills them all.
//   - A process group for each run, always. Without cgroups, a grandchild with a session of its own is not in the group. The replica is a subreaper: when
//     the parent of such a process dies, the replica becomes its parent. At the end of the run, the replica kills the process if its environment has the
//     CRONCLAVE_RUN_ID of the run. A process escapes if it has cleared its environment, or if it runs as a user whose processes the replica may not inspect.
//
// The leader of the group is the command itself. It stays unreaped (a zombie) until its group was killed. Until then the kernel does not reuse its PID, so a
// signal to the group can't hit another process.
//
// A replica that is dead or suspended can't kill anything. The [Warden], a helper process outside the replica, then kills the runs. A Host with a warden
// registers each run with the warden before the command starts.
//
// Production use is on Linux. On macOS there are only process groups. On other platforms [NewHost] returns [ErrNotSupported].
package process

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/hashicorp/go-hclog"
)

// Errors of a command that could not be started, for errors.Is. [Exit.Status] has their exit codes.
var (
	// ErrNotFound reports that the command does not exist.
	ErrNotFound = errors.New("command not found")
	// ErrNotExecutable reports that the command exists, but the system can't execute it.
	ErrNotExecutable = errors.New("command can't be executed")
	// ErrNice reports that the command's priority can't be set, because a priority above the replica's own needs a privilege.
	ErrNice = errors.New("the priority can't be set")
	// ErrLimits reports that this machine can't enforce the limits of a run, or that the limits are too low to start the command.
	ErrLimits = errors.New("limits can't be kept on this machine")
	// ErrUserLimit reports that the command's user has as many processes as the kernel permits.
	ErrUserLimit = errors.New("the user's limit of processes is reached")
	// ErrNotStarted reports that the command was not started and is not at fault: the machine lacks file descriptors, processes or memory, the warden is
	// missing, or the start was abandoned. The command has done nothing.
	ErrNotStarted = errors.New("not started")
	// ErrNotSupported reports that commands don't run on this platform.
	ErrNotSupported = errors.New("running commands is not supported on this platform")
)

// HostConfig has the dependencies of a [Host].
type HostConfig struct {
	// Logger gets the messages that belong to no single run, for example about a cgroup that could not be created. nil logs nothing.
	Logger hclog.Logger
	// Warden ends runs if this process can't. nil means no warden: runs then continue after this process is killed.
	Warden Warden
}

// Spec describes one execution of a command.
type Spec struct {
	// Name is the run's id, unique among the runs of this process. The run's cgroup is named after it. Without cgroups, an orphan whose environment has this
	// id as CRONCLAVE_RUN_ID belongs to the run.
	Name string
	// Job is the job's name, for the log.
	Job string
	// Argv is the command and its arguments. A command with a slash is a path, relative to Dir. A command without a slash is looked up in the PATH of Env,
	// not in the replica's PATH; empty and relative entries of PATH are ignored.
	Argv []string
	// Dir is the working directory. Defaults to the replica's.
	Dir string
	// Env is the whole environment, as NAME=value. See [Environment].
	Env []string
	// User and Group name the user and the group of the command, by name or by number; they default to the replica's. A User without a Group gets its
	// primary group. A User always gets its own supplementary groups, and not the replica's. A Group without a User replaces only the primary group.
	User, Group string
	// NoNewPrivs denies the command's programs additional rights from a set-user-ID bit or from file capabilities. Linux only.
	NoNewPrivs bool
	// Umask is the command's file mode creation mask. Defaults to the replica's.
	Umask *uint32
	// Nice is the command's priority, from -20 (highest) to 19 (lowest). Defaults to the replica's.
	Nice *int
	// Limits bound the resources of the command and of all its descendants. Default to none.
	Limits Limits
	// Lease bounds the life of the run; nil sets no bound. KillGrace is the time between SIGTERM and SIGKILL before the lease ends, at most a third of the
	// lease. Both are for the [Warden]; the contexts stop and kill of [Host.Run] are independent of the lease. KillGrace also bounds the time between SIGTERM
	// and SIGKILL for processes that the command leaves behind.
	Lease     Lease
	KillGrace time.Duration
	// Begin is called immediately before the start. If it returns an error, the command is not started. Started is called after the start. Both may be nil.
	Begin   func() error
	Started func()
	// Keep is the number of bytes that [Exit.Tail] keeps of the end of the output. Defaults to 0.
	Keep int64
	// Line receives each line of the output without its newline; stream is "stdout" or "stderr". Lines longer than 64 KiB come in pieces. Calls do not
	// overlap, and none comes after Run has returned. Line must not keep the slice. May be nil.
	Line func(stream string, line []byte)
	// Attached gives this process's own stdin, stdout and stderr to the command; Keep and Line are then ignored. If this process has a terminal, the command
	// may use it. Ctrl-Z then stops the command and, on Linux, this process.
	Attached bool
	// account describes the result of looking up User and Group, for the log.
	account string
	// Signals are passed on to the command's process group, as a terminal sends SIGINT to its foreground group on Ctrl-C. May be nil.
	Signals <-chan os.Signal
}

// Limits bound the total resources of a run's processes. The kernel enforces them in the run's cgroup: see [Host.Check].
type Limits struct {
	// Memory is the maximum in bytes, without swap; 0 means no limit. If a run needs more, the kernel kills all its processes: see [Exit.OutOfMemory].
	Memory int64
	// Pids is the maximum number of processes and threads; 0 means no limit. At the limit, fork fails.
	Pids int
}

// Exit is the result of a run.
type Exit struct {
	// Code is the command's exit code, 0 to 255; -1 if a signal ended it or if it never started.
	Code int
	// Signal is the name of the signal that ended the command, such as "SIGKILL", or "".
	Signal string
	// Late reports whether the [Warden] stopped or killed the run, or prevented its start, because its lease was about to end. Code and Signal then do not
	// show a failure of the command itself.
	Late bool
	// Killed is the time at which the [Warden] killed the run, or zero. It may be long before the return of [Host.Run], if this process was suspended.
	Killed time.Time
	// Left lists the programs of processes that were still running when the command exited by itself. They got SIGTERM, and SIGKILL a little later.
	Left []string
	// OutOfMemory reports whether the kernel killed processes of a failed run because memory was short, either in the run's own cgroup or in one above it.
	OutOfMemory bool
	// OOMKills is the number of processes in this process's cgroup that the kernel killed for memory during a failed run. They may belong to other runs.
	OOMKills int64
	// Tail is the end of the output, at most Spec.Keep bytes. Lines of stdout and stderr are in the order in which they were read.
	Tail []byte
	// Cut is the number of bytes of output before Tail, or 0 if Spec.Keep is 0.
	Cut int64
	// Err is the error that prevented the start or the wait, such as [ErrNotFound] or [ErrNotExecutable], or nil.
	Err error
}

// Status returns the exit code that a shell would report: the command's own code, 128+N after signal N, 127 if the command was not found, 126 if it
// can't be executed, and 1 if it could not be started for another reason.
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

func refusedExit(err error) Exit { return Exit{Code: -1, Err: err} }

// fromNumbered returns the number of a signal that has no name, such as 42 for SIG42. It returns 0 for any other text.
func fromNumbered(name string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(name, "SIG"))
	if err != nil {
		return 0
	}
	return n
}

// Warden is a helper process that kills the processes of runs if this process can't, because it is dead, or suspended until a lease has ended. It is safe for
// concurrent use.
type Warden interface {
	// Inherit makes the warden remove a cgroup once this process is gone. The warden itself may be in that cgroup.
	Inherit(cgroup string)
	// Watch registers a run and returns at once. The run may start after [Ward.Known] has returned nil.
	Watch(r Watched) Ward
}

// Watched describes a run to a [Warden] before the run starts.
type Watched struct {
	// Name is the run's id, Job the name of its job.
	Name, Job string
	// ID is the CRONCLAVE_RUN_ID by which the run's processes are found, or "".
	ID string
	// Cgroup is the directory of the run's cgroup, or "".
	Cgroup string
	// Deadline is the time on CLOCK_BOOTTIME at which the run must be dead; 0 means no deadline. The warden sends SIGTERM at Deadline minus Grace, or at
	// Deadline minus a third of Lease if that is later.
	Deadline, Lease, Grace time.Duration
}

// Ward is a run that is registered with a [Warden]. Only Known and Reap block.
type Ward interface {
	// Known waits until the warden has confirmed the run. The run must not start earlier. If ctx ends, Known returns an error.
	Known(ctx context.Context) error
	// Started reports the PID of the leader of the run's process group to the warden.
	Started(leader int)
	// Extend moves the deadline.
	Extend(deadline time.Duration)
	// Told informs the warden that the tree got SIGTERM.
	Told()
	// Reap waits until the warden no longer signals the leader's PID, so that the leader may be reaped. late reports whether the warden stopped or killed the
	// run because its deadline was near. ago is the time since the warden killed the run, or 0.
	Reap() (late bool, ago time.Duration)
	// Release informs the warden that no process of the run is left.
	Release()
}

// Lease is the lease of a run. The [Warden] ends the run before the lease ends, if this process can't.
type Lease interface {
	// Length returns the full duration of the lease after a grant or a renewal.
	Length() time.Duration
	// Deadline returns the time on CLOCK_BOOTTIME at which the lease ends if it is not extended.
	Deadline() time.Duration
	// OnExtend calls f with each new deadline until stop is called.
	OnExtend(f func(deadline time.Duration)) (stop func())
}

const mostPrograms = 5

// ListPrograms lists programs for display, each program once and at most five: "git, sleep (3), ...". A process chooses its own name, so unprintable
// characters are replaced by question marks.
func ListPrograms(programs []string) string {
	count := map[string]int{}
	for _, p := range programs {
		count[strings.Map(visibleRune, p)]++
	}
	names := slices.Sorted(maps.Keys(count))
	more := len(names) > mostPrograms
	names = names[:min(len(names), mostPrograms)]
	for i, name := range names {
		if n := count[name]; n > 1 {
			names[i] = fmt.Sprintf("%s (%d)", name, n)
		}
	}
	if more {
		names = append(names, "...")
	}
	return strings.Join(names, ", ")
}

func visibleRune(r rune) rune {
	if unicode.IsGraphic(r) && r != unicode.ReplacementChar {
		return r
	}
	return '?'
}
