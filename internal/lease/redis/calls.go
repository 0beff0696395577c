package redis

import (
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/lease/script"
)

// A call is one execution of a script.
type call struct {
	script *script.Script
	lock   string
	keys   []string // the first key selects the server, which has all keys
	id     string
	args   []any                         // the script's ARGV, without the instant at [script.NotAfter]
	words  []any                         // the encoded command, which ends with args; nil if it was not encoded yet
	idle   int64                         // in microseconds, 0 for permanent locks
	sync   bool                          // its reply counts only once enough replicas have the write
	heavy  bool                          // it may block Redis for long
	asked  time.Duration                 // a very recent local time, if the code that made the call has read the clock; otherwise 0
	read   func(k call, raw []any) reply // decodes the reply of a script for many requests: the shared values, and one value for this call
	form   *compact                      // the state of a compact lock before and after the call; nil for other scripts
	parts  []call                        // for a set of locks: the calls for its locks; only script, lock, keys, id and sync of the set are used then
	undo   []call                        // for a set of locks: the calls that undo parts
}

// awaitAcks makes the reply count only once enough replicas have the write.
func (k *call) awaitAcks() { k.sync, k.args[script.Sync] = true, script.SyncOn }

// appendArgs appends the script's ARGV to the words of a command. The script refuses to run after the instant until.
func (k call) appendArgs(words []any, until int64) []any {
	if len(k.parts) > 0 {
		words = append(words, k.id, until, len(k.parts), len(k.parts[0].args))
		for _, part := range slices.Concat(k.parts, k.undo) {
			words = part.appendArgs(words, until)
		}
		return words
	}
	at := len(words)
	words = append(words, k.args...)
	k.setNotAfter(words[at:], until)
	return words
}

// setNotAfter sets the argument with the instant after which the script refuses to run.
func (k call) setNotAfter(args []any, until int64) {
	switch m := k.script.Many; {
	case m == nil:
		args[script.NotAfter] = until
	case m.Bounded:
		args[0] = script.Digits(until)
	}
}
