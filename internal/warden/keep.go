package warden

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
)

// actionTime is the time format for a helper's actions in the log.
const actionTime = "2006-01-02T15:04:05.000Z07:00"

// keepHelper supervises one helper after another until the warden is closed or the helpers keep dying.
func (w *Warden) keepHelper(h *helper) {
	failures := 0
	for {
		begun := time.Now()
		if h != nil {
			w.attendHelper(h)
		}
		if w.life.Err() != nil {
			w.setFailure(ErrClosed)
			return
		}
		if time.Since(begun) >= steady {
			failures = 0
		}
		if failures++; failures > mostFailures {
			w.cfg.Logger.Error("warden keeps dying", "attempts", failures)
			w.setFailure(ErrGone)
			close(w.failed)
			return
		}
		w.pauseBeforeStart(failures)
		var err error
		if h, err = w.launchHelper(); err != nil {
			w.cfg.Logger.Error("warden not started", "error", err)
			continue
		}
		w.setHelper(h, true)
		w.cfg.Logger.Info("warden replaced", "pid", h.pid())
	}
}

// pauseBeforeStart waits before a helper is started. It does not wait after the first failure in a row.
func (w *Warden) pauseBeforeStart(failures int) {
	if failures > 1 {
		backoff.Sleep(w.life, min(firstPause<<(failures-2), lastPause))
	}
}

// attendHelper checks a helper and returns when the helper is dead: it died by itself, was killed because it hung, or was dismissed.
func (w *Warden) attendHelper(h *helper) {
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for alive := true; alive; {
		select {
		case <-w.life.Done():
			h.dismiss()
			alive = false
		case <-h.dead:
			alive = false
		case <-beat.C:
			if h.checkHang() {
				w.cfg.Logger.Warn("warden does not answer; replacing it", "pid", h.pid())
				h.kill()
			}
		}
	}
	w.clearHelper()
	if w.life.Err() != nil {
		w.cfg.Logger.Debug("warden ended", "pid", h.pid(), "state", h.exitState(), "reason", "closed")
	}
	if w.life.Err() == nil {
		w.cfg.Logger.Warn("warden ended; no run starts until it is replaced", "pid", h.pid(), "state", h.exitState(), "said", h.said.String())
	}
}

// clearHelper removes a dead helper and sets ready to false in one step. So no caller sees that the helper is missing while runs may still start.
func (w *Warden) clearHelper() { w.setHelper(nil, false) }

// launchHelper starts a helper, sends it the whole state, and returns when the helper has acknowledged the state.
func (w *Warden) launchHelper() (*helper, error) {
	h, err := startHelper(w.cfg, w.handleReport)
	if err != nil {
		return nil, err
	}
	known := w.sendState(h)
	patience, cancel := context.WithTimeout(w.life, startTime)
	defer cancel()
	select {
	case <-known:
		return h, nil
	case <-h.dead:
		err = fmt.Errorf("it ended: %s: %s", h.exitState(), h.said.String())
	case <-patience.Done():
		h.kill()
		<-h.dead
		err = fmt.Errorf("no answer: %w", patience.Err())
	}
	w.clearHelper()
	return nil, err
}

// sendState sends the whole state to a helper. From then on, the helper receives all changes.
func (w *Warden) sendState(h *helper) (known <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	known = h.send(message{Verb: hello, PID: os.Getpid()})
	for _, base := range w.bases {
		known = h.send(message{Verb: inherit, Cgroup: base})
	}
	for _, ward := range w.wards {
		known = h.send(ward.stateMessage())
	}
	w.helper = h
	return known
}

// handleReport records and logs a helper's report about a run.
func (w *Warden) handleReport(m message) {
	w.mu.Lock()
	if ward := w.wards[m.Run]; ward != nil {
		ward.late = true
		if m.Verb == killed {
			ward.killed = m.At
		}
	}
	w.mu.Unlock()
	// This process may have been suspended since the action, so the log line also contains the time of the action.
	at := time.Now().Add(m.At - bootTime()).UTC().Format(actionTime)
	args := []any{"job", m.Job, "run_id", m.Name, "at", at, "reason", "its lease was about to end, and no extension came"}
	switch m.Verb {
	case stopped:
		w.cfg.Logger.Warn("warden stopped a run", append(args, "signal", "SIGTERM")...)
	case killed:
		w.cfg.Logger.Warn("warden killed a run", append(args, "signal", "SIGKILL")...)
	}
}

// setHelper sets the current helper. ready reports whether the helper has the whole state.
func (w *Warden) setHelper(h *helper, ready bool) {
	w.mu.Lock()
	different := w.ready != ready
	w.helper, w.ready = h, ready
	w.wakeWaiters()
	w.mu.Unlock()
	if different {
		w.cfg.OnChange(ready)
	}
}

func (w *Warden) setFailure(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failure = why
	w.wakeWaiters()
}

// wakeWaiters wakes all goroutines that wait for a change. The caller holds mu.
func (w *Warden) wakeWaiters() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// awaitHelper waits for a helper that has the whole state. dead is a previous helper that does not count.
func (w *Warden) awaitHelper(ctx context.Context, dead *helper) error {
	for {
		w.mu.Lock()
		ready, failure, changed := w.ready && w.helper != dead, w.failure, w.changed
		w.mu.Unlock()
		switch {
		case failure != nil:
			return failure
		case ready:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
