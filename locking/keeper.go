package locking

import (
	"container/heap"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// A keeper renews all leases of a client. One goroutine sleeps until the next renewal is due, and sends it in one pipeline with all renewals that are
// due soon. A pipeline that hangs does not delay later pipelines.
type keeper struct {
	store   lease.Store
	clock   func() time.Duration
	timeout time.Duration
	hooks   Hooks
	work    *lease.Background
	wake    chan struct{} // capacity 1: wakes the goroutine early

	mu     sync.Mutex
	held   map[string]*Lease // by lease id
	due    renewals
	asleep time.Duration // the local time until which the goroutine sleeps, unless it is woken
}

// checkEvery bounds the keeper's sleep, so that it soon ends leases that expired while the machine was suspended.
const checkEvery = time.Second

// newKeeper returns a keeper without a store. The store is created later, because its constructor needs the keeper.
func newKeeper(cfg Config, work *lease.Background) *keeper {
	return &keeper{clock: cfg.Clock, timeout: cfg.Timeout, hooks: cfg.Hooks, work: work, wake: make(chan struct{}, 1), held: map[string]*Lease{}}
}

// add adds a lease and returns it. If the keeper already has a lease of the same grant that has not ended, add returns that lease instead.
func (k *keeper) add(l *Lease) *Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	if known, ok := k.held[l.ID()]; ok {
		if known.Token() == l.Token() && known.ctx.Err() == nil {
			return known
		}
		known.endWith(fmt.Errorf("%w: granted again", ErrLost))
		if known.index >= 0 {
			heap.Remove(&k.due, known.index)
		}
	}
	if k.work.Over() { // the client was closed while the request was under way
		l.endWith(ErrClosed)
		return l
	}
	k.held[l.ID()] = l
	k.hooks.reportEnd(l, k.clock)
	l.mu.Lock()
	l.setTimer(max(l.row.Grant.Received, l.row.Grant.Sent))
	l.mu.Unlock()
	k.pushDue(l)
	return l
}

// tokenOf returns the fencing token of the lease with an id, or 0 if it is not held.
func (k *keeper) tokenOf(id string) lease.Token {
	if l := k.liveLease(id); l != nil {
		return l.Token()
	}
	return 0
}

// liveLease returns the lease with an id, or nil if it is not held.
func (k *keeper) liveLease(id string) *Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l := k.held[id]; l != nil && l.ctx.Err() == nil {
		return l
	}
	return nil
}

// pushDue queues a lease for its next renewal. The caller holds mu.
func (k *keeper) pushDue(l *Lease) {
	heap.Push(&k.due, l)
	if l.renewAt < k.asleep {
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
}

// renewNow makes the renewal of a lease due now, unless the lease is confirmed.
func (k *keeper) renewNow(l *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.index < 0 || isClosed(l.confirmed) {
		return
	}
	l.renewAt = min(l.renewAt, k.clock())
	heap.Remove(&k.due, l.index)
	k.pushDue(l)
}

func (k *keeper) remove(l *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held[l.ID()] == l {
		delete(k.held, l.ID())
	}
	if l.index >= 0 {
		heap.Remove(&k.due, l.index)
	}
}

// run is the keeper's goroutine. It ends with the client.
func (k *keeper) run() {
	var pipelines sync.WaitGroup
	timer := time.NewTimer(checkEvery)
	defer timer.Stop()
	checked := k.clock()
	for !k.work.Over() {
		if now := k.clock(); now-checked >= checkEvery {
			checked = now
			for _, l := range k.allLeases() {
				l.checkDeadline()
			}
		}
		batch, sleep := k.takeDue()
		if len(batch) > 0 {
			pipelines.Go(func() { k.renewBatch(batch) })
			continue
		}
		timer.Reset(sleep)
		select {
		case <-k.work.Life().Done():
		case <-k.wake:
		case <-timer.C:
		}
	}
	pipelines.Wait()
	k.closeAll()
}

// takeDue removes and returns the leases whose renewal is due now or soon. If there are none, sleep is the time until the next call.
func (k *keeper) takeDue() (batch []*Lease, sleep time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock()
	defer func() { k.asleep = now + sleep }()
	for len(k.due) > 0 && len(batch) < lease.MaxBatch {
		l := k.due[0]
		slack := time.Duration(0)
		if len(batch) > 0 {
			slack = k.store.RenewAfter(l.Length()) / 10 // a lease that is due soon is renewed a little early, to share the pipeline
		}
		if wait := l.renewAt - slack - now; wait > 0 {
			return batch, min(wait, checkEvery)
		}
		heap.Pop(&k.due)
		if l.ctx.Err() != nil { // the lease has ended for its holder; a renewal would block other clients for nothing
			delete(k.held, l.ID())
			continue
		}
		l.goesOut()
		batch = append(batch, l)
	}
	return batch, checkEvery
}

func (k *keeper) renewBatch(batch []*Lease) {
	limit := k.timeout
	asked := make([]lease.Renewal, len(batch))
	for i, l := range batch {
		limit = min(limit, l.Length()/4, max(l.Remaining()/3, 10*time.Millisecond))
		asked[i] = l.renewalRequest()
	}
	ctx, cancel := context.WithTimeout(k.work.Life(), limit)
	defer cancel()
	for i, got := range k.store.Renew(ctx, asked) {
		k.handleRenewed(batch[i], got)
	}
}

func (k *keeper) handleRenewed(l *Lease, got lease.Renewed) {
	now := k.clock()
	switch {
	case got.Done:
		if margin, counts := l.renewalMargin(); counts {
			defer k.hooks.reportRenewal(l, margin)
		}
		l.extendTo(got.Sent + lease.HoldFor(got.Left))
		l.askToStop(got.Stop)
		l.renewAt = got.Sent + got.Next
	case got.Lost:
		k.remove(l)
		l.endWith(fmt.Errorf("%w: %s", ErrLost, got.Why))
		return
	default: // the outcome is unknown: retry soon, at a random time so that not all leases retry at once
		pause := min(l.Length()/20, k.timeout, max(l.Remaining()/4, time.Millisecond))
		l.renewAt = now + pause/2 + rand.N(pause/2+1)
	}
	k.queueAgain(l)
}

func (k *keeper) queueAgain(l *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held[l.ID()] != l {
		return // the lease was released while its renewal was under way
	}
	if l.ctx.Err() != nil {
		delete(k.held, l.ID())
		return
	}
	k.pushDue(l)
}

func (k *keeper) closeAll() {
	for _, l := range k.allLeases() {
		k.remove(l)
		l.endWith(ErrClosed)
	}
}

func (k *keeper) allLeases() []*Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Values(k.held))
}

// A renewals is a heap of leases by the time of their next renewal.
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
