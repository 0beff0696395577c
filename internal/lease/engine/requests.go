package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// An Answer is the answer to a [Request].
type Answer struct {
	lease.Result
	ID    string // the lease id of the request
	Lease *Lease // set if Granted
}

// answerOf converts a result to an answer. For a grant, it adds a lease to the keeper.
func (c *Client) answerOf(r *Request, result *lease.Result) Answer {
	a := Answer{Result: *result, ID: r.ID}
	if a.Verdict == Granted {
		a.Lease = c.keeper.add(newLease(c, r, &result.Grant))
	}
	return a
}

// Acquire asks once for one slot. See [Client.AcquireAll]. If ctx is canceled after the request was sent, Acquire still waits for the reply, for at
// most [Config.Timeout].
func (c *Client) Acquire(ctx context.Context, r Request) Answer {
	r = r.WithDefaults()
	if s, ok := c.store.(compacter); ok {
		if result, ok := s.AcquireCompact(ctx, r); ok {
			return c.answerOf(&r, &result)
		}
	}
	return c.acquireAll(ctx, []Request{r})[0]
}

// AcquireAll asks for many slots in one round trip and returns an answer for each request, in order. After the verdict [Unknown], Redis may or may
// not have granted the slot: ask again with the answer's lease id, or call [Client.Withdraw]. An invalid request also gets the verdict Unknown, but
// its error is not [ErrUnknown].
func (c *Client) AcquireAll(ctx context.Context, requests []Request) []Answer {
	return c.acquireAll(ctx, slices.Clone(requests))
}

// acquireAll is [Client.AcquireAll] for a slice that it may modify.
func (c *Client) acquireAll(ctx context.Context, requests []Request) []Answer {
	answers := make([]Answer, len(requests))
	asked, places := splitValid(requests, answers)
	if len(asked) == 0 {
		return answers
	}
	c.store.Acquire(ctx, asked, func(n int, result lease.Result) { answers[places[n]] = c.answerOf(&asked[n], &result) })
	for n, r := range asked {
		if a := &answers[places[n]]; a.Verdict == Held && !r.Abstain && r.Channel == "" { // the store reports the contention of requests that wait in the queue
			c.cfg.Hooks.reportContention(r.Lock, a.Holder)
		}
	}
	return answers
}

// splitValid returns the valid requests with their defaults, and answers the invalid ones. It reuses the array of requests. places has the original
// index of each valid request.
func splitValid(requests []Request, answers []Answer) (asked []Request, places []int) {
	asked, places = requests[:0], make([]int, 0, len(requests))
	for i, r := range requests {
		r = r.WithDefaults()
		if err := errors.Join(r.Validate(), lease.CheckName(r.Lock)); err != nil {
			answers[i] = Answer{Result: lease.Failed(fmt.Errorf("request for lock %q: %w", r.Lock, err)), ID: r.ID}
			continue
		}
		asked, places = append(asked, r), append(places, i)
	}
	return asked, places
}

// Withdraw undoes the grant that a request with an unknown outcome may have got, and reopens its tick. It returns at once, and retries in the
// background until Redis has answered or the lease must have expired. [Client.Close] waits until Withdraw has tried for twice [Config.Timeout], and
// lets it try for at least one Timeout after the call of Close. On a closed client, Withdraw tries for up to [Config.Timeout] before it returns.
func (c *Client) Withdraw(r Request, id string) {
	r.ID = id
	c.withdrawRequest(r.WithDefaults())
}

// AwaitWithdrawal withdraws a request whose answer never arrived, and waits for the result. Its work must not have begun. Afterwards the lease id
// can't be granted any more, and the tick is open again unless the run was adopted or abandoned. It returns when Redis has answered and enough
// replicas have the write, or when ctx ends.
func (c *Client) AwaitWithdrawal(ctx context.Context, r Request) error {
	w := lease.Withdrawal(r.WithDefaults())
	w.Acked = true
	if _, err := c.store.Release(ctx, w); err != nil {
		return fmt.Errorf("withdraw a request for %q: %w", r.Lock, err)
	}
	return nil
}

// mostGivenUp bounds the releases under way in the background. More can accumulate only if Redis is unreachable, which has then granted few of these
// requests. Leases that are not released expire.
const mostGivenUp = 10_000

// giveUp continues a release in the background, until Redis has answered or the lease must have expired. It returns false if the client is closed.
func (c *Client) giveUp(r lease.ReleaseRequest) bool {
	row := *r.Row // a copy, so that the lease can be freed
	r.Row = &row
	return c.work.Go(func() {
		defer c.givenUp.Add(-1)
		if c.givenUp.Add(1) > mostGivenUp {
			return
		}
		begun := c.cfg.Clock()
		ctx, cancel := context.WithTimeout(c.work.Life(), r.Row.Request.Lease+c.cfg.Timeout)
		defer cancel()
		if _, err := c.store.Release(ctx, r); err == nil || !c.work.Over() {
			return
		}
		c.tryLast(r, max(begun+2*c.cfg.Timeout, c.work.EndedAt()+c.cfg.Timeout))
	})
}

// tryLast tries to release while the client closes or after it has closed, until the local instant end.
func (c *Client) tryLast(r lease.ReleaseRequest, end time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), end-c.cfg.Clock())
	defer cancel()
	_, _ = c.store.Release(ctx, r)
}

// withdrawRequest undoes the grant that a request may have got. It works in the background, or before it returns if the client is closed. The caller
// must not repeat the request.
func (c *Client) withdrawRequest(r Request) {
	if !c.giveUp(lease.Withdrawal(r)) {
		c.tryLast(lease.Withdrawal(r), c.cfg.Clock()+c.cfg.Timeout)
	}
}

// Inspect returns the states of many locks in one round trip. Before that, it frees the rows of leases that have ended. Runs with a trigger become
// orphans.
func (c *Client) Inspect(ctx context.Context, locks []InspectRequest) []State {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	check := func(l InspectRequest) error { return cmp.Or(lease.CheckName(l.Lock), l.Validate(), c.work.Ready()) }
	refuse := func(l InspectRequest, err error) State {
		return State{Err: fmt.Errorf("look at %q: %w", l.Lock, err)}
	}
	return askValid(locks, check, refuse, func(valid []InspectRequest) []State { return c.store.Inspect(ctx, valid) })
}

// DeleteOrphans deletes orphans whose outcome was recorded.
func (c *Client) DeleteOrphans(ctx context.Context, lock string, ids ...string) error {
	if err := lease.CheckName(lock); err != nil {
		return fmt.Errorf("delete orphans of %q: %w", lock, err)
	}
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	if err := c.store.DeleteOrphans(ctx, lock, ids); err != nil {
		return fmt.Errorf("delete orphans of %q: %w", lock, err)
	}
	return nil
}

// Stop asks holders to stop, in one round trip, and returns an answer for each request, in order. A holder whose client called [Client.Subscribe]
// gets a message at once. Otherwise, if the message is lost, or on a quorum, the holder gets the request with the reply to its next renewal. The
// lease is renewed until its holder releases it. If Redis loses its data before the holder has got the request, the request is lost: repeat Stop
// while the lease is held.
func (c *Client) Stop(ctx context.Context, requests []StopRequest) []StopAnswer {
	check := func(r StopRequest) error { return errors.Join(r.Validate(), lease.CheckName(r.Lock), c.work.Ready()) }
	refuse := func(r StopRequest, err error) StopAnswer {
		return StopAnswer{Err: fmt.Errorf("stop a holder of %q: %w", r.Lock, err)}
	}
	return askValid(requests, check, refuse, func(valid []StopRequest) []StopAnswer { return c.store.Stop(ctx, valid) })
}

// Stopping returns a channel that is closed when the holder is asked to stop: see [Client.Stop]. The holder decides when it stops. The lease is
// renewed until the holder releases it.
func (l Run) Stopping() <-chan struct{} { return l.stopping.doneChannel() }

// StopReason returns the reason why the holder is asked to stop; "" if it is not.
func (l Run) StopReason() string {
	if !l.stopping.isSet() {
		return ""
	}
	return l.stopReason
}

// askToStop sets the stopping signal with a reason. It ignores later reasons, and the reason "".
func (l *Lease) askToStop(reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if reason == "" || l.stopping.isSet() {
		return
	}
	l.stopReason = reason
	l.stopping.setOnce()
}

func (k *keeper) askToStop(id, reason string) {
	if l := k.liveLease(id); l != nil {
		l.askToStop(reason)
	}
}

// Pause sets or ends the pauses of many locks in one round trip. It notifies the clients that [Client.Subscribe], so that they know the pause if the
// server forgets it. After an unknown outcome the same request may be repeated.
func (c *Client) Pause(ctx context.Context, requests []PauseRequest) []PauseAnswer {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	check := func(r PauseRequest) error { return cmp.Or(lease.CheckName(r.Lock), r.Validate(), c.work.Ready()) }
	refuse := func(r PauseRequest, err error) PauseAnswer {
		return PauseAnswer{Err: fmt.Errorf("pause %q: %w", r.Lock, err)}
	}
	return askValid(requests, check, refuse, func(valid []PauseRequest) []PauseAnswer { return c.store.Pause(ctx, valid) })
}

// Remove deletes permanent locks that are no longer needed, because they never expire. It deletes all data of each lock, unless the lock is held, has
// orphans, is paused, or was used after unusedSince, by Redis's clock. removed reports for each lock whether it was deleted. Another client that uses
// a deleted lock again assumes that Redis has lost the lock's data. Remove does not work on a quorum.
func (c *Client) Remove(ctx context.Context, locks []string, unusedSince time.Time) (removed []bool, err error) {
	s, err := storeAs[remover](c.store, "remove locks")
	if err != nil {
		return nil, err
	}
	if err := c.work.Ready(); err != nil {
		return nil, fmt.Errorf("remove locks: %w", err)
	}
	return s.Remove(ctx, locks, unusedSince)
}

// Publish sends events to all clients that called [Client.Subscribe]: the grants of leases with a tick, so that other clients need not request the
// tick, and the releases of ended, so that waiters poll less often. A lost event costs one request or one pause between requests. Publish waits for
// an answer for at most [Config.Timeout]. On a quorum it does nothing.
func (c *Client) Publish(ctx context.Context, leases, ended []*Lease) error {
	p, ok := c.store.(eventPublisher)
	if !ok {
		return nil
	}
	granted, released := make([]lease.GrantedRow, len(leases)), make([]string, len(ended))
	for i, l := range leases {
		granted[i] = l.grantEvent()
	}
	for i, l := range ended {
		released[i] = l.lockName()
	}
	if err := p.Publish(ctx, granted, released); err != nil {
		return fmt.Errorf("publish grants: %w", err)
	}
	return nil
}

// grantEvent returns the event about a lease. Its Until shows whether the lease is held, was given back, or was handed over to a recovery.
func (l *Lease) grantEvent() lease.GrantedRow {
	p := lease.GrantedRow{Row: &l.row, Until: l.row.Grant.Expiry}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.givenBack:
		p.Until = l.row.Grant.Now
	case l.leftAt > 0:
		p.Until = l.leftAt
	}
	return p
}

// Subscribe calls f with events until ctx ends, and records them in this client's observed state. While subscribed, the client receives the messages
// of [Client.Stop] at once. If Redis is unreachable or forbids the subscription (see [Config.OnForbidden]), Subscribe retries with growing pauses. f
// is called from one goroutine.
func (c *Client) Subscribe(ctx context.Context, f func([]GrantEvent)) {
	if p, ok := c.store.(eventPublisher); ok {
		p.Subscribe(ctx, f)
		return
	}
	<-ctx.Done()
}

// askValid calls ask with the requests that pass check, and refuse for the others. It returns an answer for each request, in order.
func askValid[R, A any](requests []R, check func(R) error, refuse func(R, error) A, ask func([]R) []A) []A {
	answers := make([]A, len(requests))
	valid := make([]R, 0, len(requests))
	places := make([]int, 0, len(requests)) // the indexes of the valid requests
	for i, r := range requests {
		if err := check(r); err != nil {
			answers[i] = refuse(r, err)
			continue
		}
		valid, places = append(valid, r), append(places, i)
	}
	if len(valid) == 0 {
		return answers
	}
	for n, a := range ask(valid) {
		answers[places[n]] = a
	}
	return answers
}
