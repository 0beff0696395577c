//go:build linux || darwin

package process

import (
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/cronclave/cronclave/internal/proc"
)

// stuck counts starts that hang in the kernel and were abandoned. While such a start hangs, its command is not started again, so each command has at most one
// hanging process.
type stuck struct {
	mu   sync.Mutex
	all  map[string]int // number of hanging starts by key
	work sync.WaitGroup
}

// startKey identifies the program and the folder at which a start may hang.
func startKey(cmd *exec.Cmd) string { return cmd.Path + "\x00" + cmd.Dir }

// holdStart counts a start until gone returns. gone must wait for the processes of the start.
func (s *stuck) holdStart(key string, gone func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]int{}
	}
	s.all[key]++
	s.work.Go(func() {
		gone()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.all[key]--; s.all[key] == 0 {
			delete(s.all, key)
		}
	})
}

func (s *stuck) has(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[key] > 0
}

// wait waits for all hanging starts, at most for the time most, and reports whether they have ended.
func (s *stuck) wait(most time.Duration) bool {
	gone := make(chan struct{})
	go func() {
		s.work.Wait()
		close(gone)
	}()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-gone:
		return true
	case <-timer.C:
		return false
	}
}

// stillHangs is the error of an abandoned start that still hangs. The tree is removed when the start ends: see [Host.leaveHanging].
type stillHangs struct{ error }

// Unwrap returns the wrapped error.
func (s stillHangs) Unwrap() error { return s.error }

// hangError returns the error of a start that hangs or hung.
func hangError(cmd *exec.Cmd, how string) error {
	where := []string{"executing " + cmd.Path + proc.OnMount(cmd.Path)}
	if cmd.Dir != "" {
		where = append(where, "in "+cmd.Dir+proc.OnMount(cmd.Dir))
	}
	return fmt.Errorf("%w: %s %s", ErrNotStarted, strings.Join(where, " "), how)
}
