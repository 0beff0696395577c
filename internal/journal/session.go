package journal

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// sessionSecretBytes is the length of the random secret that signs sessions.
const sessionSecretBytes = 32

// sessionSecretName is the last part of the secret's key.
const sessionSecretName = "session-secret"

// IsSecretKey reports whether the value of a key of Redis, in any namespace, is a secret.
func IsSecretKey(key string) bool {
	return strings.HasPrefix(key, "cronclave:") && strings.HasSuffix(key, ":"+sessionSecretName)
}

// SessionSecret returns the secret with which the replicas of a cluster sign browser sessions. If Redis has none, SessionSecret stores one: the secret known,
// so that replicas restore it after a loss of data, or a random secret if known is "". Its errors do not contain the secret.
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

// createSessionSecret stores a secret, unless another replica has stored one, and returns the secret in Redis.
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
