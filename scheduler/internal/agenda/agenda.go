// Package agenda selects the ticks that a replica claims next. It holds the timeline of all schedules, the open ticks of each job, and the state of
// each open tick. A tick is open on a replica from the time when it is due until the replica knows that it is decided. A place is this replica's
// capacity for one run. "The server" is the Redis server.
//
// The caller calls [Agenda.Collect] as time passes, [Agenda.Take] for the ticks to claim now, [Agenda.Send] when it claims one, and [Agenda.Wake] when a place
// becomes free. After a claim it calls [Tick.NoteAnswer], or [Tick.NoteSilence] if no answer came, and then one of [Agenda.Grant] (granted), [Agenda.Close]
// (decided or given up), [Agenda.Ask] (claim again), [Agenda.Doubt] (claim again, no answer came), [Agenda.Park] (wait for a place or for older ticks) and
// [Agenda.Return] (the grant is given back). [Agenda.Asks] is the queue of ticks to claim. The package does no I/O and reads no clock: every instant is an
// argument. An agenda, its jobs and its ticks belong to one goroutine.
package agenda

import (
	"slices"
	"time"

	"github.com/cronclave/cronclave/scheduler/run"
)

// An Agenda has the timeline of the future ticks of all jobs, and the queue of open ticks to be claimed.
type Agenda[T any] struct {
	// Turn returns the delay with which this replica claims a tick. Replicas have different delays, so that they do not all claim a tick at once.
	Turn func(j *Job[T], tick time.Time) time.Duration
	// StoodStill is set by the caller if the process was stopped or got no CPU, so that the caller's loop came late. While it is set, ticks that are
	// opened late, or are undecided for long, get the reason overload.
	StoodStill bool
	// Refused is called with an error for each invalid transition. May be nil.
	Refused func(error)

	timeline timeline[*Job[T]]
	due      []dueBucket[*Job[T]] // due ticks that were taken from the timeline and are not open yet
	taken    time.Time            // the time at which the ticks in due were taken
	asks     Queue[*Tick[T]]
	starved  Queue[*Tick[T]] // parked ticks that wait for any free place, ordered by their instants
	refusals int
}

// MaxOpen is the maximum number of open ticks of a job. If there are more, the oldest are given up. As soon as the server answers, all undecided ticks
// before the oldest open tick are settled in one request.
const MaxOpen = 1000

// openAtOnce is the number of ticks of one instant that are opened before the first claims are sent, so that the server works while the remaining
// ticks are opened.
const openAtOnce = 500

// unanswered is the time after which an undecided tick is taken as a sign that the server does not answer.
const unanswered = 500 * time.Millisecond

// ClockSlack is the time by which the estimate of the server's clock may be ahead of that clock, about one round trip.
const ClockSlack = 2 * time.Millisecond

// longestSoon is the maximum pause of [Agenda.AskSoon].
const longestSoon = 50 * time.Millisecond

// maxPassed is the maximum number of later ticks that may be skipped while an older tick of a backlog waits. Each skipped tick has an entry in the job's
// ledger, its record of decided ticks in Redis, until the older tick is decided. A ledger keeps only the newest thousand entries and counts all ticks before
// them as decided, so the older tick would never run.
const maxPassed = MaxOpen - 2

// Enter adds a job to the timeline, with all its ticks after an instant.
func (a *Agenda[T]) Enter(j *Job[T], after time.Time) { a.timeline.add(j.Spec, j, after) }

// Next returns the time of the next tick in the timeline. ok is false if there is none.
func (a *Agenda[T]) Next() (at time.Time, ok bool) { return a.timeline.next() }

// Asks returns the queue of ticks to be claimed.
func (a *Agenda[T]) Asks() *Queue[*Tick[T]] { return &a.asks }

// Starved returns the number of ticks that wait for any free place on this replica.
func (a *Agenda[T]) Starved() int { return a.starved.Len() }

// Collect opens due ticks. If all due ticks have the same instant, it may open only some of them, and More then returns true. Ticks of several
// instants are opened in one call, because ticks of the same job must be opened together. Collect returns ticks that the caller must give up because
// their jobs have too many open ticks.
func (a *Agenda[T]) Collect(now time.Time) (given []*Tick[T]) {
	if !a.More() {
		a.due, a.taken = a.timeline.takeDue(now), now
	}
	several := a.More() && !a.due[0].At.Equal(a.due[len(a.due)-1].At)
	for opened := 0; a.More() && (several || opened < openAtOnce); {
		b := &a.due[0]
		n := min(openAtOnce, len(b.entries))
		for _, j := range b.entries[:n] {
			a.Open(j, b.Instants, a.taken)
			if len(j.Open) > MaxOpen {
				given = append(given, j.Open[len(j.Open)-MaxOpen-1])
			}
		}
		opened += n
		if b.entries = b.entries[n:]; len(b.entries) == 0 {
			a.due = a.due[1:]
		}
	}
	return given
}

// More reports whether some due ticks are not open yet.
func (a *Agenda[T]) More() bool { return len(a.due) > 0 }

// Clear empties the timeline and forgets due ticks that are not open. Open ticks stay.
func (a *Agenda[T]) Clear() { a.timeline, a.due = timeline[*Job[T]]{}, nil }

// isSilent reports whether a tick is undecided because the server does not decide it: its last claim was not answered or found the lock closed, or the tick
// has waited long for a claim or an answer. Later ticks of the job must then wait for this tick. A new tick of a job with PerTick > 1 counts only while its
// claim is under way, because such a tick normally stays open until its deadline.
func (a *Agenda[T]) isSilent(k *Tick[T], now time.Time) bool {
	switch {
	case !k.Waits():
		return now.Sub(k.Due) >= unanswered && (k.isIn(asking) || k.Job.PerTick == 1)
	case k.silent:
		return !k.isIn(parked) // a parked tick was not claimed again, so it does not show whether the server is still silent
	}
	_, queued := k.inAsks.When()
	return (queued || k.isIn(asking)) && now.Sub(k.state.since) >= unanswered
}

// Open opens a tick of a job. The tick waits for a slot, instead of being skipped, if no replica can claim it in time: its successor is already due, or the
// server does not decide an earlier tick of the job. While the server answers, a new tick is skipped if all slots are held, even if older ticks wait.
func (a *Agenda[T]) Open(j *Job[T], of Instants, now time.Time) *Tick[T] {
	j.opened++
	if of.Name.IsZero() {
		of.Name = of.At
	}
	k := &Tick[T]{Job: j, Instants: of, Rules: j.Rules, Trigger: run.Scheduled, Cause: Cause{Reason: run.ReasonLate}, nth: j.opened, opened: now}
	k.inAsks.Value, k.inStarved.Value = k, k
	if a.comesLate(k, now) {
		k.waitInLine()
	}
	if a.StoodStill && now.Sub(k.Due) >= unanswered {
		k.Cause.Reason = run.ReasonOverload
	}
	if j.Elsewhere { // this replica can't win the tick; if no other replica decides it, none was up
		k.Wait(Cause{Reason: run.ReasonDown})
	}
	if reason, trouble, joins := a.joinsBacklog(k, now); joins {
		k.Wait(Cause{Reason: reason})
		k.shareTrouble(trouble)
	}
	i, _ := j.Find(k.Name)
	if i == len(j.Open) {
		a.passOver(j, now)
	}
	j.Open = slices.Insert(j.Open, i, k)
	a.displaceOlder(k, now)
	if j.Elsewhere {
		a.Park(k, now)
	} else {
		a.Ask(k, k.Due.Add(a.Turn(j, k.At)), now)
	}
	return k
}

// comesLate sets Due and Deadline of a new tick. It reports whether the tick is opened so late that it must wait.
func (a *Agenda[T]) comesLate(k *Tick[T], now time.Time) bool {
	if k.Job.Spec == nil {
		k.Due = k.Since
		if k.At.After(k.Due) { // the job's zone was edited: the parents ended this tick in the old zone, in which the local time of the tick comes earlier
			k.Due = k.At
		}
		k.Deadline = k.Job.deadlineAfter(k.At, k.Due)
		return now.Sub(k.Since) >= unanswered
	}
	k.Due, k.Deadline = k.Job.dueAt(k.At, k.Next), k.Job.Deadline(k.At, k.Next)
	return !k.Next.IsZero() && !k.Next.After(now)
}

// OpenAgain reopens a granted tick of a job with PerTick > 1, for another grant or to be settled at its deadline.
func (a *Agenda[T]) OpenAgain(k *Tick[T], now time.Time) {
	again := a.Open(k.Job, k.Instants, now)
	again.Won, again.nth = k.Won+1, k.nth
}

// joinsBacklog reports whether a new tick must wait because older ticks of its job wait or are undecided for long. It returns the reason and the
// trouble of the older tick.
func (a *Agenda[T]) joinsBacklog(k *Tick[T], now time.Time) (reason run.Reason, trouble Trouble, joins bool) {
	for _, o := range k.Job.Open {
		together := o.Waits() && o.opened.Equal(now) // opened in the same call, after a long sleep or a clock step
		far := o.inLine() && k.nth-o.nth >= maxPassed
		switch {
		case o.Waits() && (together || far || a.isSilent(o, now)):
			return o.Cause.Reason, o.Trouble, true
		case a.isSilent(o, now):
			reason, trouble := a.blameUndecided(o)
			return reason, trouble, true
		}
	}
	return "", Trouble{}, false
}

// blameUndecided returns the reason for which a tick has been undecided for long. The reason is overload if this replica did not claim the tick, or
// stood still and may not have read the answer. Otherwise it is redis.
func (a *Agenda[T]) blameUndecided(k *Tick[T]) (run.Reason, Trouble) {
	if a.StoodStill || k.ID == "" {
		return run.ReasonOverload, Trouble{}
	}
	return run.ReasonRedis, Trouble{Since: k.state.since}
}

// LineUp makes all later ticks of a job wait if a tick waits. Otherwise the run of one later tick could cause the other later ticks to be skipped.
func (a *Agenda[T]) LineUp(k *Tick[T]) {
	for _, o := range k.Job.Open {
		if o.Name.After(k.Name) && !o.Waits() {
			o.waitInLine()
			o.Cause.Reason = k.Cause.Reason
			o.shareTrouble(k.Trouble)
		}
	}
}

// Ask schedules the next claim of a tick. The claim comes at the latest just after the tick's deadline, so that the server settles the tick.
func (a *Agenda[T]) Ask(k *Tick[T], at, now time.Time) {
	since := a.queueClaim(k, at, now)
	a.moveTo(k, k.queuedState(since))
}

// queueClaim queues a tick for a claim at the given time, or just after the tick's deadline if that is earlier. It returns the time from which the
// tick counts as waiting for an answer.
func (a *Agenda[T]) queueClaim(k *Tick[T], at, now time.Time) (since time.Time) {
	if last := k.afterDeadline(); now.Before(last) && at.After(last) {
		at = last
	}
	a.starved.Remove(&k.inStarved)
	a.asks.Set(&k.inAsks, at)
	if at.Before(now) {
		return now
	}
	return at
}

// AskSoon is [Agenda.Ask] for an instant that the server's clock has not reached. If the local estimate of the server's clock has already reached this
// instant, the claim follows after a short pause. The pause grows with each such call.
func (a *Agenda[T]) AskSoon(k *Tick[T], at, now time.Time) {
	a.Ask(k, k.soonAt(at, now), now)
}

func (k *Tick[T]) soonAt(at, now time.Time) time.Time {
	if at.After(now) {
		k.pause = 0
		return at
	}
	k.pause = min(max(2*k.pause, ClockSlack), longestSoon)
	return now.Add(k.pause)
}

// Doubt schedules the next claim of a tick whose last claim was not answered. The claim is repeated even after the deadline.
func (a *Agenda[T]) Doubt(k *Tick[T], at time.Time) {
	a.moveTo(k, State{name: unsure, since: k.state.since})
	a.asks.Set(&k.inAsks, at)
}

// PutBack puts a tick that [Agenda.Take] returned back into the queue, without a change of its state.
func (a *Agenda[T]) PutBack(k *Tick[T], at time.Time) { a.asks.Set(&k.inAsks, at) }

// Park suspends the claims of a tick until this replica has a place for it, or until the older ticks of the job are decided. A parked tick past its deadline
// is claimed even without a place, so that the server settles it, but only if it is the oldest open tick of its job.
func (a *Agenda[T]) Park(k *Tick[T], now time.Time) {
	full := k.state.full
	since := k.state.since
	if k.Late(now) && !k.isOldest() {
		a.asks.Remove(&k.inAsks)
	} else {
		since = a.queueClaim(k, k.soonAt(k.afterDeadline(), now), now)
	}
	a.moveTo(k, State{name: parked, since: since})
	if full {
		a.starved.Set(&k.inStarved, k.At)
	}
}

// Send records that a tick is being claimed. full is true if this replica has no free place for any job.
func (a *Agenda[T]) Send(k *Tick[T], full bool, now time.Time) {
	a.starved.Remove(&k.inStarved)
	a.moveTo(k, State{name: asking, since: now, full: full})
}

// Grant removes a tick that was granted to this replica.
func (a *Agenda[T]) Grant(k *Tick[T]) { a.removeTick(k, State{name: running}) }

// Return records that the grant of a tick is being given back. The tick stays open.
func (a *Agenda[T]) Return(k *Tick[T]) { a.moveTo(k, State{name: returning}) }

// Close removes a tick that is decided or given up.
func (a *Agenda[T]) Close(k *Tick[T]) { a.removeTick(k, State{name: closed}) }

// GiveUp removes a tick although it may be undecided; dropped is true if its schedule was replaced. underWay reports whether a claim of it is under way.
func (a *Agenda[T]) GiveUp(k *Tick[T], dropped bool) (underWay bool) {
	if k.isIn(asking) {
		a.removeTick(k, State{name: givenUp, dropped: dropped})
		return true
	}
	a.removeTick(k, State{name: closed})
	return false
}

func (a *Agenda[T]) removeTick(k *Tick[T], last State) {
	a.asks.Remove(&k.inAsks)
	a.starved.Remove(&k.inStarved)
	a.moveTo(k, last)
	k.Job.Open = slices.DeleteFunc(k.Job.Open, func(o *Tick[T]) bool { return o == k })
}

// Take removes the ticks to claim now from the queue, at most limit, and returns them, the oldest first. The caller must then send, park or
// reschedule each of them.
func (a *Agenda[T]) Take(now time.Time, limit int) []*Tick[T] {
	batch := a.asks.Take(now, limit)
	slices.SortStableFunc(batch, func(x, y *Tick[T]) int { return x.At.Compare(y.At) })
	return batch
}

// Behind reports whether a waiting tick must wait for the next claim of an older tick of its job, and returns the time of this claim. The caller then claims
// both ticks in one batch, the older tick first. If the newer tick were claimed earlier, it would be granted first.
func (a *Agenda[T]) Behind(k *Tick[T]) (until time.Time, waits bool) {
	if !k.Waits() {
		return until, false // a tick that does not wait for a slot can't win before an older waiting tick
	}
	for _, o := range k.olderTicks() {
		if at, waiting := o.inAsks.When(); waiting && !o.isIn(parked) && o.inLine() && at.After(until) {
			until, waits = at, true
		}
	}
	return until, waits
}

// Wake schedules claims of the oldest parked ticks of a job, as many as may run on this replica. free is the number of free places on this replica.
func (a *Agenda[T]) Wake(j *Job[T], free int, now time.Time) {
	if len(j.Open) > 0 && j.Open[0].isIn(parked) && j.Open[0].Late(now) {
		a.Ask(j.Open[0], now, now)
	}
	places := j.PerReplica - j.Running
	for _, k := range j.Open {
		switch {
		case !k.isIn(parked) || k.Late(now) || k.MustWait(now):
			continue
		case !k.MayWin(): // the tick can't win, so its claim needs no place
			a.Ask(k, k.Due, now)
			continue
		case places <= 0:
			continue
		case free > 0:
			a.Ask(k, k.Due, now)
		default:
			a.starved.Set(&k.inStarved, k.At)
		}
		places, free = places-1, free-1
	}
}

// WakeStarved schedules claims of the oldest ticks of all jobs that were parked because this replica was full. places is the number of free places.
func (a *Agenda[T]) WakeStarved(places int, now time.Time) {
	for range places {
		k, ok := a.starved.Pop()
		if !ok {
			return
		}
		a.Ask(k, k.Due, now)
	}
}

// WakeWaiting schedules claims of the ticks that wait for a slot of a job, after a slot became free. Each claim is delayed by Turn, counted from the
// instant from, so that the replicas claim one after the other.
func (a *Agenda[T]) WakeWaiting(j *Job[T], from, now time.Time) {
	for _, k := range j.Open {
		if k.Waits() && k.canAsk() && !k.isIn(parked) && k.MayWin() {
			a.Ask(k, from.Add(a.Turn(j, k.At)), now)
		}
	}
}
