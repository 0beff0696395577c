package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// A Client sends the requests of a scheduler to a [Store]. Only package locking creates Clients. A Client is safe for concurrent use.
type Client struct {
	cfg     ClientConfig
	givenUp atomic.Int64 // the number of releases under way in the background
}

// A ClientConfig is the configuration of a [Client].
type ClientConfig struct {
	Store   Store
	Timeout time.Duration // the timeout of one round trip to Redis
	Clock   func() time.Duration
	Work    *Background // runs the work that continues after a call has returned
	// Observed has the states of the locks that the Store has observed.
	Observed *ObservedCache
	// Hold begins to renew a granted lease, and returns the lease. It takes r and g by value: a pointer would move the request to the heap.
	Hold      func(r Request, g Grant) Run
	Contended func(lock, holder string) // reports that a lock has another holder
	Waited    func(lock string, wait time.Duration)
}

// NewClient returns a client.
func NewClient(cfg ClientConfig) *Client { return &Client{cfg: cfg} }

// EstimatedTime returns an estimate of Redis's time, without a call to Redis. ok is false before the first reply.
func (c *Client) EstimatedTime() (t time.Time, ok bool) {
	micros, ok := c.cfg.Store.Estimate(c.cfg.Clock())
	return FromMicros(micros), ok
}

// EstimateError returns the maximum error of [Client.EstimatedTime]. The error depends on the latency of the replies. It is 0 before the first reply.
func (c *Client) EstimateError() time.Duration {
	return c.cfg.Store.Margin(c.cfg.Clock())
}

// ForgetLocks makes the client forget the observed states of locks for which unused returns true and that it has not observed for [MaxLease]. Otherwise it
// would keep the states of all permanent locks.
func (c *Client) ForgetLocks(unused func(lock string) bool) {
	c.cfg.Observed.forgetUnused(c.cfg.Clock(), unused)
}

// finish adds the lease id to a result and, if the request was granted, the held lease. The store sets neither.
func (c *Client) finish(r *Request, result Result) Result {
	result.ID = r.ID
	if result.Verdict == Granted {
		result.Run = c.cfg.Hold(*r, result.Grant)
	}
	return result
}

// Acquire sends one request for a slot: see [Client.AcquireAll]. If ctx is canceled after the request was sent, Acquire may still wait for the reply,
// for at most [ClientConfig.Timeout].
func (c *Client) Acquire(ctx context.Context, r Request) Result {
	r = r.WithDefaults()
	if s, ok := c.cfg.Store.(Compacter); ok {
		if result, ok := s.AcquireCompact(ctx, r); ok {
			return c.finish(&r, result)
		}
	}
	return c.acquireAll(ctx, []Request{r})[0]
}

// AcquireAll sends many requests in one round trip, and returns their results in the same order. After the verdict [Unknown], Redis may or may not
// have granted the slot: repeat the request with the lease id of the result, or call [Client.Withdraw]. An invalid request also gets the verdict
// Unknown, but with an error that is not [ErrUnknown].
func (c *Client) AcquireAll(ctx context.Context, requests []Request) []Result {
	return c.acquireAll(ctx, slices.Clone(requests))
}

// acquireAll is [Client.AcquireAll], except that it overwrites requests.
func (c *Client) acquireAll(ctx context.Context, requests []Request) []Result {
	answers := make([]Result, len(requests))
	asked, places := splitValid(requests, answers)
	if len(asked) == 0 {
		return answers
	}
	c.cfg.Store.Acquire(ctx, asked, func(n int, result Result) { answers[places[n]] = c.finish(&asked[n], result) })
	for n, r := range asked {
		if a := &answers[places[n]]; a.Verdict == Held && !r.Abstain && r.Channel == "" { // the store calls Contended for requests that wait in the queue
			c.cfg.Contended(r.Lock, a.Holder)
		}
	}
	return answers
}

// splitValid returns the valid requests with their defaults, in the array of requests, and stores a result in answers for each invalid one. places
// has the original index of each valid request.
func splitValid(requests []Request, answers []Result) (asked []Request, places []int) {
	asked, places = requests[:0], make([]int, 0, len(requests))
	for i, r := range requests {
		r = r.WithDefaults()
		if err := errors.Join(r.Validate(), CheckName(r.Lock)); err != nil {
			answers[i] = Result{Verdict: Unknown, ID: r.ID, Err: fmt.Errorf("request for lock %q: %w", r.Lock, err)}
			continue
		}
		asked, places = append(asked, r), append(places, i)
	}
	return asked, places
}

// TryAcquire repeats a request until its outcome is known, for at most [Client.TryFor]. If the outcome is still unknown then, the error wraps
// [ErrUnknown], and the client releases in the background the lease that Redis may have granted.
func (c *Client) TryAcquire(ctx context.Context, r Request) Result {
	if c.cfg.Work.Begin() { // so that closing the client waits until this call has withdrawn its grants
		defer c.cfg.Work.Done()
	}
	began := c.cfg.Clock()
	a := c.Acquire(ctx, r)
	if !errors.Is(a.Err, ErrUnknown) {
		return a // the usual case needs no timer
	}
	r.FirstTry = false
	ctx, cancel := context.WithTimeout(ctx, began+c.TryFor(r.Lease)-c.cfg.Clock())
	defer cancel()
	for retry := NewRetry(c.cfg.Timeout); a.Unsure(); {
		c.cfg.Work.Sleep(ctx, retry.Next())
		if ctx.Err() != nil {
			a.Err = fmt.Errorf("%w (%w)", a.Err, context.Cause(ctx))
			break
		}
		if again := c.Acquire(ctx, r); !again.Unsure() || ctx.Err() == nil { // after the end of ctx, keep the earlier error: the new one only reports this end
			a = again
		}
	}
	if a.Verdict != Granted { // Redis may still grant an earlier try, even if the last try was refused or the client is closed
		c.Withdraw(r, r.ID)
	}
	return a
}

// TryFor returns the time after which a call gives up if Redis does not answer. It is for calls that do not wait until a slot is free.
func (c *Client) TryFor(lease time.Duration) time.Duration {
	return min(lease, time.Duration(c.cfg.Store.RoundTrips())*c.cfg.Timeout)
}

// Wait waits until a slot is granted or ctx ends. On one master, the lock's queue is first come, first served; on a quorum, Wait polls. The fields of
// r must have their defaults: see [Request.WithDefaults].
func (c *Client) Wait(ctx context.Context, r Request) (Run, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("lock %q: %w", r.Lock, context.Cause(ctx))
	}
	if !c.cfg.Work.Begin() { // so that closing the client waits until this call has returned
		return nil, fmt.Errorf("lock %q: %w", r.Lock, ErrClosed)
	}
	defer c.cfg.Work.Done()
	if err := errors.Join(r.Validate(), CheckName(r.Lock)); err != nil {
		return nil, fmt.Errorf("lock %q: %w", r.Lock, err)
	}
	began := c.cfg.Clock()
	g, err := c.cfg.Store.Wait(ctx, r)
	if err != nil {
		c.Withdraw(r, r.ID)
		return nil, fmt.Errorf("lock %q: %w", r.Lock, err)
	}
	l := c.cfg.Hold(r, g)
	c.cfg.Waited(r.Lock, c.cfg.Clock()-began)
	return l, nil
}

// WaitConfirmed is [Client.Wait] for work that takes time to stop: the returned lease has its full length. [Request.For] describes work.
func (c *Client) WaitConfirmed(ctx context.Context, r Request, work string) (Run, error) {
	if c.cfg.Work.Begin() { // if the client is closed, Wait returns the error
		defer c.cfg.Work.Done()
	}
	for {
		r = r.For(work)
		l, err := c.Wait(ctx, r)
		if err != nil {
			return nil, err
		}
		select {
		case <-l.Confirmed():
			return l, nil
		case <-l.Context().Done():
			c.Withdraw(r, r.ID) // Redis may still have the lease: a renewal whose reply was lost may have extended it
		}
	}
}

// Withdraw undoes the grant that r may have got under the lease id id, and reopens its tick. It returns at once, and retries in the background until
// Redis has answered or the lease must have expired. If the client is closed meanwhile, the retries go on until one [ClientConfig.Timeout] after the
// close, and at least two Timeouts after their start. Close waits for them. If the client was closed before, Withdraw itself tries for up to one
// Timeout.
func (c *Client) Withdraw(r Request, id string) {
	r.ID = id
	w := Withdrawal(r.WithDefaults())
	if !c.GiveUp(w) {
		c.tryLast(w, c.cfg.Clock()+c.cfg.Timeout)
	}
}

// AwaitWithdrawal withdraws a request whose reply never arrived, and waits for the result. The work of the request must not have begun. Afterwards
// the lease id can't be granted any more, and the tick is open again, unless another client has adopted or abandoned the run. AwaitWithdrawal returns
// when Redis has answered and enough Redis replicas have the write, or when ctx ends.
func (c *Client) AwaitWithdrawal(ctx context.Context, r Request) error {
	w := Withdrawal(r.WithDefaults())
	w.Acked = true
	if _, err := c.cfg.Store.Release(ctx, w); err != nil {
		return fmt.Errorf("withdraw a request for %q: %w", r.Lock, err)
	}
	return nil
}

// mostGivenUp is the maximum number of releases under way in the background. Further releases are dropped. This only happens while Redis is
// unreachable, so Redis has granted few of these requests, and a lease that is not released expires.
const mostGivenUp = 10_000

// GiveUp continues a release in the background, until Redis has answered or the lease must have expired. It returns false if the client is closed.
func (c *Client) GiveUp(r ReleaseRequest) bool {
	row := *r.Row // a copy, because the original pointer would keep the whole lease in memory
	r.Row = &row
	return c.cfg.Work.Go(func() {
		defer c.givenUp.Add(-1)
		if c.givenUp.Add(1) > mostGivenUp {
			return
		}
		begun := c.cfg.Clock()
		ctx, cancel := context.WithTimeout(c.cfg.Work.Life(), r.Row.Request.Lease+c.cfg.Timeout)
		defer cancel()
		if _, err := c.cfg.Store.Release(ctx, r); err == nil || !c.cfg.Work.Over() {
			return
		}
		c.tryLast(r, max(begun+2*c.cfg.Timeout, c.cfg.Work.endedAt+c.cfg.Timeout))
	})
}

// tryLast repeats a release until it succeeds, at most until the local instant end. It also works after the client was closed.
func (c *Client) tryLast(r ReleaseRequest, end time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), end-c.cfg.Clock())
	defer cancel()
	_, _ = c.cfg.Store.Release(ctx, r)
}

// Inspect returns the states of many locks in one round trip. Before that, it frees the rows of leases that have ended. The run of such a lease
// becomes an orphan if the lease has a trigger.
func (c *Client) Inspect(ctx context.Context, locks []InspectRequest) []State {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	check := func(l InspectRequest) error { return cmp.Or(CheckName(l.Lock), l.Validate(), c.cfg.Work.Ready()) }
	refuse := func(l InspectRequest, err error) State {
		return State{Err: fmt.Errorf("look at %q: %w", l.Lock, err)}
	}
	return askValid(locks, check, refuse, func(valid []InspectRequest) []State { return c.cfg.Store.Inspect(ctx, valid) })
}

// DeleteOrphans deletes orphans whose outcome was recorded.
func (c *Client) DeleteOrphans(ctx context.Context, lock string, ids ...string) error {
	if err := CheckName(lock); err != nil {
		return fmt.Errorf("delete orphans of %q: %w", lock, err)
	}
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	if err := c.cfg.Store.DeleteOrphans(ctx, lock, ids); err != nil {
		return fmt.Errorf("delete orphans of %q: %w", lock, err)
	}
	return nil
}

// Stop asks holders to stop, in one round trip, and returns their answers in the order of the requests. The reply to the next renewal of a lease
// carries the request to its holder. On one master, a holder whose client called [Client.Subscribe] also gets a message at once. The client renews
// the lease until the holder releases it. If Redis loses its data before the holder has got the request, the request is lost: repeat Stop while the
// lease is held.
func (c *Client) Stop(ctx context.Context, requests []StopRequest) []StopAnswer {
	check := func(r StopRequest) error { return errors.Join(r.Validate(), CheckName(r.Lock), c.cfg.Work.Ready()) }
	refuse := func(r StopRequest, err error) StopAnswer {
		return StopAnswer{Err: fmt.Errorf("stop a holder of %q: %w", r.Lock, err)}
	}
	return askValid(requests, check, refuse, func(valid []StopRequest) []StopAnswer { return c.cfg.Store.Stop(ctx, valid) })
}

// Pause sets or ends the pauses of many locks in one round trip. It notifies the clients that called [Client.Subscribe], so that they can restore a
// pause if Redis loses it. If the outcome is unknown, the caller may repeat the request.
func (c *Client) Pause(ctx context.Context, requests []PauseRequest) []PauseAnswer {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	check := func(r PauseRequest) error { return cmp.Or(CheckName(r.Lock), r.Validate(), c.cfg.Work.Ready()) }
	refuse := func(r PauseRequest, err error) PauseAnswer {
		return PauseAnswer{Err: fmt.Errorf("pause %q: %w", r.Lock, err)}
	}
	return askValid(requests, check, refuse, func(valid []PauseRequest) []PauseAnswer { return c.cfg.Store.Pause(ctx, valid) })
}

// TakePause gives a permanent lock the pause of another permanent lock. Of the two pauses, the one that was changed later counts, and the end of a pause is a
// change, too. So a repeated call changes nothing.
func (c *Client) TakePause(ctx context.Context, from, lock string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*c.cfg.Timeout) // it reads one lock, and then writes the other
	defer cancel()
	err := cmp.Or(CheckName(from), CheckName(lock), c.cfg.Work.Ready())
	if err == nil {
		err = c.cfg.Store.TakePause(ctx, from, lock)
	}
	if err != nil {
		return fmt.Errorf("take the pause of %q for %q: %w", from, lock, err)
	}
	return nil
}

// Remove deletes permanent locks, which never expire by themselves. It deletes all data of a lock, unless the lock is held, has orphans, is paused,
// or was used after the instant unusedSince of Redis's clock. removed reports for each lock whether it was deleted. If another client that has used a
// deleted lock uses it again, that client assumes that Redis has lost the lock's data. Remove does not work on a quorum.
func (c *Client) Remove(ctx context.Context, locks []string, unusedSince time.Time) (removed []bool, err error) {
	s, err := StoreAs[Remover](c.cfg.Store, "remove locks")
	if err != nil {
		return nil, err
	}
	if err := c.cfg.Work.Ready(); err != nil {
		return nil, fmt.Errorf("remove locks: %w", err)
	}
	return s.Remove(ctx, locks, unusedSince)
}

// Publish sends two kinds of events to all clients that called [Client.Subscribe]: the grants of runs, so that other clients need not request their
// ticks, and the releases of the runs in ended, so that waiting clients need not poll often. A lost event costs one request, or one pause between
// requests. Publish waits for at most [ClientConfig.Timeout]. On a quorum it does nothing.
func (c *Client) Publish(ctx context.Context, runs, ended []Run) error {
	p, ok := c.cfg.Store.(EventPublisher)
	if !ok {
		return nil
	}
	granted, released := make([]GrantedRow, len(runs)), make([]string, len(ended))
	for i, l := range runs {
		granted[i] = l.GrantedRow()
	}
	for i, l := range ended {
		released[i] = l.GrantedRow().Row.Request.Lock
	}
	if err := p.Publish(ctx, granted, released); err != nil {
		return fmt.Errorf("publish grants: %w", err)
	}
	return nil
}

// Subscribe calls f with events until ctx ends, always from one goroutine. It also records the state of the locks from the events. While it runs, the
// client receives the messages of [Client.Stop]. If Redis is unreachable or forbids the subscription (see locking.Config.OnForbidden), Subscribe
// retries with growing pauses. On a quorum it gets no events.
func (c *Client) Subscribe(ctx context.Context, f func([]GrantEvent)) {
	if p, ok := c.cfg.Store.(EventPublisher); ok {
		p.Subscribe(ctx, f)
		return
	}
	<-ctx.Done()
}

// askValid calls ask with the requests that pass check, and refuse with each other request. It returns the answers in the order of the requests.
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
