package httpapi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// maxEnded is how many ended sessions a [SessionList] keeps.
const maxEnded = 10_000

// SessionList has the sessions of all replicas that were logged out before their time.
type SessionList interface {
	// EndSessions adds sessions, by id. They may be dropped from the list at the instants when they end by themselves. Of more than
	// maxEnded, those that end first are dropped.
	EndSessions(ctx context.Context, ended map[string]time.Time) error
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
	e.bound()
	e.mu.Unlock()
	if e.list == nil {
		return nil
	}
	return e.list.EndSessions(ctx, map[string]time.Time{id: until}) //nolint:wrapcheck // it names the operation
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
	maps.Copy(e.until, listed)
	e.bound()
	missing := maps.Clone(e.until)
	e.mu.Unlock()
	maps.DeleteFunc(missing, func(id string, _ time.Time) bool { _, there := listed[id]; return there })
	if len(missing) == 0 {
		return
	}
	if err := e.list.EndSessions(ctx, missing); err != nil {
		e.log.Debug("cannot restore the list of ended sessions", "error", err)
	}
}

// bound drops what Redis drops, in the same order: otherwise each renewal would add it again, and Redis drop it again. The caller holds the lock.
func (e *endedSessions) bound() {
	surplus := len(e.until) - maxEnded
	if surplus <= 0 {
		return
	}
	ids := slices.SortedFunc(maps.Keys(e.until), func(a, b string) int {
		return cmp.Or(cmp.Compare(e.until[a].UnixMilli(), e.until[b].UnixMilli()), cmp.Compare(a, b))
	})
	for _, id := range ids[:surplus] {
		delete(e.until, id)
	}
}
