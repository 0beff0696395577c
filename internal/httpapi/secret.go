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
	// secretEvery is how often a server reads the secret of sessions: so it is restored after Redis has lost its data, and one that replaced it counts.
	secretEvery = 5 * time.Second
	// secretPause is the time between two readings that requests cause: cookies that are made up cost Redis next to nothing.
	secretPause = time.Second
)

// sessionSecret is the secret of the cluster that signs sessions, as far as this replica knows it. Its methods may be called by several goroutines.
type sessionSecret struct {
	read   func(ctx context.Context, known string) (string, error)
	log    hclog.Logger
	failed logging.Rarely
	known  atomic.Pointer[string] // nil until it was read

	mu    sync.Mutex // held while it is read: requests that come meanwhile share the answer
	asked time.Time  // when the last reading ended
}

func newSessionSecret(cfg Config) *sessionSecret {
	return &sessionSecret{read: cfg.SessionSecret, log: cfg.Log}
}

// get returns the secret, "" if Redis has never given it.
func (s *sessionSecret) get(ctx context.Context) string {
	if known := s.last(); known != "" {
		return known
	}
	return s.again(ctx)
}

// again returns the secret as Redis has it now, unless it was read a moment ago. If Redis does not answer, the known one stays.
func (s *sessionSecret) again(ctx context.Context) string {
	return s.renew(context.WithoutCancel(ctx)) // a client that goes must not end a reading whose answer others share
}

func (s *sessionSecret) renew(ctx context.Context) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.last()
	if time.Since(s.asked) < secretPause {
		return known
	}
	secret, err := s.read(ctx, known)
	if err == nil && secret == "" { // Redis must not be asked yet, and was not: the next reading need not wait
		return known
	}
	s.asked = time.Now()
	if err != nil {
		if ctx.Err() == nil {
			s.warn(known, err)
		}
		return known
	}
	s.known.Store(&secret)
	return secret
}

func (s *sessionSecret) last() string {
	if known := s.known.Load(); known != nil {
		return *known
	}
	return ""
}

// warn logs that no session can be checked. With a secret that is known all go on.
func (s *sessionSecret) warn(known string, err error) {
	if known != "" {
		s.log.Debug("cannot read the secret of sessions; the known one stays", "error", err)
		return
	}
	if _, due := s.failed.Due(); due {
		s.log.Warn("cannot read the secret of sessions; logins with a token fail", "error", err)
	}
}

// keepRenewed calls a function at once and from time to time, until ctx ends.
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
