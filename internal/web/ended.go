package web

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

// A SessionList is the list of sessions that were logged out before they expired, on any replica.
type SessionList interface {
	// EndSessions adds sessions to the list: their ids and expiries. The list may drop expired sessions. If it has more than maxEnded entries, it drops those
	// that expire first.
	EndSessions(ctx context.Context, ended map[string]time.Time) error
	// EndedSessions returns the ids and expiries of the sessions in the list.
	EndedSessions(ctx context.Context) (map[string]time.Time, error)
}

// endedSessions is this replica's copy of the shared list. It is refreshed every few seconds; logouts on this replica are added at once. It is safe for
// concurrent use.
type endedSessions struct {
	list SessionList // nil if replicas do not share a list
	log  hclog.Logger

	mu    sync.Mutex
	until map[string]time.Time
}

func newEndedSessions(cfg Config) *endedSessions {
	return &endedSessions{list: cfg.Ended, log: cfg.Log, until: map[string]time.Time{}}
}

// sessionID returns the id of a session, a hash of its cookie. Redis stores only the hash, so nobody can read a valid cookie there.
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

// endSession ends a session on all replicas. If it returns an error, the session has ended on this replica only.
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

// syncList reads the shared list, removes expired sessions from the copy, and restores entries that Redis has lost.
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

// dropSurplus drops the same sessions as the shared list does. Otherwise each syncList would add a session that Redis then drops again. The caller holds the
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
