// Package script has the Lua scripts of the engine, each with its keys and arguments by name.
//
// A script runs in Redis in one atomic step. Its file in lua begins with its keys, its arguments, its replies, and the reason why it is atomic. The
// tables in this package have the arguments in the same order and with the same names; a test compares both.
package script

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	"embed"
	"encoding/hex"
	"strings"
)

//go:embed lua/*.lua
var files embed.FS

// A Script is a text that the server executes.
type Script struct {
	Text, SHA string
	Name      any     // the SHA, as a word of a command
	Batch     *Script // the script for several requests in one command; nil if there is none, or the script itself is for many
	Many      *Many   // nil if it is for one request
	ReadOnly  bool    // the commands that call it are open to a read-only user
}

// A Many describes a script for many requests. Shared is the number of first arguments that the requests have in common, Told the number of first
// values of the reply, and Bounded is true if the first argument is the instant after which the script must not run.
type Many struct {
	Shared, Told int
	Bounded      bool
}

// Single has the scripts of a single master.
type Single struct {
	Acquire, Renew, Release, Inspect, Stop, MarkSucceeded, Pause, Remove, AcquireSet, Fence *Script

	InspectOnly *Script // Inspect for a user without the right to write

	AcquireCompact, ReleaseCompact *Script
}

// ForSingle returns the scripts of a single master.
func ForSingle() Single {
	acquire, release := []string{"check", "state", "queue", "acquire"}, []string{"check", "state", "queue", "chain", "release"}
	return Single{
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
		AcquireCompact: forMany(Many{Shared: 1, Told: 1, Bounded: true}, "acquire_compact"),
		ReleaseCompact: forMany(Many{}, "release_compact"),
	}
}

// withFastPath puts the usual case before the whole rules.
func withFastPath(fast string, whole []string) []string { return append([]string{fast}, whole...) }

// WithoutFastPaths returns the scripts of a single master with only the whole rules. Tests compare them with [ForSingle].
func WithoutFastPaths() Single {
	s := ForSingle()
	s.Acquire = batchedScript("check", "state", "queue", "acquire")
	s.Release = batchedScript("check", "state", "queue", "chain", "release")
	return s
}

// Quorum has the scripts of one node of a quorum.
type Quorum struct{ Claim, Accept, Renew, Release, Stop, Enrol, Admit, Found *Script }

// ForQuorum returns the scripts of a node.
func ForQuorum() Quorum {
	return Quorum{
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

// Loaded returns the scripts that a node gets when it is enrolled, and not before.
func (s Quorum) Loaded() []*Script {
	return []*Script{s.Claim, s.Accept, s.Renew, s.Release, s.Stop, s.Admit, s.Found}
}

// Called returns the words that call the script, with room for its keys and arguments. With load they have its text, for a server that does not know
// it yet.
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

// batchedScript returns a script with a form for several requests in one command.
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

// readOnly returns a script that writes nothing.
func readOnly(names ...string) *Script {
	s := joinScript(sourcesOf(append([]string{"readonly"}, names...)...)...)
	s.ReadOnly = true
	return s
}

// asFunction turns a script into a function that other scripts can call.
func asFunction(name string, texts ...string) string {
	return "local function " + name + "(KEYS, ARGV)\n" + strings.Join(texts, "\n") + "\nend"
}
