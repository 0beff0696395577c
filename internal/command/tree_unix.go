//go:build linux || darwin

package command

import (
	"context"
	"syscall"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
)

// tree is the processes of one run. The methods that send signals are only called while the leader is unreaped.
type tree interface {
	// place makes the leader start in the tree.
	place(*syscall.SysProcAttr)
	// describe adds what the warden needs to find the tree.
	describe(*Watched)
	// missing returns an error if a part of the tree was removed, so that no process can start in it.
	missing() error
	// terminate sends SIGTERM to every process, once.
	terminate(leader int)
	// kill sends SIGKILL to every process.
	kill(leader int)
	// alive reports whether a process other than the unreaped leader is alive.
	alive(leader int) bool
	// left returns the programs of the processes that outlive the leader, which is dead and unreaped.
	left(leader int) []string
	// settle waits, once the tree was killed and the leader reaped, until every process is dead.
	settle(leader int)
	// starved reports whether the kernel has killed a process of the tree because memory was short.
	starved() bool
	// remove releases the resources of the tree. Nothing runs in it.
	remove()
}

// poll calls done at growing intervals of at most 50 ms, until it returns true or ctx ends.
func poll(ctx context.Context, done func() bool) {
	for pause := backoff.New(500*time.Microsecond, 50*time.Millisecond); !done() && pause.Wait(ctx); {
	}
}
