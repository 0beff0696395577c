package locking

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/url"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"
)

// Pause is a time in which a lock grants no ticks: each is settled with Outcome instead. That is so for every tick from From until Until, whenever it is asked
// for, also if nobody asked before the end; and for every other that is asked for while the pause is on, unless its deadline had passed before. Requests without a
// tick are granted as ever. The server's clock decides. A lock knows its newest pause only; the zero Pause is that of a lock that never had one.
type Pause struct {
	From, Until time.Time // Until is zero for one that lasts until it is ended
	Outcome     string
	Reason      string // for people; "" when it was ended by a request
}

// On tells whether the pause is on at an instant.
func (p Pause) On(now time.Time) bool {
	return p.Outcome != "" && (p.Until.IsZero() || now.Before(p.Until))
}

// Covers tells whether a tick is of paused time.
func (p Pause) Covers(tick time.Time) bool {
	return !p.From.IsZero() && !tick.Before(p.From) && p.On(tick)
}

// PauseRequest sets or ends the pause of a lock.
type PauseRequest struct {
	Lock      string
	Permanent bool // as in [Request]; the pause of a lock that expires when it is idle goes with it
	// End ends the pause; what follows has no meaning then.
	End bool
	// For is how long it lasts. Defaults to until it is ended; at most ten years. One that is on is carried on with these new words.
	For time.Duration
	// Outcome is how ticks are settled: words of letters. Required.
	Outcome string
	// Reason is for people: one line of at most 200 characters.
	Reason string
}

// PauseAnswer is what became of a [PauseRequest].
type PauseAnswer struct {
	Now           time.Time // by the server's clock
	Before, After Pause
	Err           error // the outcome is unknown, or the request was not valid; the rest is empty
}

const (
	longestPauseFor = 10 * 365 * 24 * time.Hour
	longestReason   = 200
)

var plainWords = regexp.MustCompile(`^[a-z]+( [a-z]+)*$`)

func (r PauseRequest) validate() error {
	switch {
	case r.End:
		return nil
	case r.For < 0 || r.For > longestPauseFor:
		return fmt.Errorf("a pause for %v: it must last from 0 to ten years", r.For)
	case !plainWords.MatchString(r.Outcome):
		return fmt.Errorf("the outcome of a pause is %q: it must be of small letters", r.Outcome)
	case len([]rune(r.Reason)) > longestReason:
		return fmt.Errorf("the reason of a pause has %d characters: it may have %d", len([]rune(r.Reason)), longestReason)
	case strings.ContainsFunc(r.Reason, unicode.IsControl):
		return fmt.Errorf("the reason of a pause is %q: it must be one line", r.Reason)
	}
	return nil
}

// Pause sets or ends the pauses of many locks in one round trip, and tells the clients that [Client.Hear], so that they remember it if the server forgets. After
// an unknown outcome the same may be asked again.
func (c *Client) Pause(ctx context.Context, requests []PauseRequest) []PauseAnswer {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	answers := make([]PauseAnswer, len(requests))
	var calls []call
	var valid []int
	for i, r := range requests {
		if fault := cmp.Or(checkName(r.Lock), r.validate(), c.ready()); fault != nil {
			answers[i].Err = fmt.Errorf("pause %q: %w", r.Lock, fault)
			continue
		}
		valid = append(valid, i)
		calls = append(calls, c.call(c.scripts.pause, r.Lock, "", r.Permanent, flag(r.End), r.For.Microseconds(), r.Outcome, url.QueryEscape(r.Reason)))
	}
	if c.quorum != nil {
		c.quorum.pause(ctx, requests, answers, valid)
		return answers
	}
	var news []byte
	for n, got := range c.exec(ctx, calls) {
		r := requests[valid[n]]
		answers[valid[n]] = c.pauseAnswer(r, got)
		if answers[valid[n]].Err == nil {
			news = granted{lock: r.Lock, ledger: joinPause(got.paused, got.ledger), now: got.now, floor: got.floor, longest: got.longest, low: got.low,
				permanent: r.Permanent}.append(news)
		}
	}
	if len(news) > 0 {
		_ = process(ctx, c.cfg.Redis, redis.NewIntCmd(ctx, "publish", c.channel(), news)) // a hint: who did not hear it learns of the pause by its next request
	}
	return answers
}

func (c *Client) pauseAnswer(r PauseRequest, got reply) PauseAnswer {
	err := got.err
	switch {
	case err != nil:
	case got.verdict != "paused":
		err = fmt.Errorf("%w: the request reached the server too late", ErrUnknown)
	case !got.acked:
		err = c.unacked()
	default:
		return PauseAnswer{Now: fromMicros(got.now), Before: readPause(got.text(0)).pause(), After: readPause(got.paused).pause()}
	}
	return PauseAnswer{Err: fmt.Errorf("pause %q: %w", r.Lock, err)}
}

// pauseWord is what was said of a pause, as lua/pause.lua has it. Instants are microseconds, until is 0 for ever.
type pauseWord struct {
	changed, from, until int64
	outcome, reason      string
}

// readPause reads what a script or [pauseWord.text] wrote; what can't be read is no pause.
func readPause(s string) (p pauseWord) {
	part := strings.Split(s, ",")
	if len(part) < 5 {
		return p
	}
	p = pauseWord{parseNumber(part[0]), parseNumber(part[1]), parseNumber(part[2]), part[3], ""}
	p.reason, _ = url.QueryUnescape(part[4])
	return p
}

func (p pauseWord) text() string {
	return fmt.Sprintf("%d,%d,%d,%s,%s", p.changed, p.from, p.until, p.outcome, url.QueryEscape(p.reason))
}

func (p pauseWord) pause() Pause {
	return Pause{From: fromMicros(p.from), Until: fromMicros(p.until), Outcome: p.outcome, Reason: p.reason}
}

// sound tells whether a pause was written by a client.
func (p pauseWord) sound() bool {
	return sound(p.changed-1, maxNumber-1) && sound(p.from, maxNumber) && sound(p.until, maxNumber) && len(p.outcome) <= longestHeard && len(p.reason) <= longestHeard
}

// end is when the pause is over.
func (p pauseWord) end() int64 {
	if p.changed > 0 && p.until == 0 {
		return math.MaxInt64
	}
	return p.until
}

// stops is stopped() of lua/acquire.lua.
func (p pauseWord) stops(t *Tick, now int64) (outcome string, ok bool) {
	at, deadline := toMicros(t.At), toMicros(t.Deadline)
	within := at >= p.from && at < p.end()
	said := p.changed > 0 && p.outcome != "" // else there was only an end
	return p.outcome, said && (within || now < p.end() && (deadline == 0 || deadline >= min(p.from, now)))
}

// said is the word after this one: the rules are those of lua/pause.lua.
func (p pauseWord) said(r PauseRequest, now int64) pauseWord {
	known, on := p.changed > 0, now < p.end()
	next := pauseWord{changed: max(now, p.changed+1), from: p.from, until: p.until, outcome: p.outcome}
	if !on && !(known && r.End) {
		next.from = now
	}
	switch {
	case !r.End:
		next.outcome, next.reason, next.until = r.Outcome, r.Reason, 0
		if r.For > 0 {
			next.until = now + r.For.Microseconds()
		}
	case on || !known:
		next.until = max(now, next.from)
	}
	return next
}

// pause writes to the registers of locks, as [Client.Pause] does to one server.
func (q *quorum) pause(ctx context.Context, requests []PauseRequest, answers []PauseAnswer, valid []int) {
	changes, tasks := make([]*change, len(valid)), make([]task, len(valid))
	for n, i := range valid {
		r := requests[i]
		t := &change{quorum: q, lock: r.Lock, permanent: r.Permanent}
		edited := false
		t.edit = func(g *register, v view) {
			was := readPause(g.Paused)
			is := was.said(r, v.now)
			g.Paused = is.text()
			answers[i].Now, answers[i].After = fromMicros(v.now), is.pause()
			if !edited { // later it may find what it wrote itself
				answers[i].Before, edited = was.pause(), true
			}
		}
		changes[n], tasks[n] = t, t
	}
	if len(tasks) > 0 {
		q.run(ctx, tasks)
	}
	for n, i := range valid {
		if err := changes[n].failed; err != nil {
			answers[i] = PauseAnswer{Err: fmt.Errorf("pause %q: %w", requests[i].Lock, err)}
		}
	}
}

// joinPause puts a pause before a ledger, as requests, replies and notices carry them.
func joinPause(pause, ledger string) string {
	switch {
	case pause == "":
		return ledger
	case ledger == "":
		return "!" + pause
	}
	return "!" + pause + ";" + ledger
}

// cutPause takes them apart.
func cutPause(s string) (pause, ledger string) {
	if !strings.HasPrefix(s, "!") {
		return "", s
	}
	pause, ledger, _ = strings.Cut(s[1:], ";")
	return pause, ledger
}

// newerPause is the word on a pause that was said later.
func newerPause(a, b string) string {
	if a == b || readPause(b).changed <= readPause(a).changed {
		return a
	}
	return b
}
