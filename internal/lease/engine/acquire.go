package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/clock"
	"github.com/cronclave/cronclave/internal/lease/script"
)

// Acquire asks once for one row. See [Client.AcquireAll]. A request that was sent can't be taken back: if ctx is cancelled meanwhile, it returns with
// the reply, or after [Config.Timeout].
func (c *Client) Acquire(ctx context.Context, r Request) Answer {
	r = r.WithDefaults()
	if s, ok := c.store.(compacter); ok {
		if a, ok := s.acquireCompact(ctx, r); ok {
			return a
		}
	}
	return c.AcquireAll(ctx, []Request{r})[0]
}

// AcquireAll asks for many rows in one round trip and returns an answer for each, in order. The verdict [Unknown]
// means that the server may have granted the row all the same: ask again with the answer's lease id, or
// [Client.Withdraw] it. Requests that can't be valid are Unknown too, with an error that is not [ErrUnknown].
func (c *Client) AcquireAll(ctx context.Context, requests []Request) []Answer {
	answers := make([]Answer, len(requests))
	asked := make([]Request, len(requests))
	var todo []int
	for i, r := range requests {
		asked[i] = r.WithDefaults()
		answers[i].ID = asked[i].ID
		if err := errors.Join(asked[i].Validate(), lease.CheckName(r.Lock)); err != nil {
			answers[i].Verdict, answers[i].Err = Unknown, fmt.Errorf("request for lock %q: %w", r.Lock, err)
			continue
		}
		todo = append(todo, i)
	}
	c.store.acquire(ctx, asked, answers, todo)
	for i, r := range asked {
		if !r.Abstain && r.Channel == "" { // those that wait in line report it themselves
			c.cfg.Hooks.contended(answers[i], r.Lock)
		}
	}
	return answers
}

// fail answers the requests at the places todo, of which nothing is known.
func fail(asked []Request, answers []Answer, todo []int, err error) {
	for _, i := range todo {
		answers[i].Verdict, answers[i].Err = Unknown, fmt.Errorf("acquire %q: %w", asked[i].Lock, err)
	}
}

func (c *single) acquire(ctx context.Context, asked []Request, answers []Answer, todo []int) {
	const tries = 3 // a request is late when the server's clock was stepped; the reply has told the new time
	for try := 0; try < tries && len(todo) > 0; try++ {
		todo = c.acquireRound(ctx, asked, answers, todo)
	}
}

// acquireRound makes one round trip; it returns the requests that have to be made again.
func (c *single) acquireRound(ctx context.Context, asked []Request, answers []Answer, todo []int) (late []int) {
	if err := c.ready(); err != nil {
		fail(asked, answers, todo, err)
		return nil
	}
	if c.cfg.AckedReplicas > 0 { // then ticks may be left to settle, in the rest of the time
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.cfg.Timeout)
		defer cancel()
	}
	calls := make([]call, len(todo))
	for n, i := range todo {
		calls[n] = c.call(c.scripts.Acquire, asked[i].Lock, asked[i].ID, asked[i].Permanent, acquireArgs(asked[i], c.cfg.Owner)...)
		calls[n].heavy = calls[n].heavy || asked[i].Slots > manySlots
	}
	replies := c.exec(ctx, calls)
	settled := c.settleOverdue(ctx, asked, replies, todo)
	for n, r := range replies {
		i := todo[n]
		if r.verdict == "late" {
			late = append(late, i)
		}
		if a, done := settled[n]; done {
			answers[i] = a
			continue
		}
		answers[i] = c.answer(asked[i], r)
	}
	return late
}

// settleOverdue settles the ticks that are overdue, by their places among the replies. The callers get all other
// replies only after that.
func (c *single) settleOverdue(ctx context.Context, asked []Request, replies []reply, todo []int) map[int]Answer {
	var settled map[int]Answer
	for n, r := range replies {
		if !c.overdue(asked[todo[n]], r) {
			continue
		}
		if settled == nil {
			settled = map[int]Answer{}
		}
		settled[n] = c.settle(ctx, asked[todo[n]])
	}
	if settled != nil {
		arrive(replies, c.cfg.Clock())
	}
	return settled
}

// ready returns an error if no requests can be made at all.
func (c *Client) ready() error {
	if c.work.Over() {
		return ErrClosed
	}
	return nil
}

// call prepares one execution: it carries the state that this client has observed.
func (c *single) call(s *script.Script, lock, id string, permanent bool, args ...any) call {
	keys, idle := c.keys(lock, id), time.Duration(0)
	if !permanent {
		keys, idle = append(keys, keys[0]+":queue", keys[0]+":patience"), c.cfg.Idle // no caller waits for a permanent lock
	}
	return c.callOn(keys, idle, s, lock, id, args...)
}

// A script reads all rows of a lock, and all entries of its ledger, each of some thirty bytes.
const manySlots, longLedger = 50, 1500

func (c *single) callOn(keys []string, idle time.Duration, s *script.Script, lock, id string, args ...any) call {
	know := c.seen.Of(lock, c.cfg.Clock, c.cfg.Idle)
	k := call{script: s, lock: lock, keys: keys, id: id, idle: idle.Microseconds(), heavy: len(know.Ledger) > longLedger,
		sync: c.cfg.AckedReplicas > 0 && s != c.scripts.Release && !s.ReadOnly} // a release that a failover undoes does no harm: the lease runs out
	k.args = append(script.Common{ID: id, Idle: k.idle, Floor: know.Floor, Longest: know.Longest, Low: know.Low,
		Pause: know.Paused, Ledger: know.Ledger, Sync: k.sync}.Encode(), args...)
	return k
}

func (c *single) answer(r Request, got reply) Answer {
	a := Answer{Verdict: Verdict(got.verdict), ID: r.ID, Orphans: got.orphans}
	if got.err == nil && !got.acked && c.mustLast(r, got) {
		a.Verdict, a.Err = Unknown, fmt.Errorf("acquire %q: %w", r.Lock, c.unacked())
		return a
	}
	switch got.verdict {
	case "granted":
		return c.grant(r, got, a)
	case "early", "closed":
		a.Until, a.line = clock.FromMicros(got.Number(0)), inLine{since: got.sent, now: got.now}
	case "held":
		a.Until, a.Holder = clock.FromMicros(got.Number(0)), got.Text(1)
	case "queued":
		a.Verdict, a.Until, a.Holder = Held, clock.FromMicros(got.Number(0)), got.Text(1)
		a.line = inLine{since: got.sent, now: got.now, ahead: int(got.Number(2))}
	case "settled":
		a.Outcome = got.Text(0)
	case "decided":
		a.Outcome, a.Until, a.Holder = got.Text(0), clock.FromMicros(got.Number(1)), got.Text(2)
	case "limit":
		a.Verdict, a.Err = Unknown, fmt.Errorf("lock %q asked for with %d slots has %d: %w", r.Lock, r.Slots, got.Number(0), ErrLimit)
	case "dead":
		a.Verdict, a.Err = Unknown, fmt.Errorf("acquire %q: lease id %s: %w", r.Lock, r.ID, ErrReleased)
	case "late":
		a.Verdict, a.Err = Unknown, fmt.Errorf("acquire %q: %w: the request reached the server too late", r.Lock, ErrUnknown)
	default:
		a.Verdict, a.Err = Unknown, fmt.Errorf("acquire %q: %w", r.Lock, cmp.Or(got.err, ErrUnknown))
	}
	return a
}

// grant makes the lease of a granted request. Its end is counted from before the request was sent.
func (c *Client) grant(r Request, got reply, a Answer) Answer {
	length := time.Duration(got.row().expiry-got.now) * time.Microsecond
	l := newLease(c, r, got)
	if got.received >= l.deadline {
		a.Verdict, a.Err = Unknown, fmt.Errorf("acquire %q: %w: the reply took longer than the lease of %v", r.Lock, ErrUnknown, length)
		return a
	}
	a.Lease = c.keeper.add(l)
	return a
}

// mustLast reports whether a verdict counts only if no failover can undo it. A refusal that leaves all open does
// no harm.
func (c *single) mustLast(r Request, got reply) bool {
	switch got.verdict {
	case "granted":
		return c.keeper.known(r.ID, Token(got.row().token)) == nil // else it was acknowledged before
	case "settled", "decided":
		return true
	}
	return false
}

// overdue reports whether a tick is held, past its deadline, by a grant that replicas have not acknowledged, or
// that was given back for that reason when the server could not say how the tick ended.
func (c *single) overdue(r Request, got reply) bool {
	late := r.Tick != nil && !r.Tick.Deadline.IsZero() && got.now > clock.ToMicros(r.Tick.Deadline)
	if got.err != nil || !late || c.cfg.AckedReplicas == 0 {
		return false
	}
	return got.verdict == "dead" || got.verdict == "granted" && !got.acked && c.mustLast(r, got)
}

// settle gives an overdue grant back, and lets the server settle the tick.
func (c *single) settle(ctx context.Context, r Request) Answer {
	if _, err := c.release(ctx, withdrawal(r)); err != nil {
		return Answer{Verdict: Unknown, ID: r.ID, Err: fmt.Errorf("give back the late grant of %q: %w", r.Lock, err)}
	}
	again := r
	again.ID, again.Abstain = rand.Text(), true // that of the grant is dead
	k := c.call(c.scripts.Acquire, again.Lock, again.ID, again.Permanent, acquireArgs(again, c.cfg.Owner)...)
	a := c.answer(again, c.exec(ctx, []call{k})[0])
	a.ID = r.ID
	return a
}

// Withdraw gives back what a request with an unknown outcome may have been granted: its tick is open again. It
// keeps trying until the server has answered or the lease must have ended, and returns at once. [Client.Close] waits
// for it, until it has been tried for twice [Config.Timeout]; where it has been already, for one more try. After Close it tries for as long as [Config.Timeout], and then returns.
func (c *Client) Withdraw(r Request, id string) {
	r.ID = id
	c.quit(r.WithDefaults())
}

// mostGivenUp bounds the releases that are tried in the background: a server that is away can't have granted what more of them would give back, and if it
// has, that runs out by itself.
const mostGivenUp = 10_000

// giveUp goes on with a release in the background, until the server has answered or the lease must have ended; false if the client is closed.
func (c *Client) giveUp(r releaseCall) bool {
	return c.work.Go(func() {
		defer c.givenUp.Add(-1)
		if c.givenUp.Add(1) > mostGivenUp {
			return
		}
		begun := c.cfg.Clock()
		ctx, cancel := context.WithTimeout(c.work.Life(), r.length+c.cfg.Timeout)
		defer cancel()
		if _, err := c.store.release(ctx, r); err == nil || !c.work.Over() {
			return
		}
		c.tryLast(r, max(begun+2*c.cfg.Timeout, c.work.EndedAt()+c.cfg.Timeout))
	})
}

// tryLast releases while the client closes, or after it has, until an instant of the local clock.
func (c *Client) tryLast(r releaseCall, end time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), end-c.cfg.Clock())
	defer cancel()
	_, _ = c.store.release(ctx, r)
}

// withdrawal undoes the request's grant.
func withdrawal(r Request) releaseCall {
	return releaseCall{lock: r.Lock, id: r.ID, permanent: r.Permanent, undo: true, previous: r.Previous(), perTick: r.PerTick(),
		slot: -1, length: r.Lease, accounted: r.Accounted()}
}
