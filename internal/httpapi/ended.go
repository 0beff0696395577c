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

// maxEnded is the maximum number of sessions in a [SessionList].
const maxEnded = 10_000

// A SessionList has the sessions that were logged out before their expiry, on any replica.
type SessionList interface {
	// EndSessions adds sessions, by id, with their expiry. The list may drop expired sessions. If it has more than maxEnded, it drops those that expire first.
	EndSessions(ctx context.Context, ended map[string]time.Time) error
	// EndedSessions returns the sessions in the list, by id.
	EndedSessions(ctx context.Context) (map[string]time.Time, error)
}

// endedSessions is this replica's copy of the list. It is read every few seconds, and contains this replica's own additions at once. It is safe for
// concurrent use.
type endedSessions struct {
	list SessionList // nil if the list is not shared
	log  hclog.Logger

	mu    sync.Mutex
	until map[string]time.Time
}

func newEndedSessions(cfg Config) *endedSessions {
	return &endedSessions{list: cfg.Ended, log: cfg.Log, until: map[string]time.Time{}}
}

// sessionID returns an id for a session's cookie. The cookie itself must not be readable in Redis.
func sessionID(cookie string) string {
	sum := sha256.Sum256([]byte(cookie))
	return hex.EncodeToString(sum[:16])
}

// hasEnded reports whether a session was logged out.
func (e *endedSessions) hasEnded(cookie string) bool {
	if e == nil { // in tests without sessions
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ended := e.until[sessionID(cookie)]
	return ended
}

// endSession ends a session on all replicas. After an error it has ended on this replica only.
func (e *endedSessions) endSession(ctx context.Context, cookie string, until time.Time) error {
	id := sessionID(cookie)
	e.mu.Lock()
	e.until[id] = until
	e.dropSurplus()
	e.mu.Unlock()
	if e.list == nil {
		return nil
	}
	return e.list.EndSessions(ctx, map[string]time.Time{id: until}) //nolint:wrapcheck // it names the operation
}

// syncList reads the list, removes expired sessions, and adds those again that Redis has lost.
func (e *endedSessions) syncList(ctx context.Context) {
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
	e.dropSurplus()
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

// dropSurplus drops what Redis drops, in the same order. Otherwise each renewal would add the session again, and Redis would drop it again. The caller holds the
// lock.
func (e *endedSessions) dropSurplus() {
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
