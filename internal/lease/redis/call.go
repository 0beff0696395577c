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

// A compact has the states of a compact lock before and after a simple request. A compact lock is a string instead of a hash: see
// acquire_compact.lua. The scripts for compact locks only compare and replace strings, which compact.go builds.
type compact struct {
	keys           []string // the first key is the key of the lock
	lease, longest int64    // in microseconds: the lease of the request, and the longest lease of the lock after the grant
	token          string   // set once the request is granted
	held, free     string   // the text after the token: while the lock is held, and after the release
	life           int64    // the time to live of the lock, in milliseconds
}

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

// A routedCall is a call and the route to the server that has its lock.
type routedCall struct {
	call    int    // the index among the calls
	to      string // the address to which a Cluster node redirected the call; "" without a redirection
	ask     bool   // the redirection was ASK: the call needs ASKING first, because the slot is still migrating to the new node
	load    bool   // the server has not loaded the script, so the command may need the text of the script
	retried bool   // a read-only server has refused the call once
	alone   bool   // the call is sent without others: the server refused a batch call, perhaps because of the keys of another call
}

// nextRoute returns the next route of a call, and whether the call can be sent again at once. This is only possible after an error which proves that
// Redis did not execute the call. Errors that take time to clear (TRYAGAIN, CLUSTERDOWN, LOADING, MASTERDOWN, NOREPLICAS) go to the caller, which
// repeats its request with the same id.
func (e routedCall) nextRoute(err error, from string, inCompany bool) (next routedCall, ok bool) {
	if err == nil {
		return e, false
	}
	if inCompany && (redis.HasErrorPrefix(err, "NOPERM") || redis.HasErrorPrefix(err, "CROSSSLOT")) { // Redis checks the keys of all calls before it executes any of them
		e.alone = true
		return e, true
	}
	if addr, moved := redis.IsMovedError(err); moved {
		e.to, e.ask = redirectTarget(addr, from), false
		return e, from != ""
	}
	if addr, ask := redis.IsAskError(err); ask {
		e.to, e.ask = redirectTarget(addr, from), true
		return e, from != ""
	}
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		e.load = true
		return e, true
	}
	if redis.IsReadOnlyError(err) && !e.retried { // the server is no longer a master; go-redis drops the connection, and looks for the new master
		e.retried = true
		return e, true
	}
	return e, false
}

// A batchCall is one command for a Redis server, with one call, or with several calls of the same script: see batch.lua.
type batchCall struct {
	routedCalls []routedCall
	load        bool // the command includes the script's text
	cmd         *redis.Cmd
}

// mostTogether is the maximum number of calls in a batchCall. A running script blocks Redis, and this many calls take about a millisecond.
const mostTogether = 50

func (p *batchCall) scriptOf(calls []call) *Script {
	s := calls[p.routedCalls[0].call].script
	if len(p.routedCalls) > 1 && s.Many == nil {
		return s.Batch
	}
	return s
}

func (k call) sameShape(other call) bool {
	return len(k.keys) == len(other.keys) && len(k.args) == len(other.args)
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

// A reply is the decoded reply of a script. Values has the values after the seven values that all replies have in common.
type reply struct {
	verdict string
	orphans int
	now     int64 // Redis's clock, in microseconds since 1970
	floor   int64
	longest int64
	low     int64
	ledger  string
	paused  string
	Values
	sent     time.Duration // the local clock before the request was sent
	received time.Duration // the local clock when the caller got the reply, after the last reply of the round trip
	acked    bool          // enough Redis replicas have acknowledged the write
	err      error         // if set, the outcome is unknown

	compact bool     // the lock is compact: see acquire_compact.lua
	form    *compact // the states of the compact lock that was granted; nil for other locks

	place int     // for a set of locks: the position of the lock that refused, from 1
	parts []reply // for a set of locks: the replies for its locks
}

func (r *reply) knownState() lease.Known {
	return lease.Known{Floor: r.floor, Longest: r.longest, Low: r.low, Ledger: lease.JoinPause(r.paused, r.ledger)}
}

// inUse reports whether the script has restarted the idle time of the lock.
func (r reply) inUse() bool {
	switch r.verdict {
	case "granted", "renewed", "released", "closed", "settled", "queued", "passed", "stale", "paused":
		return true
	case "held":
		return r.Number(0) > 0
	}
	return false
}

// A row is the grant in a reply.
type row struct{ slot, token, expiry, tick, attempt int64 }

func (r reply) grantedRow() row {
	if r.form != nil {
		return row{token: r.now, expiry: r.now + r.form.lease, attempt: 1}
	}
	return row{r.Number(0), r.Number(1), r.Number(2), r.Number(3), r.Number(4)}
}

// common is the number of values with which every reply begins.
const common = 7

func readOne(k call, server *lease.ServerClock, raw []any, err error, sent, received time.Duration) reply {
	if err != nil && IsReply(err) && lease.WrongType(err) {
		err = fmt.Errorf("key %q, or one that begins with it, is of something else: delete that, or take another prefix, namespace or database: %w", k.keys[0], err)
	}
	switch {
	case len(k.parts) > 0:
		return readSetReply(server, raw, err, sent, received)
	case err == nil && k.script.Many != nil:
		r := k.read(k, raw)
		if r.sent, r.received = sent, received; r.now > 0 {
			server.Observe(r.now, sent, received)
		}
		return r
	}
	return readReply(server, raw, err, sent, received)
}

// readSetReply decodes the reply for a set of locks: a verdict, an index, and replies for single locks.
func readSetReply(server *lease.ServerClock, raw []any, err error, sent, received time.Duration) reply {
	switch {
	case err != nil:
		return reply{err: Unknown(err)}
	case len(raw) == 0:
		return reply{err: fmt.Errorf("%w: an empty reply from the server", lease.ErrUnknown)}
	case len(raw) == 1:
		return reply{verdict: Text(raw[0])}
	}
	r := reply{verdict: Text(raw[0]), place: int(min(max(Number(raw[1]), 0), mostTogether*lease.MaxSlots)), sent: sent}
	for _, part := range raw[2:] {
		values, _ := part.([]any)
		r.parts = append(r.parts, readReply(server, values, nil, sent, received))
	}
	return r
}

// readReply decodes the reply for one lock, and records the time in the reply for the estimate of Redis's clock.
func readReply(server *lease.ServerClock, raw []any, err error, sent, received time.Duration) reply {
	if err != nil {
		return reply{err: Unknown(err)}
	}
	if len(raw) < common {
		return reply{err: fmt.Errorf("%w: a reply of %d values from the server", lease.ErrUnknown, len(raw))}
	}
	for i, v := range raw[:common] {
		_, isText := v.(string)
		if _, isNumber := v.(int64); isText != (i == 0 || i == 5) || isText == isNumber {
			return reply{err: fmt.Errorf("%w: %w: a reply from the server with %T as value %d", lease.ErrUnknown, lease.ErrCorrupt, v, i)}
		}
	}
	r := reply{verdict: Text(raw[0]), now: Number(raw[1]), floor: Number(raw[2]), longest: Number(raw[3]), low: Number(raw[4]),
		orphans: int(Number(raw[6])), Values: raw[common:], sent: sent, received: received}
	r.paused, r.ledger = lease.CutPause(Text(raw[5]))
	if fault := r.findFault(); fault != "" {
		return reply{err: fmt.Errorf("%w: %w: a reply from the server: %s", lease.ErrUnknown, lease.ErrCorrupt, fault)}
	}
	r.compact = r.verdict == "released" && r.Text(0) == "compact"
	server.Observe(r.now, sent, received)
	return r
}

// findFault describes a number of the reply that is out of bounds. It returns "" if all numbers are within bounds.
func (r reply) findFault() string {
	for _, n := range []struct {
		name     string
		is, most int64
	}{{"the time", r.now, lease.MaxNumber}, {"floor", r.floor, lease.MaxNumber}, {"longest", r.longest, lease.MaxLease.Microseconds()}, {"low", r.low, lease.MaxTick}, {"orphans", int64(r.orphans), lease.MaxNumber}} {
		if !lease.Sound(n.is, n.most) {
			return fmt.Sprintf("%s is %d", n.name, n.is)
		}
	}
	for i, v := range r.Values {
		if n, ok := v.(int64); ok && !lease.Sound(n, lease.MaxNumber) {
			return fmt.Sprintf("value %d is %d", i+common, n)
		}
	}
	switch r.verdict {
	case "granted":
		return r.grantedRow().findFault(r.now)
	case "renewed":
		return endFault(r.Number(0), r.now)
	}
	return ""
}

// findFault describes a grant that is out of bounds. It returns "" for other grants.
func (r row) findFault(now int64) string {
	if !lease.Sound(r.slot, lease.MaxSlots-1) || !lease.Sound(r.token-1, lease.MaxNumber-1) || !lease.Sound(r.tick, lease.MaxTick) || !lease.Sound(r.attempt, lease.MaxAttempts) {
		return fmt.Sprintf("slot %d is granted with token %d, tick %d, attempt %d", r.slot, r.token, r.tick, r.attempt)
	}
	return endFault(r.expiry, now)
}

func endFault(expiry, now int64) string {
	if !lease.Sound(expiry-now, lease.MaxLease.Microseconds()+lease.MinuteMicros) {
		return fmt.Sprintf("the lease ends at %d, and the time is %d", expiry, now)
	}
	return ""
}
