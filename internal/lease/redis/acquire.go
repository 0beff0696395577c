package redis

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// An answer is the result of a request, and the place in the queue if the request waits.
type answer struct {
	lease.Result
	line inLine
	late bool // the request reached Redis too late, so Redis did not execute it
}

// An inLine is a waiter's place in the queue, by the reply to its last request.
type inLine struct {
	since time.Duration // the local clock before the request was sent
	now   int64         // Redis's clock in the reply
	ahead int           // the number of waiters ahead in the queue
}

// mostTries is the maximum number of tries for a request that Redis refuses as late because its clock was stepped. The reply to a late try has the
// new time, so that the next try can succeed.
const mostTries = 3

// Acquire sends all requests in one round trip. It repeats requests that reached Redis too late.
func (c *Store) Acquire(ctx context.Context, requests []lease.Request, answer func(place int, r lease.Result)) {
	var places []int // the original indexes of the repeated requests
	for try := 1; len(requests) > 0; try++ {
		var late []lease.Request
		var latePlaces []int
		for n, a := range c.acquireRound(ctx, requests) {
			place := n
			if places != nil {
				place = places[n]
			}
			if a.late && try < mostTries {
				late, latePlaces = append(late, requests[n]), append(latePlaces, place)
				continue
			}
			answer(place, a.Result)
		}
		requests, places = late, latePlaces
	}
}

func (c *Store) askRow(ctx context.Context, r lease.Request) answer {
	if result, ok := c.AcquireCompact(ctx, r); ok {
		return answer{Result: result}
	}
	for try := 1; ; try++ {
		if a := c.acquireRound(ctx, []lease.Request{r})[0]; !a.late || try == mostTries {
			return a
		}
	}
}

func (c *Store) acquireRound(ctx context.Context, requests []lease.Request) []answer {
	answers := make([]answer, len(requests))
	if err := c.cfg.Work.Ready(); err != nil {
		for i, r := range requests {
			answers[i].Result = lease.Failed(fmt.Errorf("acquire %q: %w", r.Lock, err))
		}
		return answers
	}
	if c.cfg.AckedReplicas > 0 { // the timeout also limits settleOverdue, which would otherwise retry until the caller's ctx ends
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.cfg.Timeout)
		defer cancel()
	}
	calls := make([]call, len(requests))
	for i := range requests {
		calls[i] = c.acquireCall(&requests[i])
	}
	replies := c.execCalls(ctx, calls)
	settled := c.settleOverdue(ctx, requests, replies)
	for i, r := range requests {
		if a, done := settled[i]; done {
			answers[i] = a
			continue
		}
		answers[i] = c.answerOf(r, replies[i])
	}
	return answers
}

func (c *Store) acquireCall(r *lease.Request) call {
	k := c.newCall(c.scripts.Acquire, r.Lock, r.ID, r.Permanent, acquireParams.encode(r, c.cfg.Owner)...)
	k.heavy = k.heavy || r.Slots > manySlots
	return k
}

// settleOverdue settles overdue ticks, and returns their answers by index. That takes further requests, for which the caller waits. A grant that comes too late
// must be noticed (see [lease.Grant.Check]), so settleOverdue sets the time of receipt of all replies again.
func (c *Store) settleOverdue(ctx context.Context, requests []lease.Request, replies []reply) map[int]answer {
	var settled map[int]answer
	for i, r := range replies {
		if !c.isOverdue(requests[i], r) {
			continue
		}
		if settled == nil {
			settled = map[int]answer{}
		}
		settled[i] = c.settleLate(ctx, requests[i])
	}
	if settled != nil {
		setReceived(replies, c.cfg.Clock())
	}
	return settled
}

func (c *Store) answerOf(r lease.Request, got reply) answer {
	a := answer{Result: lease.Result{Verdict: lease.Verdict(got.verdict), Orphans: got.orphans}, late: got.verdict == "late"}
	if got.err == nil && !got.acked && c.mustLast(r, got) {
		a.Verdict, a.Err = lease.Unknown, fmt.Errorf("acquire %q: %w", r.Lock, c.unackedError())
		return a
	}
	switch got.verdict {
	case "granted":
		a.Grant = c.grantOf(r, got)
		if err := a.Grant.Check(r); err != nil {
			a.Verdict, a.Err = lease.Unknown, err
		}
	case "early", "closed":
		a.Until, a.line = lease.FromMicros(got.Number(0)), inLine{since: got.sent, now: got.now}
	case "held":
		a.Until, a.Holder = lease.FromMicros(got.Number(0)), got.Text(1)
	case "queued":
		a.Verdict, a.Until, a.Holder = lease.Held, lease.FromMicros(got.Number(0)), got.Text(1)
		a.line = inLine{since: got.sent, now: got.now, ahead: int(got.Number(2))}
	case "unheard":
	case "settled":
		a.Outcome = got.Text(0)
	case "decided":
		a.Outcome, a.Until, a.Holder = got.Text(0), lease.FromMicros(got.Number(1)), got.Text(2)
	case "limit":
		a.Verdict, a.Err = lease.Unknown, fmt.Errorf("lock %q asked for with %d slots has %d: %w", r.Lock, r.Slots, got.Number(0), lease.ErrLimit)
	case "dead":
		a.Verdict, a.Err = lease.Unknown, fmt.Errorf("acquire %q: lease id %s: %w", r.Lock, r.ID, lease.ErrReleased)
	case "late":
		a.Verdict, a.Err = lease.Unknown, fmt.Errorf("acquire %q: %w: the request reached the server too late", r.Lock, lease.ErrUnknown)
	default:
		a.Verdict, a.Err = lease.Unknown, fmt.Errorf("acquire %q: %w", r.Lock, cmp.Or(got.err, lease.ErrUnknown))
	}
	return a
}

// grantOf returns the grant in a reply. The holder counts the lease from Sent, before the request was sent.
func (c *Store) grantOf(r lease.Request, got reply) lease.Grant {
	row := got.grantedRow()
	g := lease.Grant{Slot: int(row.slot), Token: lease.Token(row.token), Tick: row.tick, Attempt: row.attempt, Expiry: row.expiry, Now: got.now, Known: got.knownState(),
		Sent: got.sent, Received: got.received}
	if got.form != nil {
		g.Ticket = got.form
	}
	g.RenewAfter = c.RenewAfter(g.Left(r.Lease))
	return g
}

// mustLast reports whether a verdict counts only after enough Redis replicas have acknowledged it, so that a failover can't undo it. Losing any other
// verdict does no harm.
func (c *Store) mustLast(r lease.Request, got reply) bool {
	switch got.verdict {
	case "granted":
		return c.cfg.HeldToken(r.ID) != lease.Token(got.grantedRow().token) // if this client already holds the lease, replicas have acknowledged the grant before
	case "settled", "decided":
		return true
	}
	return false
}

// isOverdue reports whether a tick is past its deadline without a usable grant to this request: the replicas did not acknowledge the grant, or
// settleLate has withdrawn it before ("dead").
func (c *Store) isOverdue(r lease.Request, got reply) bool {
	late := r.Tick != nil && !r.Tick.Deadline.IsZero() && got.now > lease.ToMicros(r.Tick.Deadline)
	if got.err != nil || !late || c.cfg.AckedReplicas == 0 {
		return false
	}
	return got.verdict == "dead" || got.verdict == "granted" && !got.acked && c.mustLast(r, got)
}

// settleLate gives back the grant of an overdue tick, and sends another request, which settles the tick.
func (c *Store) settleLate(ctx context.Context, r lease.Request) answer {
	if _, err := c.Release(ctx, lease.Withdrawal(r)); err != nil {
		return answer{Result: lease.Failed(fmt.Errorf("give back the late grant of %q: %w", r.Lock, err))}
	}
	again := r
	again.ID, again.Abstain = rand.Text(), true // the scripts refuse the withdrawn lease id
	a := c.answerOf(again, c.execCalls(ctx, []call{c.acquireCall(&again)})[0])
	a.late = false // otherwise the caller would repeat r, whose id was withdrawn
	return a
}

// AcquireCompact requests a slot with the short script for compact locks, if the newest reply showed a compact lock. ok is false if the request needs
// lua/acquire.lua.
func (c *Store) AcquireCompact(ctx context.Context, r lease.Request) (result lease.Result, ok bool) {
	if c.cfg.AckedReplicas > 0 || !isPlain(r) || c.cfg.Work.Ready() != nil {
		return result, false
	}
	know, _ := c.cfg.Observed.Last(r.Lock)
	if !know.Compact || r.Validate() != nil {
		return result, false
	}
	now := c.cfg.Clock()
	if know.Stale(now, c.cfg.Idle) {
		return result, false
	}
	k := c.compactGrant(r, know)
	k.asked = now
	got := c.execOne(ctx, k)
	switch {
	case got.err != nil:
		return lease.Failed(fmt.Errorf("acquire %q: %w", r.Lock, got.err)), true
	case got.verdict == notCompact:
		return result, false
	}
	return c.answerOf(r, got).Result, true
}

// AcquireSet sends one request for a slot of each lock. If grants is nil, refusal is the result, and refused is the name of the lock that refused, if
// one did.
func (c *Store) AcquireSet(ctx context.Context, requests []lease.Request) (grants []lease.Grant, refusal lease.Result, refused string) {
	if err := c.cfg.Work.Ready(); err != nil {
		return nil, lease.Failed(fmt.Errorf("lock %q and more: %w", requests[0].Lock, err)), ""
	}
	got := c.execCalls(ctx, []call{c.setCall(requests)})[0]
	switch {
	case got.err == nil && got.verdict == "granted" && len(got.parts) == len(requests):
		grants, result := c.grantAll(requests, got)
		return grants, result, ""
	case got.err == nil && got.verdict == "refused" && got.place >= 1 && got.place <= len(requests) && len(got.parts) > 0:
		r := requests[got.place-1]
		return nil, c.answerOf(r, got.parts[0]).Result, r.Lock
	case got.err == nil && got.verdict == "late":
		return nil, c.answerOf(requests[0], reply{verdict: "late", acked: true}).Result, ""
	}
	return nil, c.answerOf(requests[0], reply{err: cmp.Or(got.err, lease.ErrUnknown)}).Result, ""
}

func (c *Store) setCall(requests []lease.Request) call {
	k := call{script: c.scripts.AcquireSet, lock: requests[0].Lock, id: requests[0].ID}
	for _, r := range requests {
		part := c.acquireCall(&r)
		k.parts, k.keys = append(k.parts, part), append(k.keys, part.keys...)
		k.undo = append(k.undo, c.releaseCall(lease.Withdrawal(r)))
	}
	k.sync = k.parts[0].sync
	return k
}

func (c *Store) grantAll(requests []lease.Request, got reply) ([]lease.Grant, lease.Result) {
	grants := make([]lease.Grant, len(requests))
	now := c.cfg.Clock()
	for i, r := range requests {
		part := got.parts[i]
		if !got.acked && c.mustLast(r, part) {
			return nil, lease.Failed(fmt.Errorf("acquire %q: %w", r.Lock, c.unackedError()))
		}
		grants[i] = c.grantOf(r, part)
		grants[i].Received = now
		if err := grants[i].Check(r); err != nil {
			return nil, lease.Failed(err)
		}
	}
	return grants, lease.Result{Verdict: lease.Granted}
}
