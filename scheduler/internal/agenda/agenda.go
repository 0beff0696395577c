// Package agenda decides which ticks of which jobs are to be claimed next. It holds the timeline of all schedules, the open ticks of
// each job, and the state of each tick.
//
// The caller reports events to an [Agenda]: that time passes ([Agenda.Collect]), that a tick is claimed ([Agenda.Send]), the answer to the claim
// ([Tick.Heard], and then [Agenda.Ask], [Agenda.Doubt], [Agenda.Park], [Agenda.Grant], [Agenda.Return] or [Agenda.Close]), and that a place is free
// ([Agenda.Wake]). [Agenda.Take] returns the ticks that are to be claimed, and [Agenda.Asks] when the next one is. It does no I/O and has no clock:
// each instant is an argument. An agenda, its jobs and its ticks belong to one goroutine.
package agenda

import (
	"slices"
	"time"
)

// Agenda holds the ticks to come: the timeline of all jobs, and the open ticks ordered by when they are to be claimed.
type Agenda struct {
	// Turn is how long other replicas are given to ask first for a tick.
	Turn func(j *Job, tick time.Time) time.Duration
	// StoodStill is set while the caller's loop has come round much later than it wanted.
	StoodStill bool
	// Refused is called with an error for each transition that was refused. Defaults to none.
	Refused func(error)

	timeline timeline[*Job]
	due      []dueBucket[*Job] // due instants from the timeline that are not open yet
	taken    time.Time         // when that was
	asks     Queue[*Tick]
	starved  Queue[*Tick] // parked since the replica is full, by tick
	refusals int
}

// MaxOpen bounds the open ticks of a job. Beyond it the oldest are given up: the undecided ticks before the oldest open one are settled together, as
// soon as the server answers.
const MaxOpen = 1000

// openAtOnce is how many ticks of one instant are opened before the first are claimed: the server works while the others are opened.
const openAtOnce = 500

// unanswered is how long after it was due, or claimed, a tick is still undecided only if the server is silent.
const unanswered = 500 * time.Millisecond

// ClockSlack is about how far our idea of the server's clock may be ahead of it: a round trip.
const ClockSlack = 2 * time.Millisecond

// longestSoon bounds the pause of [Agenda.AskSoon].
const longestSoon = 50 * time.Millisecond

// maxPassed is how far behind the oldest tick of a backlog others are skipped: the ledger has an entry for each of them until the backlog is gone, and
// takes for decided every tick that lies before more than a thousand.
const maxPassed = MaxOpen - 2

// Enter adds a job to the timeline: its ticks after an instant come due from now on.
func (a *Agenda) Enter(j *Job, after time.Time) { a.timeline.add(j.Spec, j, after) }

// Next is when the next tick of any schedule is due, if one ever is.
func (a *Agenda) Next() (at time.Time, ok bool) { return a.timeline.next() }

// Asks is the queue of ticks that are to be claimed.
func (a *Agenda) Asks() *Queue[*Tick] { return &a.asks }

// Starved is how many ticks wait for a place on this replica.
func (a *Agenda) Starved() int { return a.starved.Len() }

// Collect opens ticks that are due: of one instant some, and More then returns true; of several all, as those of a job belong together. It returns those
// that must be given up for them.
func (a *Agenda) Collect(now time.Time) (given []*Tick) {
	if !a.More() {
		a.due, a.taken = a.timeline.take(now), now
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

// More returns whether ticks are due that are not open yet.
func (a *Agenda) More() bool { return len(a.due) > 0 }

// Clear forgets the ticks that are due, and those to come. Open ticks stay.
func (a *Agenda) Clear() { a.timeline, a.due = timeline[*Job]{}, nil }

// silent returns whether a tick stays undecided: its last claim was not answered, or found the lock closed; or there was no answer for long, though it
// was not given up yet. (A fan-out may be open until its deadline.) Ticks that come due after it then wait behind it.
func (a *Agenda) silent(k *Tick, now time.Time) bool {
	switch {
	case !k.Waits():
		return now.Sub(k.Due) >= unanswered && (k.in(asking) || k.Job.PerTick == 1)
	case k.last != Answered:
		return !k.in(parked) // else it has not been claimed since
	}
	_, queued := k.inAsks.When()
	return (queued || k.in(asking)) && now.Sub(k.since()) >= unanswered
}

// Open adds a tick of a job. It waits if no replica can decide it as it comes due: its successor is due already, or a tick before it is silent. One that
// comes due behind a backlog while the server answers does not wait: it is skipped if all slots are held.
func (a *Agenda) Open(j *Job, of Instants, now time.Time) *Tick {
	j.opened++
	if of.Name.IsZero() {
		of.Name = of.At
	}
	k := &Tick{Job: j, Instants: of, Rules: j.Rules, Trigger: Scheduled, Cause: Cause{Reason: Late}, state: Due{}, nth: j.opened, opened: now}
	k.inAsks.Value, k.inStarved.Value = k, k
	if a.comesLate(k, now) {
		k.wait()
	}
	if a.StoodStill && now.Sub(k.Due) >= unanswered {
		k.Cause.Reason = Overload
	}
	if j.Elsewhere { // it can't win: if no replica that can has decided it in time, none of them was there
		k.Wait(Cause{Reason: Down})
	}
	if reason, trouble, joins := a.joins(k, now); joins {
		k.Wait(Cause{Reason: reason})
		k.shares(trouble)
	}
	i, _ := j.Find(k.Name)
	if i == len(j.Open) {
		a.passOver(j, now)
	}
	j.Open = slices.Insert(j.Open, i, k)
	a.displace(k, now)
	if j.Elsewhere {
		a.Park(k, false, now)
	} else {
		a.Ask(k, k.Due.Add(a.Turn(j, k.At)), now)
	}
	return k
}

// comesLate sets when a new tick is due, and until when, and returns whether it is too late for any replica to claim it in time.
func (a *Agenda) comesLate(k *Tick, now time.Time) bool {
	if k.Job.Spec == nil {
		k.Due = k.Since
		if k.At.After(k.Due) { // the jobs before it ended the tick of another zone, which had the same local time
			k.Due = k.At
		}
		k.Deadline = k.Job.deadlineAfter(k.At, k.Due)
		return now.Sub(k.Since) >= unanswered
	}
	k.Due, k.Deadline = k.Job.due(k.At, k.Next), k.Job.Deadline(k.At, k.Next)
	return !k.Next.IsZero() && !k.Next.After(now)
}

// OpenAgain opens a tick that was granted once more: for another of its grants, or to be settled at its deadline.
func (a *Agenda) OpenAgain(k *Tick, now time.Time) {
	again := a.Open(k.Job, k.Instants, now)
	again.Won, again.nth = k.Won+1, k.nth
}

// joins returns whether a tick that is opened joins the backlog of its job, and the reason and the trouble of that.
func (a *Agenda) joins(k *Tick, now time.Time) (reason Reason, trouble Trouble, joins bool) {
	for _, o := range k.Job.Open {
		together := o.Waits() && o.opened.Equal(now) // after a long sleep, or a step of the clock
		far := o.inLine() && k.nth-o.nth >= maxPassed
		switch {
		case o.Waits() && (together || far || a.silent(o, now)):
			return o.Cause.Reason, o.Trouble, true
		case a.silent(o, now):
			reason, trouble := a.blame(o)
			return reason, trouble, true
		}
	}
	return "", Trouble{}, false
}

// blame returns why a tick was undecided for long: this replica has not asked, or may not have heard the answer; else the server has not answered.
func (a *Agenda) blame(k *Tick) (Reason, Trouble) {
	if a.StoodStill || k.ID == "" {
		return Overload, Trouble{}
	}
	return Redis, Trouble{Since: k.since()}
}

// LineUp puts the later ticks of a job behind one that waits, so that they do not skip each other.
func (a *Agenda) LineUp(k *Tick) {
	for _, o := range k.Job.Open {
		if o.Name.After(k.Name) && !o.Waits() {
			o.wait()
			o.Cause.Reason = k.Cause.Reason
			o.shares(k.Trouble)
		}
	}
}

// Ask schedules the next claim of a tick: at the latest just after its deadline, so that a replica settles it.
func (a *Agenda) Ask(k *Tick, at, now time.Time) {
	since := a.schedule(k, at, now)
	a.to(k, k.queued(since))
}

// schedule puts a tick in the queue. Its place among others may be in the past, at which it was not claimed yet.
func (a *Agenda) schedule(k *Tick, at, now time.Time) (since time.Time) {
	if last := k.afterDeadline(); now.Before(last) && at.After(last) {
		at = last
	}
	a.starved.Remove(&k.inStarved)
	a.asks.Set(&k.inAsks, at)
	return later(at, now)
}

// AskSoon is Ask at an instant that should lie ahead by the server's clock; if it does not by ours, after a short pause,
// which grows as long as the two disagree.
func (a *Agenda) AskSoon(k *Tick, at, now time.Time) {
	a.Ask(k, k.soon(at, now), now)
}

func (k *Tick) soon(at, now time.Time) time.Time {
	if at.After(now) {
		k.pause = 0
		return at
	}
	k.pause = min(max(2*k.pause, ClockSlack), longestSoon)
	return now.Add(k.pause)
}

// Doubt schedules the next claim of a tick whose last one was not answered, whatever its deadline.
func (a *Agenda) Doubt(k *Tick, at time.Time) {
	a.to(k, Unsure{k.since()})
	a.asks.Set(&k.inAsks, at)
}

// PutBack leaves a tick that was taken in its state, to be taken at an instant.
func (a *Agenda) PutBack(k *Tick, at time.Time) { a.asks.Set(&k.inAsks, at) }

// Park puts a tick aside until there is a place for it, or it is its turn; past its deadline a replica has to settle it,
// one tick of a job after the other.
func (a *Agenda) Park(k *Tick, full bool, now time.Time) {
	since := k.since()
	if k.Late(now) && !k.oldest() {
		a.asks.Remove(&k.inAsks)
	} else {
		since = a.schedule(k, k.soon(k.afterDeadline(), now), now)
	}
	a.to(k, Parked{since})
	if full {
		a.starved.Set(&k.inStarved, k.At)
	}
}

// Send notes that a tick is claimed now.
func (a *Agenda) Send(k *Tick, c Claim, now time.Time) {
	a.starved.Remove(&k.inStarved)
	a.to(k, Asking{now, c})
}

// Grant notes that a tick is run by this replica.
func (a *Agenda) Grant(k *Tick) { a.leave(k, Running{}) }

// Return notes that the grant of a tick is being given back. It stays open.
func (a *Agenda) Return(k *Tick) { a.to(k, Returning{}) }

// Close forgets a tick: it is decided, or given up.
func (a *Agenda) Close(k *Tick) { a.leave(k, Closed{}) }

// GiveUp forgets a tick that may be undecided. If its claim is under way the answer is still to be dealt with.
func (a *Agenda) GiveUp(k *Tick, dropped bool) (underWay bool) {
	if k.in(asking) {
		a.leave(k, GivenUp{dropped})
		return true
	}
	a.leave(k, Closed{})
	return false
}

// leave takes a tick out of the agenda.
func (a *Agenda) leave(k *Tick, last State) {
	a.asks.Remove(&k.inAsks)
	a.starved.Remove(&k.inStarved)
	a.to(k, last)
	k.Job.Open = slices.DeleteFunc(k.Job.Open, func(o *Tick) bool { return o == k })
}

// Take removes at most limit of the ticks to claim now from the queue, the oldest first. Each is to be sent, parked or claimed later.
func (a *Agenda) Take(now time.Time, limit int) []*Tick {
	batch := a.asks.Take(now, limit)
	slices.SortStableFunc(batch, func(x, y *Tick) int { return x.At.Compare(y.At) })
	return batch
}

// Behind returns until when a tick of a backlog lets an older one go first, which waits for its next look: else the tick that is looked at first would
// be granted. Then both are claimed in one batch, the older one before.
func (a *Agenda) Behind(k *Tick) (until time.Time, waits bool) {
	if !k.Waits() {
		return until, false // it can't win
	}
	for _, o := range k.ahead() {
		if at, waiting := o.inAsks.When(); waiting && !o.in(parked) && o.inLine() && at.After(until) {
			until, waits = at, true
		}
	}
	return until, waits
}
