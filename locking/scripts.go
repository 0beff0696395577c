package locking

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/state.lua
	luaState string
	//go:embed lua/acquire.lua
	luaAcquire string
	//go:embed lua/renew.lua
	luaRenew string
	//go:embed lua/release.lua
	luaRelease string
	//go:embed lua/look.lua
	luaLook string
)

type script struct{ text, sha string }

type scripts struct{ acquire, renew, release, look script }

func loadScripts() scripts {
	load := func(body string) script {
		text := luaState + "\n" + body
		sum := sha1.Sum([]byte(text)) //nolint:gosec // see above
		return script{text, hex.EncodeToString(sum[:])}
	}
	return scripts{load(luaAcquire), load(luaRenew), load(luaRelease), load(luaLook)}
}

// call is one execution of a script.
type call struct {
	script script
	lock   string
	id     string
	args   []any // ARGV[8] and following
	until  int64 // not-after
	know   knowledge
	idle   int64 // microseconds, 0 for permanent locks
}

func (c *Client) keys(lock, id string) []string {
	base := c.cfg.Prefix + lock
	if !strings.Contains(lock, "{") {
		base = c.cfg.Prefix + "{" + lock + "}"
	}
	return []string{base, base + ":expiry", base + ":ledger", base + ":orphans", base + ":dead:" + id}
}

func (k call) argv() []any {
	return append([]any{k.id, k.until, k.idle, k.know.floor, k.know.longest, k.know.low, k.know.ledger}, k.args...)
}

// maxLoads bounds how often a pipeline is repeated because a node did not know a script: once for each
// node of a Cluster, and once more where SCRIPT FLUSH came in between.
const maxLoads = 32

// exec sends calls in one pipeline and returns a reply or an error for each. An error of one says nothing about the others.
func (c *Client) exec(ctx context.Context, calls []call) []reply {
	replies := make([]reply, len(calls))
	todo := make([]int, len(calls))
	for i := range calls {
		todo[i] = i
	}
	for round := 0; len(todo) > 0 && round <= maxLoads; round++ {
		todo = c.round(ctx, calls, replies, todo, round > 0)
	}
	return replies
}

// round is one round trip; it returns the calls whose script the server did not know. EVALSHA's own fallback
// does not work inside pipelines: with load, the first call of each script carries its text.
func (c *Client) round(ctx context.Context, calls []call, replies []reply, todo []int, load bool) (again []int) {
	pipe := c.cfg.Redis.Pipeline()
	cmds := make([]*redis.Cmd, len(todo))
	loaded := map[string]bool{}
	for n, i := range todo {
		k := calls[i]
		if load && !loaded[k.script.sha] {
			loaded[k.script.sha] = true
			cmds[n] = pipe.Eval(ctx, k.script.text, c.keys(k.lock, k.id), k.argv()...)
			continue
		}
		cmds[n] = pipe.EvalSha(ctx, k.script.sha, c.keys(k.lock, k.id), k.argv()...)
	}
	sent := c.cfg.Clock()
	_, _ = pipe.Exec(ctx) // each command has its own error
	received := c.cfg.Clock()
	for n, i := range todo {
		raw, err := cmds[n].Slice()
		if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
			replies[i] = reply{err: unknown(err)}
			again = append(again, i)
			continue
		}
		replies[i] = c.read(calls[i], raw, err, sent, received)
	}
	return again
}

// unknown marks an error as one that leaves the outcome unknown.
func unknown(err error) error {
	if err == nil || errors.Is(err, ErrUnknown) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}
