package redis

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	"embed"
	"encoding/hex"
	"strings"
	"time"
)

//go:embed lua/*.lua
var files embed.FS

// A Script is a Lua script for Redis.
type Script struct {
	Text, SHA string
	Name      any     // SHA as an interface value, so that it is converted only once and not for each command
	Batch     *Script // the script for several requests in one command: see batch.lua; nil if there is none
	Many      *Many   // set if the script itself serves several requests in one command
	ReadOnly  bool    // the script writes nothing, and a read-only user may run it
}

// A Many describes a script that serves many requests. The first Shared arguments, and the first Common values of the reply, are common to all
// requests. If Bounded is true, the script refuses to run after the instant in its first argument.
type Many struct {
	Shared, Common int
	Bounded        bool
}

// Scripts has the scripts of a single master.
type Scripts struct {
	Acquire, Renew, Release, Inspect, Stop, MarkSucceeded, Pause, Remove, AcquireSet, Fence *Script

	InspectOnly *Script // Inspect for a read-only user

	AcquireCompact, ReleaseCompact *Script
}

// NewScripts returns the scripts of a single master.
func NewScripts() Scripts {
	acquire, release := []string{"check", "state", "queue", "acquire"}, []string{"check", "state", "queue", "chain", "release"}
	return Scripts{
		Acquire:        batchedScript(withFastPath("acquire_fast", acquire)...),
		Release:        batchedScript(withFastPath("release_fast", release)...),
		Renew:          batchedScript("check", "state", "renew"),
		Inspect:        joinScript(sourcesOf("check", "state", "chain", "inspect")...),
		InspectOnly:    readOnly("check", "state", "chain", "inspect"),
		Stop:           joinScript(sourcesOf("check", "state", "stop")...),
		MarkSucceeded:  joinScript(sourcesOf("check", "state", "chain", "mark_succeeded")...),
		Pause:          joinScript(sourcesOf("check", "state", "pause")...),
		Remove:         joinScript(sourcesOf("check", "state", "remove")...),
		AcquireSet:     joinScript(asFunction("acquire", sourcesOf(acquire...)...), asFunction("release", sourcesOf(release...)...), sourceOf("acquire_set")),
		Fence:          joinScript(sourcesOf("check", "fence")...),
		AcquireCompact: forMany(Many{Shared: 1, Common: 1, Bounded: true}, "acquire_compact"),
		ReleaseCompact: forMany(Many{}, "release_compact"),
	}
}

// withFastPath puts the script for the common case before the scripts with the full rules, which run in all other cases.
func withFastPath(fast string, whole []string) []string { return append([]string{fast}, whole...) }

// WithoutFastPaths returns the scripts of a single master without the scripts for common cases. Tests compare the results of both sets.
func WithoutFastPaths() Scripts {
	s := NewScripts()
	s.Acquire = batchedScript("check", "state", "queue", "acquire")
	s.Release = batchedScript("check", "state", "queue", "chain", "release")
	return s
}

// NodeScripts has the scripts of one node of a quorum.
type NodeScripts struct{ Claim, Accept, Renew, Release, Stop, Enrol, Admit, Found *Script }

// NewNodeScripts returns the scripts of a node.
func NewNodeScripts() NodeScripts {
	return NodeScripts{
		Claim:   joinScript(sourcesOf("quorum_claim_fast", "check", "quorum", "quorum_claim")...),
		Accept:  joinScript(sourcesOf("check", "quorum", "quorum_accept")...),
		Renew:   joinScript(sourcesOf("check", "quorum", "quorum_renew")...),
		Release: joinScript(sourcesOf("quorum_release_fast", "check", "quorum_release")...),
		Stop:    joinScript(sourcesOf("quorum_stop")...),
		Enrol:   joinScript(sourcesOf("check", "quorum_enrol")...),
		Admit:   joinScript(sourcesOf("check", "quorum_admit")...),
		Found:   joinScript(sourcesOf("quorum_found")...),
	}
}

// Loaded returns the scripts that a client loads into a node after quorum_enrol.lua has run there. A restarted Redis does not have these scripts, so
// it can't vote before quorum_enrol.lua has recorded the restart.
func (s NodeScripts) Loaded() []*Script {
	return []*Script{s.Claim, s.Accept, s.Renew, s.Release, s.Stop, s.Admit, s.Found}
}

// Called returns the first words of the command that calls the script, with capacity for the keys and arguments. With load, the command has the text
// of the script, for a server that has not loaded the script yet.
func (s *Script) Called(load bool, keys, args int) []any {
	words := make([]any, 0, 5+keys+args)
	switch {
	case s.ReadOnly && load:
		return append(words, "eval_ro", s.Text, keys)
	case s.ReadOnly:
		return append(words, "evalsha_ro", s.Name, keys)
	case load:
		return append(words, "eval", s.Text, keys)
	}
	return append(words, "evalsha", s.Name, keys)
}

// sourceOf returns the text of a file. A test checks that each name has a file.
func sourceOf(name string) string {
	text, _ := files.ReadFile("lua/" + name + ".lua")
	return string(text)
}

func sourcesOf(names ...string) []string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = sourceOf(name)
	}
	return texts
}

func joinScript(texts ...string) *Script {
	text := strings.Join(texts, "\n")
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see above
	sha := hex.EncodeToString(sum[:])
	return &Script{Text: text, SHA: sha, Name: sha}
}

func batchedScript(names ...string) *Script {
	s := joinScript(sourcesOf(names...)...)
	s.Batch = joinScript(asFunction("one", sourcesOf(names...)...), sourceOf("batch"))
	return s
}

func forMany(m Many, name string) *Script {
	s := joinScript(sourceOf(name))
	s.Many = &m
	return s
}

func readOnly(names ...string) *Script {
	s := joinScript(sourcesOf(append([]string{"readonly"}, names...)...)...)
	s.ReadOnly = true
	return s
}

// asFunction wraps a script in a Lua function, so that another script can call it.
func asFunction(name string, texts ...string) string {
	return "local function " + name + "(KEYS, ARGV)\n" + strings.Join(texts, "\n") + "\nend"
}

// The names of the scripts' keys, as in the headers of the scripts.
var (
	lockKeys = []string{"lock", "ledger", "orphans", "tombstone"}
	lineKeys = []string{"queue", "patience"}
	nodeKeys = []string{"member", "lock", "tombstone", "index"}
)

// LockKey returns the first key of a lock. The other keys of the lock begin with this key, so all have the same hash tag.
func LockKey(prefix, lock string) string {
	if strings.Contains(lock, "{") {
		return prefix + lock
	}
	return prefix + "{" + lock + "}"
}

// LockKeys returns the keys for a lock and a lease id. lock is the first key of the lock.
func LockKeys(lock, id string) []string {
	return []string{lock, lock + ":ledger", lock + ":orphans", Tombstone(lock, id)}
}

// LineKeys returns the keys of the lock's queue: the waiters, and the instants until which they keep their places.
func LineKeys(lock string) []string { return []string{lock + ":queue", lock + ":patience"} }

// Tombstone returns the key that records that a lease id was released.
func Tombstone(lock, id string) string { return lock + ":dead:" + id }

// TombstoneLife returns the life of a tombstone in microseconds. A tombstone must outlive all requests that were sent before the release. timeout is
// the maximum duration of a round trip.
func TombstoneLife(timeout time.Duration) int64 { return (2*timeout + time.Second).Microseconds() }

// NodeKeys returns the keys for a lock and a lease id on a node of a quorum. A script that writes a register also needs [IndexKey].
func NodeKeys(prefix, lock, id string) []string {
	return []string{MemberKey(prefix), lock, Tombstone(lock, id)}
}

// MemberKey returns the key that marks a Redis as a node of a quorum: see quorum.lua.
func MemberKey(prefix string) string { return prefix + "quorum" }

// IndexKey returns the key of a node's set of locks that have a register: see quorum.lua.
func IndexKey(prefix string) string { return prefix + "quorum:locks" }
