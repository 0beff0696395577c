//go:build linux || darwin

package process

import (
	"context"
	"syscall"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
)

// tree is the set of processes of one run. The methods that send signals may be called only while the leader is unreaped.
type tree interface {
	// placeLeader makes the leader start in the tree.
	placeLeader(*syscall.SysProcAttr)
	// describe adds what the warden needs to find the tree.
	describe(*Watched)
	// missingPart returns an error if a part of the tree was removed, which prevents any start in it.
	missingPart() error
	// terminate sends SIGTERM to every process, once.
	terminate(leader int)
	// kill sends SIGKILL to every process.
	kill(leader int)
	// membersAlive reports whether a process other than the unreaped leader is alive.
	membersAlive(leader int) bool
	// leftPrograms returns the programs of the processes that outlive the leader, which is dead and unreaped.
	leftPrograms(leader int) []string
	// awaitDeath waits until every process is dead. It is called after the tree was killed and the leader reaped.
	awaitDeath(leader int)
	// outOfMemory reports whether the kernel has killed a process of the tree because memory was short.
	outOfMemory() bool
	// remove releases the resources of the tree. No process may be in it.
	remove()
}

// pollUntil calls done at growing intervals of at most 50 ms, until it returns true or ctx ends.
func pollUntil(ctx context.Context, done func() bool) {
	for pause := backoff.New(500*time.Microsecond, 50*time.Millisecond); !done() && pause.Wait(ctx); {
	}
}
