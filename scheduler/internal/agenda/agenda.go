// Package agenda decides which ticks are claimed next. It has the timeline of all schedules, the open ticks of each job, and the state of each tick.
//
// The caller reports events to an [Agenda]: that time passes ([Agenda.Collect]), that a tick is claimed ([Agenda.Send]), the answer to a claim
// ([Tick.NoteAnswer], and then [Agenda.Ask], [Agenda.Doubt], [Agenda.Park], [Agenda.Grant], [Agenda.Return] or [Agenda.Close]), and that a place is
// free ([Agenda.Wake]). [Agenda.Take] returns the ticks to claim now, and [Agenda.Asks] the queue with the time of the next claim. The package does
// no I/O and has no clock: each instant is an argument. An agenda, its jobs and its ticks belong to one goroutine.
package agenda

import (
	"slices"
	"time"
)

// An Agenda has the ticks to come: the timeline of all jobs, and the open ticks in the order in which they are to be claimed.
type Agenda struct {
	// Turn returns the time for which other replicas may ask first for a tick.
	Turn func(j *Job, tick time.Time) time.Duration
	// StoodStill is true while the loop of the caller is much later than planned.
	StoodStill bool
	// Refused is called with an error for each refused transition. Defaults to none.
	Refused func(error)

	timeline timeline[*Job]
	due      []dueBucket[*Job] // the due ticks from the timeline that are not open yet
	taken    time.Time         // the time at which they were taken from the timeline
	asks     Queue[*Tick]
	starved  Queue[*Tick] // parked because the replica is full, ordered by instant
	refusals int
}

// MaxOpen bounds the open ticks of a job. Beyond it the oldest are given up: the undecided ticks before the oldest open one are settled together, as
// soon as the server answers.
const MaxOpen = 1000

// openAtOnce is the number of ticks of one instant that are opened before the first are claimed. The server works while the others are opened.
const openAtOnce = 500

// unanswered is the time after which a tick that is due or claimed and still undecided means that the server is silent.
const unanswered = 500 * time.Millisecond

// ClockSlack is about how far the estimate of the server's clock may be ahead of that clock: a round trip.
const ClockSlack = 2 * time.Millisecond

// longestSoon bounds the pause of [Agenda.AskSoon].
const longestSoon = 50 * time.Millisecond

// maxPassed bounds the ticks that are skipped ahead of the oldest tick of a backlog. The ledger has an entry for each of them until the backlog is
// gone, and with more than a thousand entries it takes every older tick for decided.
const maxPassed = MaxOpen - 2

// Enter adds a job to the timeline. Its ticks after an instant come due from now on.
func (a *Agenda) Enter(j *Job, after time.Time) { a.timeline.add(j.Spec, j, after) }

// Next returns the time of the next tick of any schedule. ok is false if there is none.
func (a *Agenda) Next() (at time.Time, ok bool) { return a.timeline.next() }

// Asks returns the queue of ticks that are to be claimed.
func (a *Agenda) Asks() *Queue[*Tick] { return &a.asks }

// Starved returns the number of ticks that wait for a place on this replica.
func (a *Agenda) Starved() int { return a.starved.Len() }

// Collect opens due ticks. Of a single instant it may open only some, and More then returns true; several instants are opened at once, because the
// ticks of a job belong together. It returns ticks that the caller must give up, because their jobs have too many open ones.
func (a *Agenda) Collect(now time.Time) (given []*Tick) {
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

// More reports whether ticks are due that are not open yet.
func (a *Agenda) More() bool { return len(a.due) > 0 }

// Clear forgets the ticks that are due but not open, and all later ones. Open ticks stay.
func (a *Agenda) Clear() { a.timeline, a.due = timeline[*Job]{}, nil }

// isSilent reports whether a tick stays undecided: its last claim was not answered or found the lock closed, or there was no answer for long, though it
// was not given up. (A fan-out may be open until its deadline.) Later ticks of the job then wait behind it.
func (a *Agenda) isSilent(k *Tick, now time.Time) bool {
	switch {
	case !k.Waits():
		return now.Sub(k.Due) >= unanswered && (k.isIn(asking) || k.Job.PerTick == 1)
	case k.last != Answered:
		return !k.isIn(parked) // a parked tick was not claimed since
	}
	_, queued := k.inAsks.When()
	return (queued || k.isIn(asking)) && now.Sub(k.waitsSince()) >= unanswered
}

// Open adds a tick of a job. The tick waits if no replica can decide it as it comes due: its successor is due already, or an earlier tick is silent.
// A tick that comes due behind a backlog while the server answers does not wait: it is skipped if all slots are held.
func (a *Agenda) Open(j *Job, of Instants, now time.Time) *Tick {
	j.opened++
	if of.Name.IsZero() {
		of.Name = of.At
	}
	k := &Tick{Job: j, Instants: of, Rules: j.Rules, Trigger: Scheduled, Cause: Cause{Reason: Late}, state: Due{}, nth: j.opened, opened: now}
	k.inAsks.Value, k.inStarved.Value = k, k
	if a.comesLate(k, now) {
		k.waitInLine()
	}
	if a.StoodStill && now.Sub(k.Due) >= unanswered {
		k.Cause.Reason = Overload
	}
	if j.Elsewhere { // this replica can't win it; if no replica that can has decided it in time, none was there
		k.Wait(Cause{Reason: Down})
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
		a.Park(k, false, now)
	} else {
		a.Ask(k, k.Due.Add(a.Turn(j, k.At)), now)
	}
	return k
}

// comesLate sets the times of a new tick, and reports whether it is too late for any replica to claim it in time.
func (a *Agenda) comesLate(k *Tick, now time.Time) bool {
	if k.Job.Spec == nil {
		k.Due = k.Since
		if k.At.After(k.Due) { // the parents ended the tick of another zone, which had the same local time
			k.Due = k.At
		}
		k.Deadline = k.Job.deadlineAfter(k.At, k.Due)
		return now.Sub(k.Since) >= unanswered
	}
	k.Due, k.Deadline = k.Job.dueAt(k.At, k.Next), k.Job.Deadline(k.At, k.Next)
	return !k.Next.IsZero() && !k.Next.After(now)
}

// OpenAgain opens a tick again that was granted: for another of its grants, or to be settled at its deadline.
func (a *Agenda) OpenAgain(k *Tick, now time.Time) {
	again := a.Open(k.Job, k.Instants, now)
	again.Won, again.nth = k.Won+1, k.nth
}

// joinsBacklog reports whether a new tick joins the backlog of its job, and returns the reason and the trouble that it takes over.
func (a *Agenda) joinsBacklog(k *Tick, now time.Time) (reason Reason, trouble Trouble, joins bool) {
	for _, o := range k.Job.Open {
		together := o.Waits() && o.opened.Equal(now) // after a long sleep, or a step of the clock
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

// blameUndecided returns the reason why a tick stayed undecided for long: Overload if this replica never asked, or stood still and may not have read the answer;
// Redis if the server did not answer.
func (a *Agenda) blameUndecided(k *Tick) (Reason, Trouble) {
	if a.StoodStill || k.ID == "" {
		return Overload, Trouble{}
	}
	return Redis, Trouble{Since: k.waitsSince()}
}

// LineUp makes the later ticks of a job wait behind a tick that waits, so that they do not skip each other.
func (a *Agenda) LineUp(k *Tick) {
	for _, o := range k.Job.Open {
		if o.Name.After(k.Name) && !o.Waits() {
			o.waitInLine()
			o.Cause.Reason = k.Cause.Reason
			o.shareTrouble(k.Trouble)
		}
	}
}

// Ask schedules the next claim of a tick. It is no later than just after the tick's deadline, so that a replica settles it.
func (a *Agenda) Ask(k *Tick, at, now time.Time) {
	since := a.queueClaim(k, at, now)
	a.moveTo(k, k.queuedState(since))
}

// queueClaim queues a tick for at, or for just after its deadline if that comes first, and returns the time since which it waits.
func (a *Agenda) queueClaim(k *Tick, at, now time.Time) (since time.Time) {
	if last := k.afterDeadline(); now.Before(last) && at.After(last) {
		at = last
	}
	a.starved.Remove(&k.inStarved)
	a.asks.Set(&k.inAsks, at)
	return later(at, now)
}

// AskSoon is [Agenda.Ask] for an instant that the server's clock has not reached. If the local estimate of that clock has, the claim comes after a
// short pause, which grows while the two disagree.
func (a *Agenda) AskSoon(k *Tick, at, now time.Time) {
	a.Ask(k, k.soonAt(at, now), now)
}

func (k *Tick) soonAt(at, now time.Time) time.Time {
	if at.After(now) {
		k.pause = 0
		return at
	}
	k.pause = min(max(2*k.pause, ClockSlack), longestSoon)
	return now.Add(k.pause)
}

// Doubt schedules the next claim of a tick whose last claim was not answered, whatever its deadline.
func (a *Agenda) Doubt(k *Tick, at time.Time) {
	a.moveTo(k, Unsure{k.waitsSince()})
	a.asks.Set(&k.inAsks, at)
}

// PutBack returns a taken tick to the queue without a change of its state.
func (a *Agenda) PutBack(k *Tick, at time.Time) { a.asks.Set(&k.inAsks, at) }

// Park puts a tick aside until there is a place for it, or it is its turn. Past its deadline a replica has to settle it, one tick of a job after the
// other.
func (a *Agenda) Park(k *Tick, full bool, now time.Time) {
	since := k.waitsSince()
	if k.Late(now) && !k.isOldest() {
		a.asks.Remove(&k.inAsks)
	} else {
		since = a.queueClaim(k, k.soonAt(k.afterDeadline(), now), now)
	}
	a.moveTo(k, Parked{since})
	if full {
		a.starved.Set(&k.inStarved, k.At)
	}
}

// Send records that a tick is being claimed.
func (a *Agenda) Send(k *Tick, c Claim, now time.Time) {
	a.starved.Remove(&k.inStarved)
	a.moveTo(k, Asking{now, c})
}

// Grant records that this replica runs a tick.
func (a *Agenda) Grant(k *Tick) { a.removeTick(k, Running{}) }

// Return records that the grant of a tick is being given back. The tick stays open.
func (a *Agenda) Return(k *Tick) { a.moveTo(k, Returning{}) }

// Close removes a tick that is decided, or given up.
func (a *Agenda) Close(k *Tick) { a.removeTick(k, Closed{}) }

// GiveUp removes a tick that may be undecided. underWay is true if its claim still has to be answered.
func (a *Agenda) GiveUp(k *Tick, dropped bool) (underWay bool) {
	if k.isIn(asking) {
		a.removeTick(k, GivenUp{dropped})
		return true
	}
	a.removeTick(k, Closed{})
	return false
}

// removeTick removes a tick from the agenda.
func (a *Agenda) removeTick(k *Tick, last State) {
	a.asks.Remove(&k.inAsks)
	a.starved.Remove(&k.inStarved)
	a.moveTo(k, last)
	k.Job.Open = slices.DeleteFunc(k.Job.Open, func(o *Tick) bool { return o == k })
}

// Take removes and returns the ticks to claim now, the oldest first, at most limit. The caller then sends, parks or reschedules each of them.
func (a *Agenda) Take(now time.Time, limit int) []*Tick {
	batch := a.asks.Take(now, limit)
	slices.SortStableFunc(batch, func(x, y *Tick) int { return x.At.Compare(y.At) })
	return batch
}

// Behind returns the time until which a tick of a backlog must wait for an older one, whose next claim is later. Otherwise the tick that is claimed
// first would be granted. Then both are claimed in one batch, the older one first.
func (a *Agenda) Behind(k *Tick) (until time.Time, waits bool) {
	if !k.Waits() {
		return until, false // it can't win
	}
	for _, o := range k.olderTicks() {
		if at, waiting := o.inAsks.When(); waiting && !o.isIn(parked) && o.inLine() && at.After(until) {
			until, waits = at, true
		}
	}
	return until, waits
}
