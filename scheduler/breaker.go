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
	// A replica that cannot start programs probes again after a pause, which doubles from the first value to the last.
	firstStartPause, lastStartPause = time.Second, time.Minute
	// probeTimeout bounds one probe, because starting a program may hang.
	probeTimeout = 10 * time.Second
)

// A breaker is a circuit breaker. It stops this replica from claiming while its machine cannot start programs: it opens if a run could not begin for
// lack of a resource, or its start hung, and a probe fails too. It probes again after growing pauses and closes when a probe succeeds. Meanwhile the
// other replicas claim the ticks.
type breaker struct {
	log   hclog.Logger
	probe func() error // may be nil; then the breaker closes after one pause
	life  context.Context

	mu    sync.Mutex
	under *probing      // the probe under way, or nil
	fault string        // the reason for which the breaker is open; "" while it is closed
	pause time.Duration // the last pause; 0 once a program was started
}

// A probing is one probe. Every caller that asks while it is under way gets its result.
type probing struct {
	done chan struct{} // closed when err is set
	err  error
}

// openReason returns the reason for which no program can be started now, or "" if none is known.
func (b *breaker) openReason() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fault
}

// noteStarted records that a program was started, so that the next pause is the shortest again.
func (b *breaker) noteStarted() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fault == "" {
		b.pause = 0
	}
}

// probeStart returns an error if a probe shows that programs cannot be started. Concurrent calls share one probe.
func (b *breaker) probeStart() error {
	if b.probe == nil {
		return nil
	}
	under := b.beginProbe()
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

// beginProbe starts a probe unless one is under way, and returns the one under way.
func (b *breaker) beginProbe() *probing {
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

// noteFailedStart records a start that hung, or that failed for lack of a resource. It reports whether the whole replica is affected, because a probe fails
// too. Without a probe, a start that hung is blamed on its job.
func (b *breaker) noteFailedStart(err error) (open bool) {
	switch {
	case b.openReason() != "":
		return true
	case b.probe != nil:
		err = b.probeStart()
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
		b.lengthenPause()
		b.log.Warn("cannot start programs; claims suspended", "error", err, "retry_in", b.pause.String())
		go b.retryProbe(time.Now(), b.pause)
	}
	return true
}

// lengthenPause doubles the pause, within its bounds. The caller holds mu.
func (b *breaker) lengthenPause() time.Duration {
	b.pause = min(max(2*b.pause, firstStartPause), lastStartPause)
	return b.pause
}

// retryProbe probes again after growing pauses, and closes the breaker when a probe succeeds.
func (b *breaker) retryProbe(since time.Time, pause time.Duration) {
	for backoff.Sleep(b.life, pause) {
		err := b.probeStart()
		b.mu.Lock()
		if err == nil {
			b.fault = ""
			b.mu.Unlock()
			b.log.Info("programs start again; claims resumed", "after", time.Since(since).Round(time.Millisecond).String())
			return
		}
		b.fault, pause = fmt.Sprint(err), b.lengthenPause()
		b.mu.Unlock()
		b.log.Debug("still cannot start programs", "error", err, "retry_in", pause.String())
	}
}

// A startBackoffs holds the jobs whose last start failed on this replica: the reason, and the pause for which the job is left to the other replicas.
type startBackoffs struct {
	mu    sync.Mutex
	byJob map[string]failedStart
}

type failedStart struct {
	pause time.Duration
	why   string
}

// nextPause records a failed start of a job and returns the pause before the next start.
func (p *startBackoffs) nextPause(job string, why error) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byJob == nil {
		p.byJob = map[string]failedStart{}
	}
	pause := min(max(2*p.byJob[job].pause, firstStartPause), lastStartPause)
	p.byJob[job] = failedStart{pause, why.Error()}
	return pause
}

// clearFailure records that the job was started.
func (p *startBackoffs) clearFailure(job string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.byJob, job)
}

// failureOf returns the reason for which the last start of a job failed, or "" if it did not fail.
func (p *startBackoffs) failureOf(job string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byJob[job].why
}

// failedJobs returns the jobs whose last start failed, with the reasons.
func (p *startBackoffs) failedJobs() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	jobs := map[string]string{}
	for job, f := range p.byJob {
		jobs[job] = f.why
	}
	return jobs
}
