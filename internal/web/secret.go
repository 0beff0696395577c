package web

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/logging"
)

const (
	// secretEvery is the interval at which a replica reads the secret from Redis. Each read restores a secret that Redis has lost, and picks up a new secret
	// that another replica has created.
	secretEvery = 5 * time.Second
	// secretPause is the minimum time between two reads of the secret. It keeps requests with forged cookies from causing many calls to Redis.
	secretPause = time.Second
)

// sessionSecret is this replica's copy of the cluster's secret that signs sessions. It is safe for concurrent use.
type sessionSecret struct {
	read   func(ctx context.Context, known string) (string, error)
	log    hclog.Logger
	failed logging.Rarely
	known  atomic.Pointer[string] // nil before the first successful read

	mu    sync.Mutex // held during a read, so that concurrent requests share the result
	asked time.Time  // end of the last read
}

func newSessionSecret(cfg Config) *sessionSecret {
	return &sessionSecret{read: cfg.SessionSecret, log: cfg.Log}
}

// knownOrRead returns the known secret, or reads it. It returns "" if no read has succeeded yet.
func (s *sessionSecret) knownOrRead(ctx context.Context) string {
	if known := s.lastKnown(); known != "" {
		return known
	}
	return s.readAgain(ctx)
}

// readAgain reads the secret from Redis, unless the last read was a moment ago, and returns it. If the read fails, it returns the known secret.
func (s *sessionSecret) readAgain(ctx context.Context) string {
	return s.renewSecret(context.WithoutCancel(ctx)) // a client that disconnects must not cancel a read whose result others share
}

func (s *sessionSecret) renewSecret(ctx context.Context) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.lastKnown()
	if time.Since(s.asked) < secretPause {
		return known
	}
	secret, err := s.read(ctx, known)
	if err == nil && secret == "" { // reading was not allowed yet: Redis was not asked, so the next read need not wait
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

// warnUnread logs a failed read of the secret. With a known secret it logs at DEBUG, because sessions still work.
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
