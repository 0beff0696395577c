//go:build linux || darwin

package command

import (
	"context"
	"syscall"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
)

// tree is the processes of one run, as far as the machine can hold them. The methods that signal are only
// called while the leader is unreaped.
type tree interface {
	// place makes the leader start inside.
	place(*syscall.SysProcAttr)
	// describe says what the warden has to know of the tree.
	describe(*Watched)
	// missing returns an error if a part of the tree was removed, so that no process can start in it any more.
	missing() error
	// terminate sends SIGTERM to every process, once.
	terminate(leader int)
	// kill sends SIGKILL to every process.
	kill(leader int)
	// alive returns whether a process other than the unreaped leader is left.
	alive(leader int) bool
	// left returns the programs of the processes that outlive the leader, which is dead and unreaped.
	left(leader int) []string
	// settle waits, once the tree was killed and the leader reaped, until every process is dead.
	settle(leader int)
	// starved returns whether the kernel has killed a process of the tree since memory was short.
	starved() bool
	// remove gives back what the tree held. Nothing runs in it.
	remove()
}

// poll asks done at growing intervals, and every 50 ms at least, until it says yes or ctx ends.
func poll(ctx context.Context, done func() bool) {
	for pause := backoff.New(500*time.Microsecond, 50*time.Millisecond); !done() && pause.Wait(ctx); {
	}
}
