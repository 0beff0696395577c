package journal

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxEnded bounds the list of ended sessions. Each takes a login, and is in it for hours.
	maxEnded = 10_000
	// keepEnded is longer than any session.
	keepEnded = 24 * time.Hour
)

// sessionList has the sessions of browsers that were logged out.
type sessionList struct{ *namespace }

// EndSession adds a session, which ends by itself at an instant.
func (l sessionList) EndSession(ctx context.Context, id string, until time.Time) error {
	ctx, cancel := l.within(ctx)
	defer cancel()
	key := l.key("ended-sessions")
	cmds, err := l.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.ZAdd(ctx, key, redis.Z{Score: float64(until.UnixMilli()), Member: cut(id)})
		p.ZRemRangeByScore(ctx, key, "-inf", fmt.Sprint(time.Now().UnixMilli()))
		p.ZRemRangeByRank(ctx, key, 0, -1-maxEnded)
		p.PExpire(ctx, key, keepEnded)
		return nil
	})
	return wrapIf("end a session", allErrors(ctx, cmds, err))
}

// EndedSessions returns the sessions that were logged out, with the instants at which they end by themselves.
func (l sessionList) EndedSessions(ctx context.Context) (map[string]time.Time, error) {
	ctx, cancel := l.within(ctx)
	defer cancel()
	found := l.redis.ZRangeByScoreWithScores(ctx, l.key("ended-sessions"), &redis.ZRangeBy{Min: fmt.Sprint(time.Now().UnixMilli()), Max: "+inf", Count: maxEnded})
	if err := errorOf(ctx, found); err != nil {
		return nil, fmt.Errorf("read the ended sessions: %w", err)
	}
	ended := make(map[string]time.Time, len(found.Val()))
	for _, z := range found.Val() {
		id, _ := z.Member.(string) // as each reply has it
		ended[id] = time.UnixMilli(int64(z.Score))
	}
	return ended, nil
}
