//go:build linux || darwin

package command

import (
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/cronclave/cronclave/internal/proc"
)

// stuck has the starts that hang in the kernel and were given up. While one hangs its command is not started again, so that each command has one such process at most.
type stuck struct {
	mu   sync.Mutex
	all  map[string]int // their number, by their key
	work sync.WaitGroup
}

// startKey identifies what a start may hang at.
func startKey(cmd *exec.Cmd) string { return cmd.Path + "\x00" + cmd.Dir }

// hold keeps a start until gone, which waits for its processes, has returned.
func (s *stuck) hold(key string, gone func()) {
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

// wait returns whether all are gone within a time.
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

// stillHangs is the error of a start that was left to itself. Its tree belongs to it until it is gone: see [Host.leave].
type stillHangs struct{ error }

// Unwrap returns the error in it.
func (s stillHangs) Unwrap() error { return s.error }

// hanging is the error of a start that did not return.
func hanging(cmd *exec.Cmd, how string) error {
	where := []string{"executing " + cmd.Path + proc.OnMount(cmd.Path)}
	if cmd.Dir != "" {
		where = append(where, "in "+cmd.Dir+proc.OnMount(cmd.Dir))
	}
	return fmt.Errorf("%w: %s %s", ErrNotStarted, strings.Join(where, " "), how)
}
