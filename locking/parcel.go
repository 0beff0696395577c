package locking

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// parcel is one command on its way to a server: a call, or several of the same script, see lua/each.lua.
type parcel struct {
	errands []errand
	load    bool // it carries the script's text
	cmd     *redis.Cmd
}

// mostTogether bounds a parcel: a script has the server to itself while it runs, a millisecond with as many. What takes longer for each
// goes by itself.
const mostTogether = 50

// pack puts calls of the same script together, where their keys are surely on one server.
func (c *Client) pack(b *batch, calls []call) []*parcel {
	var parcels []*parcel
	open := map[string]*parcel{} // the last one of a script
	loaded := map[string]bool{}
	for _, e := range b.errands {
		k := calls[e.call]
		alone := !c.servers.one || k.script.each == nil && k.script.many == nil || k.heavy || e.alone
		if p := open[k.script.sha]; p != nil && !alone && len(p.errands) < mostTogether && k.like(calls[p.errands[0].call]) {
			p.errands = append(p.errands, e)
			continue
		}
		p := &parcel{errands: []errand{e}}
		parcels = append(parcels, p)
		if !alone {
			open[k.script.sha] = p
		}
	}
	for _, p := range parcels {
		s := p.script(calls)
		for _, e := range p.errands {
			p.load = p.load || e.load && !loaded[s.sha]
		}
		loaded[s.sha] = loaded[s.sha] || p.load
	}
	return parcels
}

// like tells whether two calls of a script have as many keys and arguments.
func (k call) like(other call) bool {
	return len(k.keys) == len(other.keys) && len(k.args) == len(other.args)
}

// script is what the server executes.
func (p *parcel) script(calls []call) *script {
	s := calls[p.errands[0].call].script
	if len(p.errands) > 1 && s.many == nil {
		return s.each
	}
	return s
}

// once is a command that the client of go-redis does not repeat, whatever its options say: that the outcome was unknown once would be hidden, and so
// would a first request that is still on its way.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// enqueue puts a parcel into a pipeline.
func (p *parcel) enqueue(ctx context.Context, pipe redis.Pipeliner, calls []call, until int64) {
	if p.errands[0].ask {
		pipe.Do(ctx, "ASKING")
	}
	_ = pipe.Process(ctx, p.command(ctx, calls, until)) // which is to be executed yet
}

// command makes the parcel one command. It is void after the instant until of the server's clock.
func (p *parcel) command(ctx context.Context, calls []call, until int64) redis.Cmder {
	s := p.script(calls)
	first, n := calls[p.errands[0].call], len(p.errands)
	words := s.called(p.load, n*len(first.keys), len(first.args)+8*(n-1))
	for _, e := range p.errands {
		words = calls[e.call].appendKeys(words)
	}
	switch {
	case n == 1:
		words = first.append(words, until)
	case s.many != nil:
		words = first.append(words, until)
		for _, e := range p.errands[1:] {
			words = append(words, calls[e.call].args[s.many.shared:]...)
		}
	default:
		words = p.appendAll(words, calls, until)
	}
	p.cmd = redis.NewCmd(ctx, words...)
	return once{p.cmd}
}

// with makes the call one of a script, and its command at once: most calls are sent once, by themselves.
func (k call) with(s *script, keys []string, args ...any) call {
	k.script, k.keys = s, keys
	k.words = append(k.appendKeys(s.called(false, len(keys), len(args))), args...)
	k.args = k.words[len(k.words)-len(args):]
	return k
}

// command makes the call one command by itself, as that of a parcel.
func (k call) command(ctx context.Context, load bool, until int64) *redis.Cmd {
	if k.words != nil && !load {
		k.date(k.args, until)
		return redis.NewCmd(ctx, k.words...)
	}
	words := k.script.called(load, len(k.keys), len(k.args))
	return redis.NewCmd(ctx, k.append(k.appendKeys(words), until)...)
}

// called are the words with which a script is called, and room for those that follow.
func (s *script) called(load bool, keys, args int) []any {
	words := make([]any, 0, 5+keys+args)
	switch {
	case s.readonly && load:
		return append(words, "eval_ro", s.text, keys)
	case s.readonly:
		return append(words, "evalsha_ro", s.name, keys)
	case load:
		return append(words, "eval", s.text, keys)
	}
	return append(words, "evalsha", s.name, keys)
}

func (k call) appendKeys(words []any) []any {
	for _, key := range k.keys {
		words = append(words, key)
	}
	return words
}

// appendAll writes the arguments of the first call, and in what those of the others differ.
func (p *parcel) appendAll(words []any, calls []call, until int64) []any {
	words = append(words, len(p.errands), 0)
	head := len(words)
	words = calls[p.errands[0].call].append(words, until)
	width := len(words) - head
	words[head-1] = width
	for _, e := range p.errands[1:] {
		count := len(words)
		words = append(words, 0)
		for i, arg := range calls[e.call].args {
			if arg != words[head+i] && i != untilAt {
				words = append(words, i+1, arg)
			}
		}
		words[count] = (len(words) - count) / 2
	}
	return words
}

// reply is what the server has answered to one of the errands.
func (p *parcel) reply(n int, m *many) ([]any, error) {
	raw, err := p.cmd.Slice()
	if m != nil {
		return m.replyTo(n, len(p.errands), raw, err)
	}
	if err != nil || len(p.errands) == 1 {
		return raw, err
	}
	if len(raw) != len(p.errands) {
		return nil, fmt.Errorf("%w: %d replies from the server to %d requests", ErrUnknown, len(raw), len(p.errands))
	}
	one, _ := raw[n].([]any)
	if len(one) == 2 && text(one[0]) == "error" {
		return nil, serverError(text(one[1]))
	}
	return one, nil
}

// replyTo is what a script for many has answered to one request.
func (m *many) replyTo(n, requests int, raw []any, err error) ([]any, error) {
	if err != nil {
		return nil, err
	}
	switch {
	case len(raw) == m.told+1 && requests == 1:
		return raw, nil
	case len(raw) != m.told+requests:
		return nil, fmt.Errorf("%w: %d values from the server for %d requests", ErrUnknown, len(raw), requests)
	}
	return append(raw[:m.told:m.told], raw[m.told+n]), nil
}

// serverError is what the server has told of one request among several.
type serverError string

func (e serverError) Error() string { return string(e) }

// RedisError makes it one of those that [redis.HasErrorPrefix] knows.
func (serverError) RedisError() {}
