package journal

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const sessionSecretBytes = 32

const sessionSecretName = "session-secret"

// IsSecretKey reports whether a key in Redis, of any namespace, has a secret as its value.
func IsSecretKey(key string) bool {
	return strings.HasPrefix(key, "cronclave:") && strings.HasSuffix(key, ":"+sessionSecretName)
}

// SessionSecret returns the secret with which the replicas of a cluster sign browser sessions. If Redis has no secret, SessionSecret stores the argument known,
// so that replicas restore the secret after a loss of data. If known is "", it stores a random secret. Its errors do not contain the secret.
func (n *namespace) SessionSecret(ctx context.Context, known string) (string, error) {
	ctx, cancel := n.withTimeout(ctx)
	defer cancel()
	key := n.key(sessionSecretName)
	get := n.redis.Get(ctx, key)
	err := errorOf(ctx, get)
	if errors.Is(get.Err(), redis.Nil) {
		get, err = n.createSessionSecret(ctx, key, known)
	}
	if err != nil {
		return "", fmt.Errorf("read the secret of sessions: %w", err)
	}
	if bytes, err := hex.DecodeString(get.Val()); err != nil || len(bytes) != sessionSecretBytes {
		return "", fmt.Errorf("read the secret of sessions: %w: %s is not 64 hexadecimal digits; delete the key", ErrCorrupt, key)
	}
	return get.Val(), nil
}

// createSessionSecret stores a secret, unless another replica was faster, and returns the secret in Redis.
func (n *namespace) createSessionSecret(ctx context.Context, key, secret string) (get *redis.StringCmd, err error) {
	if secret == "" {
		var random [sessionSecretBytes]byte
		_, _ = rand.Read(random[:]) // never fails
		secret = hex.EncodeToString(random[:])
	}
	cmds, err := n.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.SetNX(ctx, key, secret, 0)
		get = p.Get(ctx, key)
		return nil
	})
	return get, withoutText(allErrors(ctx, cmds, err), secret)
}

// withoutText masks a text in an error. Redis repeats the arguments of an unknown command in its error.
func withoutText(err error, text string) error {
	if err == nil || !strings.Contains(err.Error(), text) {
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), text, "***"))
}

const (
	// maxEnded is the maximum number of listed sessions. Beyond it, the sessions that expire first are dropped.
	maxEnded = 10_000
	// keepEnded is the time to live of the list. No session lasts that long.
	keepEnded = 24 * time.Hour
)

type sessionList struct{ *namespace }

// EndSessions adds sessions to the list of logged-out browser sessions. ended maps the id of a session to the time at which it expires.
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
