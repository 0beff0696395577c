package run

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
	// firstStartPause and lastStartPause bound the pause between two probes, and between two starts of a job that failed to start. The pause doubles each
	// time.
	firstStartPause, lastStartPause = time.Second, time.Minute
	// probeTimeout bounds one probe, because starting a program may hang.
	probeTimeout = 10 * time.Second
)

// A breaker is a circuit breaker that stops this replica from claiming while its machine cannot start programs. It opens if a run could not start,
// because a resource was missing or the start hung, and a probe fails, too. It closes when a later probe succeeds. While it is open, the other
// replicas claim the ticks.
type breaker struct {
	log   hclog.Logger
	probe func() error // starts a test program; if nil, the breaker closes after one pause
	life  context.Context

	mu    sync.Mutex
	under *probing      // the probe under way, or nil
	fault string        // the reason for which the breaker is open; "" while it is closed
	pause time.Duration // the last pause; 0 after a program has started
}

// A probing is one call of the probe. Concurrent callers of probeStart share it and get the same result.
type probing struct {
	done chan struct{} // closed when err is set
	err  error
}

func (b *breaker) openReason() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fault
}

// noteStarted resets the pause of a closed breaker after a program has started.
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

// noteFailedStart handles a start that hung, or that failed because a resource was missing. It reports whether the breaker is open. The breaker opens
// if a probe also fails, because then no program can start on this machine. Without a probe function, a failed start opens the breaker, but a start
// that hung does not, because the fault may lie in the job's own program.
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

// retryProbe repeats the probe until it succeeds and the breaker closes, or until the drain begins.
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

// A startBackoffs has the jobs whose last start on this replica failed. For each job it has the reason, and the pause during which this replica does
// not claim the job.
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

func (p *startBackoffs) clearFailure(job string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.byJob, job)
}
