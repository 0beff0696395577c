package process

import (
	"context"
	"time"
)

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
	// Deadline is the time on CLOCK_BOOTTIME at which the run must be dead; 0 means no deadline. SIGTERM is sent before Deadline: earlier by Grace or by a
	// third of Lease, whichever is less.
	Deadline, Lease, Grace time.Duration
}

// Ward is a run that is registered with a [Warden]. Only Known and Reap block.
type Ward interface {
	// Known waits until the warden has confirmed the run and the deadline set so far. The run must not start earlier. If ctx ends, Known returns an error.
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

// Lease bounds the life of a run, even if this process can't end the run.
type Lease interface {
	// Length returns the full duration of the lease after a grant or a renewal.
	Length() time.Duration
	// Deadline returns the time on CLOCK_BOOTTIME at which the lease ends if it is not extended.
	Deadline() time.Duration
	// OnExtend calls f with each new deadline until stop is called.
	OnExtend(f func(deadline time.Duration)) (stop func())
}
