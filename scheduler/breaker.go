package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/backoff"
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

// why returns why no program can be started at present; "" if as far as is known they can be.
func (b *breaker) why() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fault
}

// started notes that a program was started.
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

var errStartHangs = errors.New("a test program did not start in time")

// failed records a start that hung, or failed for want of a resource. It returns whether the whole replica is concerned: then a probe fails, too. Without a
// probe a start that hung counts as a fault of its job.
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
		b.log.Warn("cannot start programs; claims suspended", "error", err, "retry_in", b.pause.String())
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
	for backoff.Sleep(b.life, pause) {
		err := b.check()
		b.mu.Lock()
		if err == nil {
			b.fault = ""
			b.mu.Unlock()
			b.log.Info("programs start again; claims resumed", "after", time.Since(since).Round(time.Millisecond).String())
			return
		}
		b.fault, pause = fmt.Sprint(err), b.lengthen()
		b.mu.Unlock()
		b.log.Debug("still cannot start programs", "error", err, "retry_in", pause.String())
	}
}

// startBackoffs has, per job, how long this replica leaves the job to the others after a start of it failed, and why it did.
type startBackoffs struct {
	mu    sync.Mutex
	byJob map[string]failedStart
}

type failedStart struct {
	pause time.Duration
	why   string
}

// next is the pause after one more start of a job that did not work.
func (p *startBackoffs) next(job string, why error) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byJob == nil {
		p.byJob = map[string]failedStart{}
	}
	pause := min(max(2*p.byJob[job].pause, firstStartPause), lastStartPause)
	p.byJob[job] = failedStart{pause, why.Error()}
	return pause
}

// reset notes that the job was started.
func (p *startBackoffs) reset(job string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.byJob, job)
}

// why returns why the last start of a job did not work; "" if it did.
func (p *startBackoffs) why(job string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byJob[job].why
}

// all returns the jobs whose last start did not work, and why.
func (p *startBackoffs) all() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	jobs := map[string]string{}
	for job, f := range p.byJob {
		jobs[job] = f.why
	}
	return jobs
}
