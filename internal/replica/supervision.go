package replica

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/sdnotify"
)

const (
	// statusEvery is the interval at which the line of `systemctl status` is compared with the state of the replica.
	statusEvery = 10 * time.Second
	// longestIteration is the least time without an iteration of the scheduler's loop after which the loop counts as hanging. The loop sleeps for 2 s at most.
	longestIteration = 5 * time.Second
	// drainMargin is the time that a drain may take beyond drain_timeout: 9 s if Redis does not answer, and a margin.
	drainMargin = 15 * time.Second
)

// supervision reports the state of the replica to its service manager. Without one, it sends nothing.
type supervision struct {
	to  sdnotify.Notifier
	log hclog.Logger
	// sinceIteration returns the time since the last iteration of the scheduler's loop. ok is false if the loop has not begun.
	sinceIteration func() (since time.Duration, ok bool)
	// describe returns the state of the replica in one line.
	describe func() string

	mu       sync.Mutex
	stopping bool // no message may follow that takes back STOPPING=1
	failed   bool // the failure of a message was logged
}

func (s *supervision) sendState(assignments ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopping {
		s.sendLocked(assignments...)
	}
}

func (s *supervision) sendLocked(assignments ...string) {
	err := s.to.Send(assignments...)
	if err != nil && !s.failed {
		s.log.Warn("the service manager does not take messages, and may end this replica", "error", err)
	}
	s.failed = err != nil
}

// announceReload reports that a reload begins. The caller calls done when the reload has ended, with or without success.
func (s *supervision) announceReload() (done func()) {
	s.sendState(sdnotify.Reloading()...)
	return func() { s.sendState(sdnotify.Ready) }
}

// announceDrain reports that the replica stops, and asks for the time that a drain may take.
func (s *supervision) announceDrain(drainTimeout time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sendLocked(sdnotify.Stopping, sdnotify.Status("draining: the last runs have "+drainTimeout.String()), sdnotify.ExtendTimeout(drainTimeout+drainMargin))
	s.stopping = true
}

// runWatchdog reports twice in the time of the watchdog that the scheduler works, until ctx ends. It reports nothing while the scheduler's loop hangs, so that
// the service manager ends the replica, and the jobs run elsewhere.
func (s *supervision) runWatchdog(ctx context.Context) {
	every := s.to.Watchdog() / 2
	if every <= 0 {
		return
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		since, begun := s.sinceIteration()
		if !begun || since < max(every, longestIteration) {
			s.sendState(sdnotify.Watchdog)
		} else {
			s.log.Error("the scheduler's loop hangs; the watchdog of the service manager ends this replica", "since", since.Round(time.Second).String())
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// runStatus keeps the line of `systemctl status` current, until ctx ends.
func (s *supervision) runStatus(ctx context.Context) {
	if !s.to.Enabled() {
		return
	}
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	for last := ""; ; {
		if now := s.describe(); now != last {
			s.sendState(sdnotify.Status(now))
			last = now
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// describeState returns the state of the replica in one line for the service manager.
func (r *Replica) describeState() string {
	if reason := r.unreadyReason(); reason != "" {
		return reason
	}
	text := fmt.Sprintf("scheduling %d jobs, %d running", len(r.cfg.Load().WrittenJobs()), r.scheduler.Running())
	if r.leads.Load() {
		text += ", leader"
	}
	if r.refused.Load() != nil {
		text += "; a newer configuration was refused"
	}
	return text
}
