package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// SessionList has the sessions of all replicas that were logged out before their time.
type SessionList interface {
	// EndSession adds a session. It may be dropped from the list at the instant when the session ends by itself.
	EndSession(ctx context.Context, id string, until time.Time) error
	// EndedSessions returns the sessions in the list, by id.
	EndedSessions(ctx context.Context) (map[string]time.Time, error)
}

// endedSessions is the list as this replica knows it: read every few seconds, and with its own additions at once. Its methods may be called by several
// goroutines.
type endedSessions struct {
	list SessionList // nil for one that is of this replica alone
	log  hclog.Logger

	mu    sync.Mutex
	until map[string]time.Time
}

func newEndedSessions(cfg Config) *endedSessions {
	return &endedSessions{list: cfg.Ended, log: cfg.Log, until: map[string]time.Time{}}
}

// sessionID names a session without its cookie, which must not be readable in Redis.
func sessionID(cookie string) string {
	sum := sha256.Sum256([]byte(cookie))
	return hex.EncodeToString(sum[:16])
}

// has reports whether a session was logged out.
func (e *endedSessions) has(cookie string) bool {
	if e == nil { // as in tests without sessions
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ended := e.until[sessionID(cookie)]
	return ended
}

// add ends a session on all replicas. After an error it has ended on this one.
func (e *endedSessions) add(ctx context.Context, cookie string, until time.Time) error {
	id := sessionID(cookie)
	e.mu.Lock()
	e.until[id] = until
	e.mu.Unlock()
	if e.list == nil {
		return nil
	}
	return e.list.EndSession(ctx, id, until) //nolint:wrapcheck // it names the operation
}

// renew reads the list, forgets the sessions that have ended by themselves, and adds again what Redis has lost.
func (e *endedSessions) renew(ctx context.Context) {
	if e.list == nil {
		return
	}
	listed, err := e.list.EndedSessions(ctx)
	if err != nil {
		e.log.Debug("cannot read the list of ended sessions; the known ones stay", "error", err)
		return
	}
	now := time.Now()
	e.mu.Lock()
	maps.DeleteFunc(e.until, func(_ string, until time.Time) bool { return now.After(until) })
	missing := maps.Clone(e.until)
	maps.Copy(e.until, listed)
	e.mu.Unlock()
	maps.DeleteFunc(missing, func(id string, _ time.Time) bool { _, there := listed[id]; return there })
	for id, until := range missing {
		if err := e.list.EndSession(ctx, id, until); err != nil {
			e.log.Debug("cannot restore the list of ended sessions", "error", err)
			return
		}
	}
}
