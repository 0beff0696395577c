package locking

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Acquire asks once for one row. See [Client.AcquireAll]. A request that was sent can't be taken back: if ctx is cancelled meanwhile, it returns with
// the reply, or after [Config.Timeout].
func (c *Client) Acquire(ctx context.Context, r Request) Answer {
	r = r.withDefaults()
	if a, ok := c.acquireFolded(ctx, r); ok {
		return a
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
		asked[i] = r.withDefaults()
		answers[i].ID = asked[i].ID
		if err := errors.Join(asked[i].validate(), checkName(r.Lock)); err != nil {
			answers[i].Verdict, answers[i].Err = Unknown, fmt.Errorf("request for lock %q: %w", r.Lock, err)
			continue
		}
		todo = append(todo, i)
	}
	if c.quorum != nil && c.ready() == nil {
		c.quorum.acquire(ctx, asked, answers, todo)
		todo = nil
	}
	const tries = 3 // a request is late when the server's clock was stepped; the reply has told the new time
	for try := 0; try < tries && len(todo) > 0; try++ {
		todo = c.acquireRound(ctx, asked, answers, todo)
	}
	for i, r := range asked {
		if !r.Abstain && r.channel == "" { // those that wait in line tell by themselves
			c.cfg.Hooks.contended(answers[i], r.Lock)
		}
	}
	return answers
}

// acquireRound makes one round trip; it returns what has to be asked again.
func (c *Client) acquireRound(ctx context.Context, asked []Request, answers []Answer, todo []int) (late []int) {
	if err := c.ready(); err != nil {
		for _, i := range todo {
			answers[i].Verdict, answers[i].Err = Unknown, fmt.Errorf("acquire %q: %w", asked[i].Lock, err)
		}
		return nil
	}
	if c.cfg.AckedReplicas > 0 { // then there may be some to settle, in what is left of the time
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.cfg.Timeout)
		defer cancel()
	}
	calls := make([]call, len(todo))
	for n, i := range todo {
		calls[n] = c.call(c.scripts.acquire, asked[i].Lock, asked[i].ID, asked[i].Permanent, asked[i].args(c.cfg.Owner)...)
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

// settleOverdue settles the ticks that are overdue, by their places among the replies. All others are there for whoever has asked only then.
func (c *Client) settleOverdue(ctx context.Context, asked []Request, replies []reply, todo []int) map[int]Answer {
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

// ready tells whether requests can be made at all.
func (c *Client) ready() error {
	if c.life.Err() != nil {
		return ErrClosed
	}
	return nil
}

// call prepares one execution: it carries what this client has witnessed.
func (c *Client) call(s *script, lock, id string, permanent bool, args ...any) call {
	keys, idle := c.keys(lock, id), time.Duration(0)
	if !permanent {
		keys, idle = append(keys, keys[0]+":queue", keys[0]+":patience"), c.cfg.Idle // nobody waits for a permanent lock
	}
	return c.callOn(keys, idle, s, lock, id, args...)
}

// A script reads all rows of a lock, and all entries of its ledger, each of some thirty bytes.
const manySlots, longLedger = 50, 1500

func (c *Client) callOn(keys []string, idle time.Duration, s *script, lock, id string, args ...any) call {
	know := c.seen.of(lock, c.cfg.Clock, c.cfg.Idle)
	k := call{script: s, lock: lock, keys: keys, id: id, idle: idle.Microseconds(), heavy: len(know.ledger) > longLedger,
		sync: c.cfg.AckedReplicas > 0 && s != c.scripts.release && !s.readonly} // a release that a failover undoes harms nobody: the lease runs out
	k.args = make([]any, 0, 8+len(args))
	k.args = append(k.args, id, 0, k.idle, know.floor, know.longest, know.low, joinPause(know.paused, know.ledger), flag(k.sync))
	k.args = append(k.args, args...)
	return k
}

func (c *Client) answer(r Request, got reply) Answer {
	a := Answer{Verdict: Verdict(got.verdict), ID: r.ID, Orphans: got.orphans}
	if got.err == nil && !got.acked && c.mustLast(r, got) {
		a.Verdict, a.Err = Unknown, fmt.Errorf("acquire %q: %w", r.Lock, c.unacked())
		return a
	}
	switch got.verdict {
	case "granted":
		return c.grant(r, got, a)
	case "early", "closed":
		a.Until, a.line = fromMicros(got.number(0)), inLine{since: got.sent, now: got.now}
	case "held":
		a.Until, a.Holder = fromMicros(got.number(0)), got.text(1)
	case "queued":
		a.Verdict, a.Until, a.Holder = Held, fromMicros(got.number(0)), got.text(1)
		a.line = inLine{since: got.sent, now: got.now, ahead: int(got.number(2))}
	case "settled":
		a.Outcome = got.text(0)
	case "decided":
		a.Outcome, a.Until, a.Holder = got.text(0), fromMicros(got.number(1)), got.text(2)
	case "limit":
		a.Verdict, a.Err = Unknown, fmt.Errorf("lock %q asked for with %d slots has %d: %w", r.Lock, r.Slots, got.number(0), ErrLimit)
	case "dead":
		a.Verdict, a.Err = Unknown, fmt.Errorf("acquire %q: lease id %s: %w", r.Lock, r.ID, ErrReleased)
	case "late":
		a.Verdict, a.Err = Unknown, fmt.Errorf("acquire %q: %w: the request reached the server too late", r.Lock, ErrUnknown)
	default:
		a.Verdict, a.Err = Unknown, fmt.Errorf("acquire %q: %w", r.Lock, orDefault(got.err, ErrUnknown))
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

// mustLast tells whether a verdict counts only if no failover can undo it. A refusal that leaves all open does no harm.
func (c *Client) mustLast(r Request, got reply) bool {
	switch got.verdict {
	case "granted":
		return c.keeper.known(r.ID, Token(got.row().token)) == nil // else it was acknowledged before
	case "settled", "decided":
		return true
	}
	return false
}

// overdue tells whether a tick is held, past its deadline, by a grant that replicas have not acknowledged, or that was given
// back for that reason when the server could not say how the tick ended.
func (c *Client) overdue(r Request, got reply) bool {
	late := r.Tick != nil && !r.Tick.Deadline.IsZero() && got.now > toMicros(r.Tick.Deadline)
	if got.err != nil || !late || c.cfg.AckedReplicas == 0 {
		return false
	}
	return got.verdict == "dead" || got.verdict == "granted" && !got.acked && c.mustLast(r, got)
}

// settle gives an overdue grant back, and lets the server settle the tick.
func (c *Client) settle(ctx context.Context, r Request) Answer {
	if _, err := c.release(ctx, r.withdrawal()); err != nil {
		return Answer{Verdict: Unknown, ID: r.ID, Err: fmt.Errorf("give back the late grant of %q: %w", r.Lock, err)}
	}
	again := r
	again.ID, again.Abstain = rand.Text(), true // that of the grant is dead
	k := c.call(c.scripts.acquire, again.Lock, again.ID, again.Permanent, again.args(c.cfg.Owner)...)
	a := c.answer(again, c.exec(ctx, []call{k})[0])
	a.ID = r.ID
	return a
}

// Withdraw gives back what a request with an unknown outcome may have been granted: its tick is open again. It
// keeps trying until the server has answered or the lease must have ended, and returns at once. [Client.Close] waits
// for it, until it has been tried for twice [Config.Timeout]; where it has been already, for one more try. After Close it tries for as long as [Config.Timeout], and then returns.
func (c *Client) Withdraw(r Request, id string) {
	r.ID = id
	c.quit(r.withDefaults())
}

// mostGivenUp bounds the releases that are tried in the background: a server that is away can't have granted what more of them would give back, and if it
// has, that runs out by itself.
const mostGivenUp = 10_000

// giveUp goes on with a release in the background, until the server has answered or the lease must have ended; false if the client is closed.
func (c *Client) giveUp(r releaseCall) bool {
	return c.later(func() {
		defer c.givenUp.Add(-1)
		if c.givenUp.Add(1) > mostGivenUp {
			return
		}
		begun := c.cfg.Clock()
		ctx, cancel := context.WithTimeout(c.life, r.length+c.cfg.Timeout)
		defer cancel()
		if _, err := c.release(ctx, r); err == nil || c.life.Err() == nil {
			return
		}
		c.tryLast(r, max(begun+2*c.cfg.Timeout, c.closed+c.cfg.Timeout))
	})
}

// tryLast releases while the client closes, or after it has, until an instant of the local clock.
func (c *Client) tryLast(r releaseCall, end time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), end-c.cfg.Clock())
	defer cancel()
	_, _ = c.release(ctx, r)
}

// withdrawal undoes the request's grant.
func (r Request) withdrawal() releaseCall {
	return releaseCall{lock: r.Lock, id: r.ID, permanent: r.Permanent, undo: true, previous: r.previous(), perTick: r.perTick(),
		slot: -1, length: r.Lease, accounted: r.accounted()}
}

// accounted tells whether it matters later that the request was granted: it has a tick, or its run is an orphan if it dies.
func (r Request) accounted() bool { return r.Tick != nil || r.Trigger != "" || r.Adopt != "" }

func (r Request) perTick() int {
	if r.Tick == nil {
		return 1
	}
	return r.Tick.PerTick
}

func (r Request) previous() int64 {
	if r.Tick == nil {
		return 0
	}
	return max(r.Tick.Previous.Unix(), 0)
}

// checkName refuses names whose keys would not share one hash slot of a Cluster, or would be another lock's.
func checkName(name string) error {
	if name == "" {
		return errors.New("the name is empty")
	}
	if !strings.ContainsAny(name, "{}") {
		return nil
	}
	start, end := strings.IndexByte(name, '{'), strings.IndexByte(name, '}')
	if strings.Count(name, "{") != 1 || strings.Count(name, "}") != 1 || end <= start+1 {
		return errors.New("a name may have one hash tag in braces, as in {orders}:archive")
	}
	after := name[end+1:]
	last := after[strings.LastIndexByte(after, ':')+1:]
	if len(last) < len(after) && slices.Contains(keyParts, last) {
		return fmt.Errorf("a name with a hash tag can't end with :%s: another key of that tag does", last)
	}
	if strings.Contains(after, ":dead:") {
		return errors.New("a name with a hash tag can't contain :dead: behind it: other keys of that tag do")
	}
	return nil
}
