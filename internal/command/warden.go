package command

import (
	"context"
	"time"
)

// Warden is a process beside this one that ends the processes of runs where this one can't: because it is gone, or because it
// stands still until a lease has ended. It is safe for concurrent use.
type Warden interface {
	// Inherit has a cgroup removed once this process is gone. The warden may be in it itself.
	Inherit(cgroup string)
	// Watch has a run watched, and returns at once: the run may start when [Ward.Known] says so.
	Watch(r Watched) Ward
}

// Watched is what a [Warden] has to know of a run before it starts.
type Watched struct {
	// Name is the run's, and Job its job's.
	Name, Job string
	// ID is the CRONCLAVE_RUN_ID by which the run's processes are to be told; "" if they are not.
	ID string
	// Cgroup is the directory of the run's cgroup; "" if it has none.
	Cgroup string
	// Deadline is when the run must be dead, by CLOCK_BOOTTIME; 0 for no such instant. Before it the tree has min(Grace, Lease/3)
	// from SIGTERM on.
	Deadline, Lease, Grace time.Duration
}

// Ward is a run that a [Warden] watches. None of its methods but Known and Reap waits for anything.
type Ward interface {
	// Known returns when the warden knows of the run and of its deadline so far; only then the run may start. ctx ends the wait.
	Known(ctx context.Context) error
	// Started passes on the leader of the run's process group.
	Started(leader int)
	// Extend moves the deadline.
	Extend(deadline time.Duration)
	// Told says that the tree has had its SIGTERM.
	Told()
	// Reap returns when the leader's number is not signalled any more, so that the leader may be waited for. late reports whether the
	// warden has stopped the run, or killed it, since its deadline was near. ago is the time since it has killed the run; 0 if it has not.
	Reap() (late bool, ago time.Duration)
	// Release says that nothing is left of the run.
	Release()
}

// Lease bounds a run also when this process can't end it any more.
type Lease interface {
	// Length is how long it lasts without an extension.
	Length() time.Duration
	// Deadline is when it ends if no extension comes, by CLOCK_BOOTTIME.
	Deadline() time.Duration
	// OnExtend has f called with each new deadline, until stop is called.
	OnExtend(f func(deadline time.Duration)) (stop func())
}
