package journal_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/journal"
)

// repeating is a server that does not know a command, and repeats its arguments, as Redis does.
type repeating struct{ trips }

type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

func (*repeating) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		cmds[0].SetErr(refusal("ERR unknown command 'SETNX', with args beginning with: '" + cmds[0].Args()[1].(string) + "' '" + cmds[0].Args()[2].(string) + "'"))
		return cmds[0].Err()
	}
}

func TestSessionSecretIsInNoError(t *testing.T) {
	client := connect(t, serve(t))
	client.AddHook(&repeating{})
	known := strings.Repeat("07", 32)
	secret, err := open(t, journal.Config{Redis: client, Timeout: time.Minute}).SessionSecret(t.Context(), known)
	if secret != "" || err == nil || strings.Contains(err.Error(), known) || !strings.Contains(err.Error(), "unknown command 'SETNX'") {
		t.Errorf("%q, %v", secret, err)
	}
}
