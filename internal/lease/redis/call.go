package redis

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease"
)

// A call is one execution of a script.
type call struct {
	script *Script
	lock   string
	keys   []string // the first key selects the server; the same server has the other keys
	id     string
	args   []any                         // the script's ARGV, without the instant at [notAfterArg]
	words  []any                         // the encoded command, whose last words are args; nil if not encoded yet
	idle   int64                         // the time after which Redis deletes the unused lock, in microseconds; 0 for a permanent lock
	sync   bool                          // the reply counts only if enough Redis replicas acknowledge the write
	heavy  bool                          // the script may block Redis for long, so the call is sent without others
	asked  time.Duration                 // the local time just before the call was made; 0 if the clock was not read
	read   func(k call, raw []any) reply // for a script with Many: decodes the shared values of the reply and the value for this call
	form   *compact                      // the state of a compact lock before and after the call; nil for other scripts
	parts  []call                        // for a set of locks: a call for each lock; the set itself uses only script, lock, keys, id and sync
	undo   []call                        // for a set of locks: the calls that release the locks after a refusal
}

// awaitAcks makes the reply count only if enough Redis replicas acknowledge the write.
func (k *call) awaitAcks() { k.sync, k.args[syncArg] = true, syncOn }

// appendArgs appends the script's ARGV to the words of a command. The script refuses to run after the instant until of Redis's clock.
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

func (k call) setNotAfter(args []any, until int64) {
	switch m := k.script.Many; {
	case m == nil:
		args[notAfterArg] = until
	case m.Bounded:
		args[0] = digits(until)
	}
}

// A batchCall is one command for a Redis server, with one call, or with several calls of the same script: see batch.lua.
type batchCall struct {
	routedCalls []routedCall
	load        bool // the command includes the script's text
	cmd         *redis.Cmd
}

// mostTogether is the maximum number of calls in a batchCall. A running script blocks Redis, and this many calls take about a millisecond.
const mostTogether = 50

// packCalls combines calls of the same script into batch calls, if a single server has all keys.
func (c *sender) packCalls(b *batch, calls []call) []*batchCall {
	var batchCalls []*batchCall
	open := map[string]*batchCall{} // by script: the batch call to which more calls may be added
	loaded := map[string]bool{}
	for _, e := range b.routedCalls {
		k := calls[e.call]
		alone := !c.servers.one || k.script.Batch == nil && k.script.Many == nil || k.heavy || e.alone
		if p := open[k.script.SHA]; p != nil && !alone && len(p.routedCalls) < mostTogether && k.sameShape(calls[p.routedCalls[0].call]) {
			p.routedCalls = append(p.routedCalls, e)
			continue
		}
		p := &batchCall{routedCalls: []routedCall{e}}
		batchCalls = append(batchCalls, p)
		if !alone {
			open[k.script.SHA] = p
		}
	}
	for _, p := range batchCalls {
		s := p.scriptOf(calls)
		for _, e := range p.routedCalls {
			p.load = p.load || e.load && !loaded[s.SHA]
		}
		loaded[s.SHA] = loaded[s.SHA] || p.load
	}
	return batchCalls
}

func (k call) sameShape(other call) bool {
	return len(k.keys) == len(other.keys) && len(k.args) == len(other.args)
}

func (p *batchCall) scriptOf(calls []call) *Script {
	s := calls[p.routedCalls[0].call].script
	if len(p.routedCalls) > 1 && s.Many == nil {
		return s.Batch
	}
	return s
}

func (p *batchCall) enqueueIn(ctx context.Context, pipe redis.Pipeliner, calls []call, until int64) {
	if p.routedCalls[0].ask {
		pipe.Do(ctx, "ASKING")
	}
	_ = pipe.Process(ctx, p.asCommand(ctx, calls, until)) // this only queues the command
}

// asCommand encodes the batch call as one command. The script refuses to run after the instant until of Redis's clock.
func (p *batchCall) asCommand(ctx context.Context, calls []call, until int64) redis.Cmder {
	s := p.scriptOf(calls)
	first, n := calls[p.routedCalls[0].call], len(p.routedCalls)
	words := s.Called(p.load, n*len(first.keys), len(first.args)+8*(n-1))
	for _, e := range p.routedCalls {
		words = calls[e.call].appendKeys(words)
	}
	switch {
	case n == 1:
		words = first.appendArgs(words, until)
	case s.Many != nil:
		words = first.appendArgs(words, until)
		for _, e := range p.routedCalls[1:] {
			words = append(words, calls[e.call].args[s.Many.Shared:]...)
		}
	default:
		words = p.appendAll(words, calls, until)
	}
	p.cmd = redis.NewCmd(ctx, words...)
	return Once{Cmd: p.cmd}
}

// withScript sets the script of a call. It encodes the command in advance, because most calls are sent only once and without other calls.
func (k call) withScript(s *Script, keys []string, args ...any) call {
	k.script, k.keys = s, keys
	words := k.appendKeys(s.Called(false, len(keys), len(args)))
	k.words = append(words, args...)
	k.args = k.words[len(words):]
	return k
}

// asCommand encodes the call as one command. The script refuses to run after the instant until of Redis's clock.
func (k call) asCommand(ctx context.Context, load bool, until int64) *redis.Cmd {
	if k.words != nil && !load {
		k.setNotAfter(k.args, until)
		return redis.NewCmd(ctx, k.words...)
	}
	words := k.script.Called(load, len(k.keys), len(k.args))
	return redis.NewCmd(ctx, k.appendArgs(k.appendKeys(words), until)...)
}

func (k call) appendKeys(words []any) []any {
	for _, key := range k.keys {
		words = append(words, key)
	}
	return words
}

// appendAll appends the arguments of the first call. For each other call it appends only the arguments that differ from the first: see batch.lua.
func (p *batchCall) appendAll(words []any, calls []call, until int64) []any {
	words = append(words, len(p.routedCalls), 0)
	head := len(words)
	words = calls[p.routedCalls[0].call].appendArgs(words, until)
	width := len(words) - head
	words[head-1] = width
	for _, e := range p.routedCalls[1:] {
		count := len(words)
		words = append(words, 0)
		for i, arg := range calls[e.call].args {
			if arg != words[head+i] && i != notAfterArg {
				words = append(words, i+1, arg)
			}
		}
		words[count] = (len(words) - count) / 2
	}
	return words
}

func (p *batchCall) replyAt(n int, m *Many) ([]any, error) {
	raw, err := p.cmd.Slice()
	if m != nil {
		return replyTo(m, n, len(p.routedCalls), raw, err)
	}
	if err != nil || len(p.routedCalls) == 1 {
		return raw, err
	}
	if len(raw) != len(p.routedCalls) {
		return nil, fmt.Errorf("%w: %d replies from the server to %d requests", lease.ErrUnknown, len(raw), len(p.routedCalls))
	}
	one, _ := raw[n].([]any)
	if len(one) == 2 && Text(one[0]) == "error" {
		return nil, serverError(Text(one[1]))
	}
	return one, nil
}

// replyTo returns the common values and the value of one request, from the reply of a script that serves many requests.
func replyTo(m *Many, n, requests int, raw []any, err error) ([]any, error) {
	if err != nil {
		return nil, err
	}
	switch {
	case len(raw) == m.Common+1 && requests == 1:
		return raw, nil
	case len(raw) != m.Common+requests:
		return nil, fmt.Errorf("%w: %d values from the server for %d requests", lease.ErrUnknown, len(raw), requests)
	}
	return append(raw[:m.Common:m.Common], raw[m.Common+n]), nil
}

// A serverError is Redis's error for one request of a batch.
type serverError string

func (e serverError) Error() string { return string(e) }

// RedisError lets [redis.HasErrorPrefix] accept the error.
func (serverError) RedisError() {}
