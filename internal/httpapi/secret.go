package httpapi

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/logging"
)

const (
	// secretEvery is the interval at which a server reads the secret of sessions. Each reading restores a secret that Redis has lost, and picks up one that was
	// replaced.
	secretEvery = 5 * time.Second
	// secretPause is the time between two readings that requests cause, so that forged cookies cause few calls to Redis.
	secretPause = time.Second
)

// sessionSecret is this replica's copy of the cluster's secret that signs sessions. It is safe for concurrent use.
type sessionSecret struct {
	read   func(ctx context.Context, known string) (string, error)
	log    hclog.Logger
	failed logging.Rarely
	known  atomic.Pointer[string] // nil before the first successful reading

	mu    sync.Mutex // held during a reading, so that concurrent requests share it
	asked time.Time  // end of the last reading
}

func newSessionSecret(cfg Config) *sessionSecret {
	return &sessionSecret{read: cfg.SessionSecret, log: cfg.Log}
}

// knownOrRead returns the secret, or "" if it was never read.
func (s *sessionSecret) knownOrRead(ctx context.Context) string {
	if known := s.lastKnown(); known != "" {
		return known
	}
	return s.readAgain(ctx)
}

// readAgain reads the secret from Redis, unless it was read a moment ago, and returns it. If Redis does not answer, it returns the known one.
func (s *sessionSecret) readAgain(ctx context.Context) string {
	return s.renewSecret(context.WithoutCancel(ctx)) // a client that goes must not cancel a reading that others share
}

func (s *sessionSecret) renewSecret(ctx context.Context) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.lastKnown()
	if time.Since(s.asked) < secretPause {
		return known
	}
	secret, err := s.read(ctx, known)
	if err == nil && secret == "" { // reading was not allowed yet and did not happen, so the next one need not wait
		return known
	}
	s.asked = time.Now()
	if err != nil {
		if ctx.Err() == nil {
			s.warnUnread(known, err)
		}
		return known
	}
	s.known.Store(&secret)
	return secret
}

func (s *sessionSecret) lastKnown() string {
	if known := s.known.Load(); known != nil {
		return *known
	}
	return ""
}

// warnUnread logs that the secret cannot be read. It is no problem as long as a secret is known.
func (s *sessionSecret) warnUnread(known string, err error) {
	if known != "" {
		s.log.Debug("cannot read the secret of sessions; the known one stays", "error", err)
		return
	}
	if _, due := s.failed.Due(); due {
		s.log.Warn("cannot read the secret of sessions; logins with a token fail", "error", err)
	}
}

// keepRenewed calls renew at once and then periodically, until ctx ends.
func keepRenewed(ctx context.Context, renew func(context.Context)) {
	ticks := time.NewTicker(secretEvery)
	defer ticks.Stop()
	for ctx.Err() == nil {
		renew(ctx)
		select {
		case <-ctx.Done():
		case <-ticks.C:
		}
	}
}
