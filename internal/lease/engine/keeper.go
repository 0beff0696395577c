package engine

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// keeper renews all leases of a client: one goroutine that sleeps until the next one is due, and then sends the
// renewals of all leases that are about due in one pipeline. A pipeline that hangs does not hold up others.
type keeper struct {
	client *Client
	wake   chan struct{} // capacity 1: something was added

	mu     sync.Mutex
	held   map[string]*Lease // by lease id
	due    renewals
	asleep time.Duration // local clock: until then the goroutine looks at nothing by itself
}

// checkEvery bounds the keeper's sleep, so that leases that ended in suspend are noticed soon after.
const checkEvery = time.Second

func newKeeper(c *Client) *keeper {
	return &keeper{client: c, wake: make(chan struct{}, 1), held: map[string]*Lease{}}
}

// add takes charge of a lease. A grant that was asked for twice is one lease, until it ends.
func (k *keeper) add(l *Lease) *Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	if known, ok := k.held[l.id]; ok {
		if known.token == l.token && known.ctx.Err() == nil {
			return known
		}
		known.stop(fmt.Errorf("%w: granted again", ErrLost))
		if known.index >= 0 {
			heap.Remove(&k.due, known.index)
		}
	}
	if k.client.work.Over() { // closed while the request was under way
		l.stop(ErrClosed)
		return l
	}
	k.held[l.id] = l
	k.client.cfg.Hooks.follow(l)
	l.mu.Lock()
	l.schedule(l.received)
	l.mu.Unlock()
	k.push(l)
	return l
}

// known is the lease of a grant, if it is held.
func (k *keeper) known(id string, token Token) *Lease {
	if l := k.live(id); l != nil && l.token == token {
		return l
	}
	return nil
}

// live is the lease of an id, if it is held.
func (k *keeper) live(id string) *Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l := k.held[id]; l != nil && l.ctx.Err() == nil {
		return l
	}
	return nil
}

// push queues a lease for its next renewal. mu is held.
func (k *keeper) push(l *Lease) {
	heap.Push(&k.due, l)
	if l.renewAt < k.asleep {
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
}

// hurry has a lease confirmed now.
func (k *keeper) hurry(l *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.index < 0 || isClosed(l.confirmed) {
		return
	}
	l.renewAt = min(l.renewAt, k.client.cfg.Clock())
	heap.Remove(&k.due, l.index)
	k.push(l)
}

func (k *keeper) remove(l *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held[l.id] == l {
		delete(k.held, l.id)
	}
	if l.index >= 0 {
		heap.Remove(&k.due, l.index)
	}
}

// run is the keeper's goroutine; it ends with the client.
func (k *keeper) run() {
	var pipelines sync.WaitGroup
	timer := time.NewTimer(checkEvery)
	defer timer.Stop()
	checked := k.client.cfg.Clock()
	for !k.client.work.Over() {
		if now := k.client.cfg.Clock(); now-checked >= checkEvery {
			checked = now
			k.check()
		}
		batch, sleep := k.take()
		if len(batch) > 0 {
			pipelines.Go(func() { k.renew(batch) })
			continue
		}
		timer.Reset(sleep)
		select {
		case <-k.client.work.Life().Done():
		case <-k.wake:
		case <-timer.C:
		}
	}
	pipelines.Wait()
	k.closeAll()
}

// maxBatch bounds a pipeline: renewals wait for those before them on the server.
const maxBatch = 1000

// take removes the leases that are about due; without any it says how long to sleep.
func (k *keeper) take() (batch []*Lease, sleep time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.client.cfg.Clock()
	defer func() { k.asleep = now + sleep }()
	for len(k.due) > 0 && len(batch) < maxBatch {
		l := k.due[0]
		slack := time.Duration(0)
		if len(batch) > 0 {
			slack = l.renewAfter(l.length) / 10 // a little early, to travel together
		}
		if wait := l.renewAt - slack - now; wait > 0 {
			return batch, min(wait, checkEvery)
		}
		heap.Pop(&k.due)
		if l.ctx.Err() != nil { // it has ended for us: a renewal would only hold up others
			delete(k.held, l.id)
			continue
		}
		l.goesOut()
		batch = append(batch, l)
	}
	return batch, checkEvery
}

// renewAfter is the time until the next renewal of a lease that has so much left.
func (l *Lease) renewAfter(left time.Duration) time.Duration { return l.client.store.renewAfter(left) }

// renew sends one pipeline and deals with a result for each lease.
func (k *keeper) renew(batch []*Lease) {
	c := k.client
	limit := c.cfg.Timeout
	for _, l := range batch {
		limit = min(limit, l.length/4, max(l.Remaining()/3, 10*time.Millisecond))
	}
	ctx, cancel := context.WithTimeout(c.work.Life(), limit)
	defer cancel()
	for i, got := range c.store.renew(ctx, batch) {
		k.renewed(batch[i], got)
	}
}

func (k *keeper) renewed(l *Lease, got reply) {
	now := k.client.cfg.Clock()
	verdict := got.verdict
	if !got.acked { // a failover may undo it, or has done so already: the holder relies on the earlier end
		verdict = ""
	}
	switch verdict {
	case "renewed":
		left := time.Duration(got.Number(0)-got.now) * time.Microsecond
		if margin, counts := l.margin(); counts {
			defer k.client.cfg.Hooks.renewed(l.lock, margin)
		}
		l.extend(got.sent + holdFor(left))
		l.askToStop(got.Text(2))
		l.renewAt = got.sent + l.renewAfter(l.length)
		if got.partial {
			l.renewAt = min(l.renewAt, got.sent+l.repair)
			l.repair = min(2*l.repair, l.length)
		} else {
			l.repair = spreadAfter
		}
	case "lost":
		k.remove(l)
		l.stop(fmt.Errorf("%w: %s", ErrLost, lostWhy(got)))
		return
	default: // unknown, not acknowledged, or the request was late: soon again, but not all at once
		pause := min(l.length/20, k.client.cfg.Timeout, max(l.Remaining()/4, time.Millisecond))
		l.renewAt = now + pause/2 + rand.N(pause/2+1)
	}
	k.again(l)
}

func lostWhy(got reply) string {
	if by := got.Text(1); by != "" {
		return got.Text(0) + ", now held by " + by
	}
	return got.Text(0)
}

// again queues a lease that is still held.
func (k *keeper) again(l *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held[l.id] != l {
		return // released meanwhile
	}
	if l.ctx.Err() != nil {
		delete(k.held, l.id)
		return
	}
	k.push(l)
}

// check lets every lease look at the clock.
func (k *keeper) check() {
	for _, l := range k.all() {
		l.watch()
	}
}

func (k *keeper) closeAll() {
	for _, l := range k.all() {
		k.remove(l)
		l.stop(ErrClosed)
	}
}

func (k *keeper) all() []*Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]*Lease, 0, len(k.held))
	for _, l := range k.held {
		all = append(all, l)
	}
	return all
}

// renewals is a heap of leases by their next renewal.
type renewals []*Lease

func (r renewals) Len() int           { return len(r) }
func (r renewals) Less(i, j int) bool { return r[i].renewAt < r[j].renewAt }
func (r renewals) Swap(i, j int) {
	r[i], r[j] = r[j], r[i]
	r[i].index, r[j].index = i, j
}
func (r *renewals) Push(x any) {
	l := x.(*Lease)
	l.index = len(*r)
	*r = append(*r, l)
}
func (r *renewals) Pop() any {
	old := *r
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*r = old[:len(old)-1]
	l.index = -1
	return l
}
