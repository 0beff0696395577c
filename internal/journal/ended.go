package journal

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxEnded is the maximum number of listed sessions. The list drops those that expire first. Each entry requires a login, and stays listed for hours.
	maxEnded = 10_000
	// keepEnded is the time to live of the list. No session lasts that long.
	keepEnded = 24 * time.Hour
)

// sessionList reads and writes the list of browser sessions that were logged out.
type sessionList struct{ *namespace }

// EndSessions adds sessions to the list. ended maps the id of a session to the time at which it expires.
func (l sessionList) EndSessions(ctx context.Context, ended map[string]time.Time) error {
	ctx, cancel := l.withTimeout(ctx)
	defer cancel()
	key := l.key("ended-sessions")
	members := make([]redis.Z, 0, len(ended))
	for id, until := range ended {
		members = append(members, redis.Z{Score: float64(until.UnixMilli()), Member: cutText(id)})
	}
	cmds, err := l.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for some := range slices.Chunk(members, 1000) {
			p.ZAdd(ctx, key, some...)
		}
		p.ZRemRangeByScore(ctx, key, "-inf", fmt.Sprint(time.Now().UnixMilli()))
		p.ZRemRangeByRank(ctx, key, 0, -1-maxEnded)
		p.PExpire(ctx, key, keepEnded)
		return nil
	})
	return wrapIf("end sessions", allErrors(ctx, cmds, err))
}

// EndedSessions returns the ids of the sessions that were logged out, with the times at which they expire.
func (l sessionList) EndedSessions(ctx context.Context) (map[string]time.Time, error) {
	ctx, cancel := l.withTimeout(ctx)
	defer cancel()
	found := l.redis.ZRangeByScoreWithScores(ctx, l.key("ended-sessions"), &redis.ZRangeBy{Min: fmt.Sprint(time.Now().UnixMilli()), Max: "+inf", Count: maxEnded})
	if err := errorOf(ctx, found); err != nil {
		return nil, fmt.Errorf("read the ended sessions: %w", err)
	}
	ended := make(map[string]time.Time, len(found.Val()))
	for _, z := range found.Val() {
		id, _ := z.Member.(string) // always a string in a reply
		ended[id] = time.UnixMilli(int64(z.Score))
	}
	return ended, nil
}
