package single

import (
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/lease/script"
)

// A call is one execution of a script.
type call struct {
	script *script.Script
	lock   string
	keys   []string // the first one selects the server, which has them all
	id     string
	args   []any                         // the script's ARGV, without the instant at [script.NotAfter]
	words  []any                         // the whole command, which ends with args; nil if it was not made yet
	idle   int64                         // in microseconds, 0 for permanent locks
	sync   bool                          // it counts only when replicas have it
	heavy  bool                          // it may keep the server busy for long
	asked  time.Duration                 // the local clock a moment ago, if the maker of the call has read it; otherwise 0
	read   func(k call, raw []any) reply // decodes the reply of a script for many: the common values and one more
	form   *compact                      // its effect on a compact lock; nil for other scripts
	parts  []call                        // for a set of locks: the calls for its locks; only script, lock, id and sync of the set count then
	undo   []call                        // for a set of locks: the calls that undo parts
}

// awaitAcks makes the call count only when replicas have it.
func (k *call) awaitAcks() { k.sync, k.args[script.Sync] = true, script.SyncOn }

// appendArgs appends the script's ARGV to the words of a command. The script must not run after the instant until.
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

// setNotAfter writes the instant after which the script must not run into its arguments.
func (k call) setNotAfter(args []any, until int64) {
	switch m := k.script.Many; {
	case m == nil:
		args[script.NotAfter] = until
	case m.Bounded:
		args[0] = script.Digits(until)
	}
}
