package locking

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/check.lua
	luaCheck string
	//go:embed lua/state.lua
	luaState string
	//go:embed lua/queue.lua
	luaQueue string
	//go:embed lua/chain.lua
	luaChain string
	//go:embed lua/grant.lua
	luaGrant string
	//go:embed lua/free.lua
	luaFree string
	//go:embed lua/acquire.lua
	luaAcquire string
	//go:embed lua/renew.lua
	luaRenew string
	//go:embed lua/release.lua
	luaRelease string
	//go:embed lua/look.lua
	luaLook string
	//go:embed lua/readonly.lua
	luaReadonly string
	//go:embed lua/stop.lua
	luaStop string
	//go:embed lua/ended.lua
	luaEnded string
	//go:embed lua/pause.lua
	luaPause string
	//go:embed lua/remove.lua
	luaRemove string
	//go:embed lua/folded_grant.lua
	luaFoldedGrant string
	//go:embed lua/folded_free.lua
	luaFoldedFree string
	//go:embed lua/fence.lua
	luaFence string
	//go:embed lua/several.lua
	luaSeveral string
	//go:embed lua/each.lua
	luaEach string
)

// script is a text that the server executes.
type script struct {
	text, sha string
	name      any     // the sha, as a word of a command
	each      *script // the same for calls that travel together; nil if those go each by itself, or the script itself is for many
	many      *many   // nil if it is for one
	readonly  bool    // it is executed by the commands that a user needs who may only read
}

// many is what there is to know of a script for many requests: how many of the first arguments they have in common, and of the first values of the
// reply; whether the first argument is the instant after which it must not run; and what the reply to one says, which is the common values and one more.
type many struct {
	shared, told int
	bounded      bool
	read         func(k call, raw []any) reply
}

type scripts struct {
	acquire, renew, release, look, stop, ended, pause, remove, several, fence *script

	lookOnly *script // look for a user who may only read

	foldedGrant, foldedFree *script
}

func loadScripts() scripts {
	state := luaCheck + "\n" + luaState
	acquire, release := []string{state, luaQueue, luaAcquire}, []string{state, luaQueue, luaChain, luaRelease}
	return scripts{
		acquire: forMany(ordinary(luaGrant, acquire)...), release: forMany(ordinary(luaFree, release)...),
		renew: forMany(state, luaRenew), look: newScript(state, luaChain, luaLook), stop: newScript(state, luaStop),
		ended:   newScript(state, luaChain, luaEnded),
		pause:   newScript(state, luaPause),
		remove:  newScript(state, luaRemove),
		several: newScript(function("acquire", acquire...), function("release", release...), luaSeveral),
		fence:   newScript(luaCheck, luaFence),

		foldedGrant: takesMany(many{shared: 1, told: 1, bounded: true, read: readFoldedGrant}, luaFoldedGrant),
		foldedFree:  takesMany(many{read: readFoldedFree}, luaFoldedFree),
		lookOnly:    readonly(state, luaChain, luaLook),
	}
}

// ordinary puts the short way before the whole.
func ordinary(short string, whole []string) []string { return append([]string{short}, whole...) }

func forMany(parts ...string) *script {
	s := newScript(parts...)
	s.each = newScript(function("one", parts...), luaEach)
	return s
}

func takesMany(m many, text string) *script {
	s := newScript(text)
	s.many = &m
	return s
}

// readonly makes a script that writes nothing.
func readonly(parts ...string) *script {
	s := newScript(append([]string{luaReadonly}, parts...)...)
	s.readonly = true
	return s
}

// function makes a script one that others can call.
func function(name string, parts ...string) string {
	return "local function " + name + "(KEYS, ARGV)\n" + strings.Join(parts, "\n") + "\nend"
}

func newScript(parts ...string) *script {
	text := strings.Join(parts, "\n")
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see above
	sha := hex.EncodeToString(sum[:])
	return &script{text: text, sha: sha, name: sha}
}

// call is one execution of a script.
type call struct {
	script *script
	lock   string
	keys   []string // the first one tells the server that has them all
	id     string
	args   []any         // as lua/state.lua has them, but for the instant at untilAt
	words  []any         // the whole command, which args are the end of, if it was made already
	idle   int64         // microseconds, 0 for permanent locks
	sync   bool          // it counts only when replicas have it
	heavy  bool          // it may take the server long
	asked  time.Duration // local clock: a moment ago, if whoever made the call has looked at it; else 0
	fold   *folded       // what it makes of a lock that is folded; nil for other scripts
	parts  []call        // of a set of locks: those for each of them; then only script, lock, id and sync count here
	undo   []call        // and what takes them back
}

// untilAt is the place of the instant of the server's clock after which a script must not run any more.
const untilAt = 1

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
	return []string{base, base + ":ledger", base + ":orphans", tombstone(base, id)}
}

// tombstone is where the server keeps that a lease id was released.
func tombstone(lock, id string) string { return lock + ":dead:" + id }

// append adds what the script is told. It must not run after the instant until.
func (k call) append(words []any, until int64) []any {
	if len(k.parts) > 0 {
		words = append(words, k.id, until, len(k.parts), len(k.parts[0].args))
		for _, part := range slices.Concat(k.parts, k.undo) {
			words = part.append(words, until)
		}
		return words
	}
	at := len(words)
	words = append(words, k.args...)
	k.date(words[at:], until)
	return words
}

// date writes into the call's arguments after which instant it must not run.
func (k call) date(args []any, until int64) {
	switch m := k.script.many; {
	case m == nil:
		args[untilAt] = until
	case m.bounded:
		args[0] = digits(until)
	}
}

// unknown marks an error as one that leaves the outcome unknown.
func unknown(err error) error {
	if err == nil || errors.Is(err, ErrUnknown) {
		return err
	}
	if isReply(err) {
		if found := damagedReply(err); found != nil {
			err = hopeless{found}
		} else if redis.IsPermissionError(err) || redis.IsAuthError(err) || ofSomethingElse(err) {
			err = hopeless{err}
		}
	}
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}

// hopeless makes an error one that is [ErrRefused].
type hopeless struct{ error }

func (h hopeless) Unwrap() error { return h.error }
func (h hopeless) Is(target error) bool {
	return target == ErrRefused || target == ErrCorrupt && ofSomethingElse(h.error)
}

// ofSomethingElse tells that a key is not a lock's.
func ofSomethingElse(err error) bool {
	return strings.Contains(err.Error(), "WRONGTYPE") // not every server has it at the start of a script's error
}
