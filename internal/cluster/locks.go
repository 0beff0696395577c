package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/lease"
)

// A Lock is a lock of `cronclave lock`, or a pool, with its holders and waiters.
type Lock struct {
	Name    string       `json:"name"`
	Slots   int          `json:"slots"`
	Holders []SlotHolder `json:"holders"` // sorted by slot
	Waiters int          `json:"waiters"`
	// Waiting has the first [MostWaiting] waiters, sorted by the start of their wait. It lacks clients that use package locking directly, because they do not
	// list themselves in Redis.
	Waiting []Waiter `json:"waiting"`
}

// A Pool is a semaphore that jobs share.
type Pool struct {
	Lock
	Jobs []string `json:"jobs"` // names of the jobs whose runs need a slot
}

// A SlotHolder is a holder of a slot of a lock.
type SlotHolder struct {
	Owner   string     `json:"owner"`         // a replica or a process
	Job     string     `json:"job,omitempty"` // "" if the holder is not a run
	RunID   string     `json:"run_id,omitempty"`
	Slot    int        `json:"slot"`
	Token   int64      `json:"token"`
	Since   *time.Time `json:"since,omitempty"`
	Expires time.Time  `json:"expires"` // end of the lease, unless it is renewed
}

// A Waiter waits for a slot of a lock.
type Waiter struct {
	Owner string     `json:"owner"`
	Job   string     `json:"job,omitempty"`
	RunID string     `json:"run_id,omitempty"`
	Since *time.Time `json:"since,omitempty"`
}

// MostWaiting is the maximum length of Lock.Waiting. Lock.Waiters counts all.
const MostWaiting = 10

// Full reports whether all slots are held while others wait.
func (l *Lock) Full() bool { return l.Waiters > 0 && len(l.Holders) >= l.Slots }

// PlainLock returns the internal name of the lock of `cronclave lock NAME`.
func PlainLock(name string) string { return "{" + name + "}:lock" }

// FullPools returns the full pools: all slots are held, and others wait. slots maps the pools to check to their numbers of slots. Jobs and waiters are read
// only if all slots of a pool are held. Pools and jobs with damaged data are left out.
func (o *Operator) FullPools(ctx context.Context, slots map[string]int) ([]Pool, error) {
	r := statusReader{Operator: o}
	held, err := r.heldPools(ctx, slots)
	if err == nil && len(held) > 0 {
		err = r.readPools(ctx, held)
	}
	if err != nil {
		return nil, unavailableError("read the pools of namespace "+o.cfg.Namespace, err)
	}
	return slices.DeleteFunc(r.status.Pools, func(p Pool) bool { return !p.Full() }), nil
}

// heldPools returns the pools whose slots are all held. If there are such pools, heldPools sets status.Now to the time of Redis.
func (r *statusReader) heldPools(ctx context.Context, slots map[string]int) (held []string, err error) {
	names := slices.Sorted(maps.Keys(slots))
	for i, state := range r.elector.InspectPools(ctx, names) {
		switch {
		case errors.Is(state.Err, election.ErrCorrupt):
		case state.Err != nil:
			return nil, state.Err
		case len(state.Running) >= slots[names[i]]:
			held, r.status.Now = append(held, names[i]), state.Now
		}
	}
	return held, nil
}

func (r *statusReader) readPools(ctx context.Context, names []string) (err error) {
	if r.jobs, err = r.describedJobs(ctx); err != nil {
		return err
	}
	r.jobs = slices.DeleteFunc(r.jobs, func(info journal.JobInfo) bool { return !slices.Contains(names, info.Pool) })
	requests := make([]election.InspectRequest, len(r.jobs))
	for i, info := range r.jobs {
		requests[i] = election.InspectRequest{Lock: election.JobLock(info.Name)}
	}
	for i, state := range r.elector.Inspect(ctx, requests) {
		if state.Err != nil && !errors.Is(state.Err, election.ErrCorrupt) {
			return state.Err
		}
		r.status.Jobs = append(r.status.Jobs, Job{Name: r.jobs[i].Name, Holders: holdersOf(state)})
	}
	uses, err := r.lockUses(ctx)
	if err != nil {
		return err
	}
	uses = slices.DeleteFunc(uses, func(use journal.LockUse) bool { return !use.Pool || !slices.Contains(names, use.Lock) })
	r.findPools(uses)
	return r.inspectLocks(ctx, uses)
}

func (r *statusReader) readLocks(ctx context.Context) error {
	uses, err := r.lockUses(ctx)
	if err != nil {
		return err
	}
	r.findPools(uses)
	for _, use := range uses {
		if !use.Pool && !slices.ContainsFunc(r.status.Locks, func(l Lock) bool { return l.Name == use.Lock }) {
			r.status.Locks = append(r.status.Locks, Lock{Name: use.Lock, Slots: use.Slots})
		}
	}
	slices.SortFunc(r.status.Locks, func(a, b Lock) int { return cmp.Compare(a.Name, b.Name) })
	return r.inspectLocks(ctx, uses)
}

// lockUses returns the entries of processes that use locks and pools, from old to new.
func (r *statusReader) lockUses(ctx context.Context) ([]journal.LockUse, error) {
	uses, err := r.journal.LockUses(ctx, r.status.Now)
	if err = r.tolerateDamage(err); err != nil {
		return nil, err
	}
	slices.SortFunc(uses, func(a, b journal.LockUse) int { return a.Since.Compare(b.Since) })
	return uses, nil
}

func (r *statusReader) inspectLocks(ctx context.Context, uses []journal.LockUse) error {
	all := r.allLocks()
	names := make([]lease.InspectRequest, len(all))
	for i, l := range all {
		names[i] = lease.InspectRequest{Lock: l.name}
	}
	for i, state := range r.locks.Engine().Inspect(ctx, names) {
		err := r.tolerateLock(all[i].title, election.Plain(state.Err))
		switch {
		case err != nil:
			return fmt.Errorf("look at %s: %w", all[i].title, err)
		case state.Err != nil:
			continue
		}
		r.noteClosed(state.Closed)
		all[i].setHolders(state.Running, r.usersOf(all[i], uses), r.status.Now)
	}
	return nil
}

// A namedLock is a lock in a Status, its name in Redis, and a title for messages.
type namedLock struct {
	*Lock
	pool        bool
	name, title string
}

func (r *statusReader) allLocks() (all []namedLock) {
	for i := range r.status.Pools {
		p := &r.status.Pools[i].Lock
		all = append(all, namedLock{p, true, election.PoolLock(p.Name), "pool " + p.Name})
	}
	for i := range r.status.Locks {
		l := &r.status.Locks[i]
		all = append(all, namedLock{l, false, PlainLock(l.Name), "lock " + l.Name})
	}
	return all
}

// findPools lists the pools that jobs and processes use. During a rollout replicas may have different numbers of slots; the greatest one is used.
func (r *statusReader) findPools(uses []journal.LockUse) {
	pools := map[string]*Pool{}
	add := func(name string, slots int) *Pool {
		p := pools[name]
		if p == nil {
			p = &Pool{Lock{Name: name}, []string{}}
			pools[name] = p
		}
		p.Slots = max(p.Slots, slots)
		return p
	}
	for _, info := range r.jobs {
		if info.Pool != "" {
			p := add(info.Pool, info.PoolSlots)
			p.Jobs = append(p.Jobs, info.Name)
		}
	}
	for _, use := range uses {
		if use.Pool {
			add(use.Lock, use.Slots)
		}
	}
	for _, p := range pools {
		r.status.Pools = append(r.status.Pools, *p)
	}
	slices.SortFunc(r.status.Pools, func(a, b Pool) int { return cmp.Compare(a.Name, b.Name) })
}

// usersOf returns the runs and processes that hold a slot of a lock or wait for one, by id. The users of a pool include all runs that hold a slot of one of
// its jobs, because a run gets a slot of its job before it waits for the pool.
func (r *statusReader) usersOf(l namedLock, uses []journal.LockUse) map[string]Waiter {
	users := map[string]Waiter{}
	for _, use := range uses {
		if use.Pool == l.pool && use.Lock == l.Name {
			users[use.ID] = Waiter{Owner: use.Owner, Since: &use.Since}
		}
	}
	for i, info := range r.jobs {
		if !l.pool || info.Pool != l.Name {
			continue
		}
		for _, h := range r.status.Jobs[i].Holders {
			users[h.RunID] = Waiter{Owner: h.Replica, Job: info.Name, RunID: h.RunID, Since: grantedAt(h.Token, r.status.Now)}
		}
	}
	return users
}

// setHolders sets the holders and the waiters of the lock. The waiters are the users without a row.
func (l *Lock) setHolders(rows []lease.Row, users map[string]Waiter, now time.Time) {
	l.Holders, l.Waiting = []SlotHolder{}, []Waiter{}
	for _, row := range rows {
		id := lease.WorkOf(row.ID)
		user := users[id]
		delete(users, id)
		l.Holders = append(l.Holders, SlotHolder{Owner: row.Holder, Job: user.Job, RunID: user.RunID, Slot: row.Slot, Token: int64(row.Token),
			Since: grantedAt(int64(row.Token), now), Expires: row.Expires})
	}
	slices.SortFunc(l.Holders, func(a, b SlotHolder) int { return cmp.Compare(a.Slot, b.Slot) })
	l.Waiting = slices.AppendSeq(l.Waiting, maps.Values(users))
	slices.SortFunc(l.Waiting, func(a, b Waiter) int {
		return cmp.Or(orZero(a.Since).Compare(orZero(b.Since)), cmp.Compare(a.Owner, b.Owner))
	})
	l.Waiters = len(l.Waiting)
	l.Waiting = l.Waiting[:min(l.Waiters, MostWaiting)]
}

func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// grantedAt returns the time at which a token was granted; nil if it is unknown. A token is the time of its grant by the clock of Redis, in microseconds, or
// the previous token plus 1 if that is greater.
func grantedAt(token int64, now time.Time) *time.Time {
	at := time.UnixMicro(token).UTC()
	if token <= 0 || at.After(now) {
		return nil
	}
	return &at
}

func (p *Pool) fullProblem() (problem Problem, full bool) {
	if !p.Full() {
		return problem, false
	}
	first := p.Waiting[0]
	text := fmt.Sprintf("pool %s is full: %s for a slot, first %s; held by %s; %s", p.Name, waitsText(p.Waiters), nameUser(first.Job, first.Owner), p.HeldBy(), p.Remedy())
	return Problem{Level: LevelAdvice, Code: CodePoolFull, Since: first.Since, Message: text}, true
}

// CodePoolFull is the code of the problem that runs wait for a full pool.
const CodePoolFull = "pool_full"

// HeldBy names the first holders of the pool, and counts the others.
func (p *Pool) HeldBy() string {
	const named = 3
	var list []string
	for _, h := range p.Holders[:min(named, len(p.Holders))] {
		list = append(list, nameUser(h.Job, h.Owner))
	}
	text := strings.Join(list, ", ")
	if more := len(p.Holders) - named; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Remedy returns what a user can do about a full pool.
func (p *Pool) Remedy() string {
	return "wait, cancel a holder, or raise slots in [pools." + p.Name + "]"
}

func waitsText(n int) string {
	if n == 1 {
		return "1 waits"
	}
	return fmt.Sprintf("%d wait", n)
}

func nameUser(job, owner string) string {
	if job == "" {
		return owner
	}
	return "job " + job + " on " + owner
}

const (
	// showAfter is the time for which a process must use a lock before a status shows it, so that short uses write nothing to Redis.
	showAfter = time.Second
	// showEvery is the interval at which the entry of a process is renewed.
	showEvery = 10 * time.Second
	// showFor is the time for which an entry lasts without renewal. It is shorter than the default lease. Otherwise, a killed process would be shown as a waiter
	// after its lease has ended.
	showFor = 15 * time.Second
	// hideWithin is the maximum time for which hide waits for Redis to remove the entry. An entry that is not removed expires.
	hideWithin = 200 * time.Millisecond
)

// ShowLock lists a process in the status as a user of a lock or a pool, from one second after the call until hide is called. The entry is for display only, so
// failures are ignored, and hide waits only a moment for Redis. lease is the lease length of the lock. clock returns the time of Redis, and whether the time is
// known.
func ShowLock(j *journal.Journal, use journal.LockUse, lease time.Duration, clock func() (now time.Time, known bool)) (hide func()) {
	ctx, cancel := context.WithCancel(context.Background())
	over, shown, began := make(chan struct{}), false, time.Now()
	lasts := min(lease, showFor)
	go func() { // the goroutine ends after hide is called; hide waits up to hideWithin for its end
		defer close(over)
		for pause := showAfter; backoff.Sleep(ctx, pause); {
			now, known := clock()
			if pause = min(showEvery, lasts*2/3); !known {
				pause = showAfter
				continue
			}
			if use.Since.IsZero() {
				use.Since = now.Add(-time.Since(began))
			}
			err := j.NoteLock(ctx, use, now, now.Add(lasts))
			shown = shown || err == nil || ctx.Err() != nil // a canceled write may have reached Redis
		}
	}()
	return func() {
		cancel()
		late, cancel := context.WithTimeout(context.Background(), hideWithin)
		defer cancel()
		select {
		case <-over:
		case <-late.Done():
			return
		}
		if shown {
			_ = j.DropLock(late, use)
		}
	}
}
