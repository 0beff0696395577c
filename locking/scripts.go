package locking

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

var (
	//go:embed lua/state.lua
	luaState string
	//go:embed lua/queue.lua
	luaQueue string
	//go:embed lua/acquire.lua
	luaAcquire string
	//go:embed lua/renew.lua
	luaRenew string
	//go:embed lua/release.lua
	luaRelease string
	//go:embed lua/look.lua
	luaLook string
	//go:embed lua/fence.lua
	luaFence string
	//go:embed lua/several.lua
	luaSeveral string
)

type script struct{ text, sha string }

type scripts struct{ acquire, renew, release, look, several, fence script }

func loadScripts() scripts {
	load := func(parts ...string) script { return newScript(append([]string{luaState}, parts...)...) }
	function := func(name string, parts ...string) string {
		return "local function " + name + "(KEYS, ARGV)\n" + luaState + "\n" + strings.Join(parts, "\n") + "\nend"
	}
	return scripts{
		acquire: load(luaQueue, luaAcquire), renew: load(luaRenew), release: load(luaQueue, luaRelease), look: load(luaLook),
		several: newScript(function("acquire", luaQueue, luaAcquire), function("release", luaQueue, luaRelease), luaSeveral),
		fence:   newScript(luaFence),
	}
}

func newScript(parts ...string) script {
	text := strings.Join(parts, "\n")
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see above
	return script{text, hex.EncodeToString(sum[:])}
}

// call is one execution of a script.
type call struct {
	script script
	lock   string
	keys   []string // the first one tells the server that has them all
	id     string
	args   []any // ARGV[8] and following
	know   knowledge
	idle   int64  // microseconds, 0 for permanent locks
	sync   bool   // it counts only when replicas have it
	parts  []call // of a set of locks: those for each of them; then only script, lock, id and sync count here
	undo   []call // and what takes them back
}

// key is the first of a lock's keys; it begins the others, and its hash tag is theirs.
func (c *Client) key(lock string) string {
	if strings.Contains(lock, "{") {
		return c.cfg.Prefix + lock
	}
	return c.cfg.Prefix + "{" + lock + "}"
}

// keys are those of a lock, and of a lease id.
func (c *Client) keys(lock, id string) []string {
	base := c.key(lock)
	return []string{base, base + ":expiry", base + ":ledger", base + ":orphans", base + ":dead:" + id}
}

// argv is what the script is told. It must not run after the instant until of the server's clock.
func (k call) argv(until int64) []any {
	if len(k.parts) > 0 {
		each := len(k.parts[0].argv(until))
		args := []any{k.id, until, len(k.parts), each}
		for _, part := range slices.Concat(k.parts, k.undo) {
			args = append(args, part.argv(until)...)
		}
		return args
	}
	args := append([]any{k.id, until, k.idle, k.know.floor, k.know.longest, k.know.low, k.know.ledger}, k.args...)
	return append(args, flag(k.sync))
}

// unknown marks an error as one that leaves the outcome unknown.
func unknown(err error) error {
	if err == nil || errors.Is(err, ErrUnknown) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}
