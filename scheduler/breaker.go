package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// The pauses of a replica that can't start programs grow from the first to the last.
	firstStartPause, lastStartPause = time.Second, time.Minute
	// probeTimeout bounds a probe, which may hang as a start may.
	probeTimeout = 10 * time.Second
)

// breaker stops this replica from claiming while its machine is not able to start programs, as a circuit breaker does: it opens when a run cannot
// begin for want of a resource, or since its start hangs, and a probe fails too. It probes again after growing pauses, and closes when a probe succeeds. Ticks are left to the other replicas meanwhile.
type breaker struct {
	log   hclog.Logger
	probe func() error // may be nil: then the end of a pause closes it
	life  context.Context

	mu    sync.Mutex
	under *probing      // the probe that is under way; nil if there is none
	fault string        // why it is open; "" while it is closed
	pause time.Duration // the last one; 0 since a program was started
}

// probing is a probe, whose result all have who ask for one meanwhile.
type probing struct {
	done chan struct{} // closed when err is set
	err  error
}

// why tells why no program can be started at present; "" if as far as is known they can be.
func (b *breaker) why() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fault
}

// started is told that a program was started.
func (b *breaker) started() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fault == "" {
		b.pause = 0
	}
}

// check probes whether programs can be started. One probe at most is under way: a call that comes meanwhile waits for the same result.
func (b *breaker) check() error {
	if b.probe == nil {
		return nil
	}
	under := b.begin()
	timer := time.NewTimer(probeTimeout)
	defer timer.Stop()
	select {
	case <-under.done:
		return under.err
	case <-timer.C:
		return errStartHangs
	case <-b.life.Done():
		return b.life.Err()
	}
}

// begin starts a probe, unless one is under way.
func (b *breaker) begin() *probing {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.under == nil {
		under := &probing{done: make(chan struct{})}
		b.under = under
		go func() {
			under.err = b.probe()
			b.mu.Lock()
			b.under = nil
			b.mu.Unlock()
			close(under.done)
		}()
	}
	return b.under
}

var errStartHangs = errors.New("a start hangs")

// failed is told of a start that failed for want of a resource, or hung. It tells whether that concerns the whole replica: a probe fails, too. Without a probe
// a start that hung is taken for a fault of its job.
func (b *breaker) failed(err error) (open bool) {
	switch {
	case b.why() != "":
		return true
	case b.probe != nil:
		err = b.check()
	case errors.Is(err, errStartTimeout):
		err = nil
	}
	if err == nil || b.life.Err() != nil {
		return err != nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fault == "" {
		b.fault = err.Error()
		b.lengthen()
		b.log.Warn("cannot start programs; claiming nothing until that is possible again", "error", err, "retry_in", b.pause.String())
		go b.retry(time.Now(), b.pause)
	}
	return true
}

// lengthen doubles the pause. mu is held.
func (b *breaker) lengthen() time.Duration {
	b.pause = min(max(2*b.pause, firstStartPause), lastStartPause)
	return b.pause
}

// retry closes the breaker when a probe succeeds.
func (b *breaker) retry(since time.Time, pause time.Duration) {
	for {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-b.life.Done():
			timer.Stop()
			return
		}
		err := b.check()
		b.mu.Lock()
		if err == nil {
			b.fault = ""
			b.mu.Unlock()
			b.log.Info("programs can be started again; claiming", "after", time.Since(since).Round(time.Millisecond).String())
			return
		}
		b.fault, pause = fmt.Sprint(err), b.lengthen()
		b.mu.Unlock()
		b.log.Debug("still cannot start programs", "error", err, "retry_in", pause.String())
	}
}

// startPauses are how long this replica leaves jobs to the others that it was not able to start though it can start others.
type startPauses struct {
	mu    sync.Mutex
	byJob map[string]time.Duration
}

// next is the pause after one more start of a job that did not work.
func (p *startPauses) next(job string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byJob == nil {
		p.byJob = map[string]time.Duration{}
	}
	p.byJob[job] = min(max(2*p.byJob[job], firstStartPause), lastStartPause)
	return p.byJob[job]
}

// reset is told that the job was started.
func (p *startPauses) reset(job string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.byJob, job)
}

// Unable tells why this replica claims nothing at present: its machine can't start programs; "" if it can. It may be called at any time.
func (s *Scheduler) Unable() string { return s.exec.breaker.why() }
