package scheduler

import (
	"crypto/rand"
	"slices"
	"strings"
	"time"
)

// tick is an open tick of a job: due, and not yet known to be decided.
type tick struct {
	task      *task
	at        time.Time     // by the schedule
	previous  time.Time     // the one before it
	due       time.Time     // from when it may start: its jitter later
	deadline  time.Time     // until when it may start
	id        string        // of the claim, the same each time it is asked for, and of the run
	reason    string        // why it is missed if its deadline passes
	waited    bool          // nobody could decide it in time: it waits for its turn, and does not skip
	placed    bool          // it has a place on this replica: its claim is under way, or nobody knows what became of it
	asking    bool          // its claim is under way
	unsure    bool          // nobody has answered its last claim
	doubted   bool          // nor some claim before: one may still be on its way
	parked    bool          // it waits for a place on this replica, or for its turn
	abstained bool          // the last claim was one that could not win
	full      bool          // since the replica was full
	won       int           // how often it was granted here
	returned  bool          // its grant became known too late, and is being given back
	closed    bool          // it is open no more
	pause     time.Duration // before it is asked for again: see askSoon
}

// agenda holds what is to come: the timeline of all jobs, and the open ticks by when to ask for them.
type agenda struct {
	turn     func(t *task, tick time.Time) time.Duration // how long others are given to ask first
	timeline timeline[*task]
	asks     queue[*tick]
	starved  queue[*tick] // parked since the replica is full, by tick
}

// maxOpen bounds the open ticks of a job. Beyond it the oldest are given up: what is undecided before the oldest open tick is
// settled together, as soon as the server answers.
const maxOpen = 1000

// collect opens the ticks that are due. It returns those that must be given up for them.
func (a *agenda) collect(now time.Time) (given []*tick) {
	for _, b := range a.timeline.take(now) {
		for _, t := range b.entries {
			a.open(t, b.at, b.previous, now)
			if len(t.open) > maxOpen {
				given = append(given, t.open[len(t.open)-maxOpen-1])
			}
		}
	}
	return given
}

// unanswered is how long after it was due a tick is still undecided only if the server is silent.
const unanswered = 500 * time.Millisecond

// waits tells whether whatever comes due after a tick waits behind it: its turn has not come, or nobody has answered for long,
// though its claim was not given up yet. (A fan-out may be open until its deadline.)
func (k *tick) waits(now time.Time) bool {
	return k.waited || now.Sub(k.due) >= unanswered && (k.asking || k.task.PerTick == 1)
}

// open adds a tick of a job. It waits behind a backlog of that job, and is one itself when its successor is due already.
func (a *agenda) open(t *task, at, previous, now time.Time) *tick {
	next := t.spec.Next(at)
	k := &tick{task: t, at: at, previous: previous, due: t.due(at, next), deadline: t.deadline(at, next), id: newRunID(), reason: "late",
		waited: !next.IsZero() && !next.After(now)}
	if i := slices.IndexFunc(t.open, func(o *tick) bool { return o.waits(now) }); i >= 0 {
		k.waited, k.reason = true, "redis"
		if o := t.open[i]; o.waited {
			k.reason = o.reason
		}
	}
	i, _ := t.find(at)
	t.open = slices.Insert(t.open, i, k)
	a.ask(k, k.due.Add(a.turn(t, at)), now)
	return k
}

// find tells where among the open ticks of a job one is, or belongs.
func (t *task) find(at time.Time) (i int, open bool) {
	return slices.BinarySearchFunc(t.open, at, func(k *tick, at time.Time) int { return k.at.Compare(at) })
}

// lineUp puts the later ticks of a job behind one that waits, so that they do not skip each other.
func (a *agenda) lineUp(k *tick) {
	for _, o := range k.task.open {
		if o.at.After(k.at) && !o.waited {
			o.waited, o.reason = true, k.reason
		}
	}
}

// ask schedules the next claim of a tick: at the latest just after its deadline, so that somebody settles it.
func (a *agenda) ask(k *tick, at, now time.Time) {
	if last := k.afterDeadline(); now.Before(last) && at.After(last) {
		at = last
	}
	a.unpark(k)
	a.asks.set(k, at)
}

// clockSlack is about how far our idea of the server's clock may be ahead of it: a round trip.
const clockSlack = 2 * time.Millisecond

// askSoon is ask at an instant that should lie ahead by the server's clock; if it does not by ours, after a short pause,
// which grows as long as the two disagree.
func (a *agenda) askSoon(k *tick, at, now time.Time) {
	if at.After(now) {
		k.pause = 0
	} else {
		k.pause = min(max(2*k.pause, clockSlack), shortestPause)
		at = now.Add(k.pause)
	}
	a.ask(k, at, now)
}

func (k *tick) afterDeadline() time.Time { return k.deadline.Add(time.Millisecond) }

// late tells whether a tick can only be settled any more.
func (k *tick) late(now time.Time) bool { return now.After(k.deadline) }

// oldest tells whether a tick is the first open one of its job.
func (k *tick) oldest() bool { return k == k.task.open[0] }

// mustWait tells whether a tick is not to be asked for yet. Ticks that are too late are settled one after the other: the
// server remembers how it decided the last tick of a job, so a lost reply costs no record.
func (k *tick) mustWait(now time.Time) bool {
	if k.placed {
		return false
	}
	if k.late(now) {
		return !k.oldest()
	}
	return !k.mayWin()
}

// park puts a tick aside until there is a place for it, or it is its turn; past its deadline somebody has to settle it,
// one tick of a job after the other.
func (a *agenda) park(k *tick, now time.Time) {
	if k.late(now) && !k.oldest() {
		a.asks.remove(k)
	} else {
		a.askSoon(k, k.afterDeadline(), now)
	}
	k.parked = true
	if k.full {
		a.starved.set(k, k.at)
	}
}

func (a *agenda) unpark(k *tick) {
	k.parked = false
	a.starved.remove(k)
}

// close forgets a tick: it is decided, or given up.
func (a *agenda) close(k *tick) {
	a.asks.remove(k)
	a.unpark(k)
	k.closed = true
	k.task.open = slices.DeleteFunc(k.task.open, func(o *tick) bool { return o == k })
}

// wake asks for the oldest ticks of a job that were put aside, as many as may run here; free is how many more of any job.
func (a *agenda) wake(t *task, free int, now time.Time) {
	if len(t.open) > 0 && t.open[0].parked && t.open[0].late(now) {
		a.ask(t.open[0], now, now)
	}
	places := t.PerReplica - t.running
	for _, k := range t.open {
		switch {
		case places <= 0:
			return
		case !k.parked || k.late(now) || !k.mayWin():
			continue
		case free > 0:
			a.ask(k, k.due, now)
		default:
			a.starved.set(k, k.at)
		}
		places, free = places-1, free-1
	}
}

// wakeStarved does the same for the oldest ticks of any job that found the replica full.
func (a *agenda) wakeStarved(places int, now time.Time) {
	for range places {
		k, ok := a.starved.pop()
		if !ok {
			return
		}
		a.ask(k, k.due, now)
	}
}

// mayWin tells whether a tick may be granted on this replica, as far as its job is concerned: not more often than the job may
// run here at once; of the ticks that wait only the oldest, so that they are granted in order; and none while
// there may be undecided ones before the open ones, which would stay in the ledger as a gap.
func (k *tick) mayWin() bool {
	places := k.task.PerReplica
	if k.won >= places || k.task.behind || !k.waited {
		return k.won < places && !k.task.behind
	}
	ahead := 0
	for _, o := range k.task.open {
		if o == k || ahead >= places {
			break
		}
		if o.waited && o.won < places {
			ahead++
		}
	}
	return ahead < places
}

// asked removes at most limit of the ticks to claim now, the oldest first.
func (a *agenda) asked(now time.Time, limit int) []*tick {
	batch := a.asks.take(now, limit)
	slices.SortStableFunc(batch, func(x, y *tick) int { return x.at.Compare(y.at) })
	return batch
}

// newRunID makes an identity for a run: 16 characters, 80 random bits.
func newRunID() string { return strings.ToLower(rand.Text()[:16]) }
