package single

import (
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/lease/script"
)

// call is one execution of a script.
type call struct {
	script *script.Script
	lock   string
	keys   []string // the first one selects the server, which has them all
	id     string
	args   []any                         // as the script has them, but for the instant at [script.NotAfter]
	words  []any                         // the whole command, which args are the end of, if it was made already
	idle   int64                         // microseconds, 0 for permanent locks
	sync   bool                          // it counts only when replicas have it
	heavy  bool                          // it may take the server long
	asked  time.Duration                 // local clock: a moment ago, if the maker of the call has looked at it; else 0
	read   func(k call, raw []any) reply // of a script for many: the reply to one has the common values and one more
	form   *compact                      // its effect on a lock that is compact; nil for other scripts
	parts  []call                        // of a set of locks: those for each of them; then only script, lock, id and sync count here
	undo   []call                        // and those that take them back
}

// awaitAcks has the call count only when replicas have it.
func (k *call) awaitAcks() { k.sync, k.args[script.Sync] = true, script.SyncOn }

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
	switch m := k.script.Many; {
	case m == nil:
		args[script.NotAfter] = until
	case m.Bounded:
		args[0] = script.Digits(until)
	}
}
