package scheduler

import (
	"crypto/rand"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/election"
)

// tick is an open tick of a job: due, and not yet known to be decided.
type tick struct {
	task *task
	instants
	job       *Job           // as it was when the tick was opened: one claim is asked for in the same way each time, and its run is what was granted
	due       time.Time      // from when it may start: its jitter later
	deadline  time.Time      // until when it may start
	id        string         // of the claim, the same each time it is asked for, and of the run; made when it is first asked for
	trigger   string         // of its run
	reason    string         // why it is missed if its deadline passes
	nth       int            // of the ticks of its job that were opened
	opened    time.Time      // when that was
	waited    bool           // nobody could decide it in time: it waits for its turn, and does not skip
	follows   bool           // its reason is that of the ticks that it waits behind
	placed    bool           // it has a place on this replica: its claim is under way, or nobody knows what became of it
	asking    bool           // its claim is under way
	asked     time.Time      // since when, or since when it waits to be; when it was to be, if that is to come
	unsure    bool           // nobody has answered its last claim
	doubted   bool           // nor some claim before: one may still be on its way
	held      time.Time      // since when it finds all slots held; zero if it was told something else last
	shut      bool           // the lock was closed to grants when it was last asked for
	parked    bool           // it waits for a place on this replica, or for its turn
	abstained bool           // the last claim was one that could not win
	full      bool           // since the replica was full
	term      *election.Term // of its run, if it was granted
	won       int            // how often it was granted here
	returned  bool           // its grant became known too late, and is being given back
	unstarted bool           // its run was not able to begin, and its grant was given back
	closed    bool           // it is open no more
	dropped   bool           // since its schedule is no more
	replaces  bool           // its last claim had a run stopped, if all slots were held
	contends  bool           // they were: it waits for that run's end
	displaced bool           // newer ones that wait for the same have all the slots that there will be
	pause     time.Duration  // before it is asked for again: see askSoon

	inAsks, inStarved entry[*tick] // of the agenda
}

// agenda holds what is to come: the timeline of all jobs, and the open ticks by when to ask for them.
type agenda struct {
	turn     func(t *task, tick time.Time) time.Duration // how long others are given to ask first
	timeline timeline[*task]
	due      []dueBucket[*task] // what the timeline has handed over, and is not open yet
	taken    time.Time          // when that was
	asks     queue[*tick]
	starved  queue[*tick] // parked since the replica is full, by tick
	// stoodStill is set while the loop has come round much later than it wanted.
	stoodStill bool
}

// maxOpen bounds the open ticks of a job. Beyond it the oldest are given up: what is undecided before the oldest open tick is
// settled together, as soon as the server answers.
const maxOpen = 1000

// openAtOnce is how many ticks of one instant are opened before the first are asked for: the server works while the others are opened.
const openAtOnce = 500

// collect opens ticks that are due: of one instant some, then more tells it; of several all, as those of a job belong together. It returns
// those that must be given up for them.
func (a *agenda) collect(now time.Time) (given []*tick) {
	if !a.more() {
		a.due, a.taken = a.timeline.take(now), now
	}
	several := a.more() && !a.due[0].at.Equal(a.due[len(a.due)-1].at)
	for opened := 0; a.more() && (several || opened < openAtOnce); {
		b := &a.due[0]
		n := min(openAtOnce, len(b.entries))
		for _, t := range b.entries[:n] {
			a.open(t, b.instants, a.taken)
			if len(t.open) > maxOpen {
				given = append(given, t.open[len(t.open)-maxOpen-1])
			}
		}
		opened += n
		if b.entries = b.entries[n:]; len(b.entries) == 0 {
			a.due = a.due[1:]
		}
	}
	return given
}

// more tells whether ticks are due that are not open yet.
func (a *agenda) more() bool { return len(a.due) > 0 }

// clear forgets what is due, and to come.
func (a *agenda) clear() { a.timeline, a.due = timeline[*task]{}, nil }

// unanswered is how long after it was due, or asked for, a tick is still undecided only if the server is silent.
const unanswered = 500 * time.Millisecond

// silent tells whether nobody decides a tick: its last claim was not answered, or found the lock closed; or there was no answer for
// long, though it was not given up yet. (A fan-out may be open until its deadline.) What comes due after it then waits behind it.
func (a *agenda) silent(k *tick, now time.Time) bool {
	switch {
	case !k.waited:
		return now.Sub(k.due) >= unanswered && (k.asking || k.task.PerTick == 1)
	case k.unsure, k.shut:
		return !k.parked // else nobody has asked since
	}
	_, waiting := k.inAsks.when()
	return (waiting || k.asking) && now.Sub(k.asked) >= unanswered
}

// open adds a tick of a job. It waits if nobody can decide it as it comes due: its successor is due already, or a tick before
// it is silent. One that comes due behind a backlog while the server answers does not: it is skipped if all slots are held.
func (a *agenda) open(t *task, of instants, now time.Time) *tick {
	t.opened++
	k := &tick{task: t, job: t.Job, instants: of, due: t.due(of.at, of.next), deadline: t.deadline(of.at, of.next), trigger: scheduled,
		reason: reasonLate, nth: t.opened, opened: now, waited: !of.next.IsZero() && !of.next.After(now)}
	if t.chained() {
		k.due, k.deadline, k.waited = of.since, t.deadlineAfter(of.at, of.since), now.Sub(of.since) >= unanswered
	}
	if a.stoodStill && now.Sub(k.due) >= unanswered {
		k.reason = reasonOverload
	}
	if t.foreign { // it can't win: if nobody who can has decided it in time, none of them was there
		k.waited, k.reason = true, reasonDown
	}
	if reason, joins := a.joins(k, now); joins {
		k.waited, k.reason = true, reason
	}
	k.inAsks.value, k.inStarved.value = k, k
	i, _ := t.find(k.at)
	if i == len(t.open) {
		a.passOver(t, now)
	}
	t.open = slices.Insert(t.open, i, k)
	a.displace(k, now)
	if t.foreign {
		a.park(k, now)
	} else {
		a.ask(k, k.due.Add(a.turn(t, k.at)), now)
	}
	return k
}

// joins tells whether a tick that is opened joins the backlog of its job, and for what reason.
func (a *agenda) joins(k *tick, now time.Time) (reason string, joins bool) {
	for _, o := range k.task.open {
		together := o.waited && o.opened.Equal(now) // after a long sleep, or a step of the clock
		far := o.inLine() && k.nth-o.nth >= maxPassed
		switch {
		case o.waited && (together || far || a.silent(o, now)):
			return o.reason, true
		case a.silent(o, now):
			return a.blame(o), true
		}
	}
	return "", false
}

// maxPassed is how far behind the oldest tick of a backlog others are skipped: the ledger has an entry for each of them until
// the backlog is gone, and takes for decided what lies before more than a thousand.
const maxPassed = maxOpen - 2

// inLine tells whether a tick waits to be granted here.
func (k *tick) inLine() bool { return k.waited && !k.displaced && k.won < k.task.PerReplica }

// ahead is the open ticks of its job before one.
func (k *tick) ahead() []*tick {
	i, _ := k.task.find(k.at)
	return k.task.open[:i]
}

// aside is why a tick waits that is not asked for to be granted here: it is behind a backlog, or this replica has no place
// for it. What has its reason from the ticks before it does not hand it on: else the reason would outlive its cause.
func (k *tick) aside() (reason string, follows bool) {
	for _, o := range k.ahead() {
		if o.inLine() && !o.follows {
			return o.reason, true
		}
	}
	return "capacity", false
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
	a.asks.set(&k.inAsks, at)
	k.asked = at
	if at.Before(now) { // that is its place among others: nobody was asked so far
		k.asked = now
	}
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

func (k *tick) afterDeadline() time.Time { return k.lastChance().Add(k.task.lag() + time.Millisecond) }

// late tells whether a tick can only be settled any more.
func (k *tick) late(now time.Time) bool { return now.After(k.lastChance().Add(k.task.lag())) }

// oldest tells whether a tick is the first open one of its job.
func (k *tick) oldest() bool { return k == k.task.open[0] }

// mustWait tells whether a tick is not to be asked for yet. One that comes due behind a backlog is, once, though it can't win:
// it is skipped if all slots are held, and else waits with the others. Ticks that are too late are settled one after the other: the
// server remembers how it decided the last tick of a job, so a lost reply costs no record.
func (k *tick) mustWait(now time.Time) bool {
	if k.displaced || k.placed || k.unsure { // what nobody has answered may have decided it: the server forgets how, once those before it are decided
		return false
	}
	if k.late(now) {
		return !k.oldest()
	}
	return !k.mayWin() && (k.waited || k.won >= k.task.PerReplica || k.task.behind)
}

// park puts a tick aside until there is a place for it, or it is its turn; past its deadline somebody has to settle it,
// one tick of a job after the other.
func (a *agenda) park(k *tick, now time.Time) {
	if k.late(now) && !k.oldest() {
		a.asks.remove(&k.inAsks)
	} else {
		a.askSoon(k, k.afterDeadline(), now)
	}
	k.parked = true
	if k.full {
		a.starved.set(&k.inStarved, k.at)
	}
}

func (a *agenda) unpark(k *tick) {
	k.parked = false
	a.starved.remove(&k.inStarved)
}

// close forgets a tick: it is decided, or given up.
func (a *agenda) close(k *tick) {
	a.asks.remove(&k.inAsks)
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
		case !k.parked || k.late(now) || k.mustWait(now):
			continue
		case !k.mayWin(): // it needs no place
			a.ask(k, k.due, now)
			continue
		case places <= 0:
			continue
		case free > 0:
			a.ask(k, k.due, now)
		default:
			a.starved.set(&k.inStarved, k.at)
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

// mayWin tells whether a tick may be granted on this replica, as far as its job is concerned: only if it has the job's labels, and not more
// often than the job may run here at once; of the ticks that wait only the oldest, so that they are granted in order, and one that does not wait only
// when there are none; and none while there may be undecided ones before the open ones, which would stay in the ledger as a gap.
func (k *tick) mayWin() bool {
	places := k.task.PerReplica
	if k.task.foreign || k.displaced || k.won >= places || k.task.behind {
		return false
	}
	if !k.waited {
		return !slices.ContainsFunc(k.ahead(), (*tick).inLine)
	}
	ahead := 0
	for _, o := range k.task.open {
		if o == k || ahead >= places {
			break
		}
		if o.inLine() {
			ahead++
		}
	}
	return ahead < places
}

// behind tells until when a tick of a backlog lets an older one go first, which waits for its next look: else whichever looks first would
// be granted. Then both are asked for in one batch, the older one before.
func (a *agenda) behind(k *tick) (until time.Time, waits bool) {
	if !k.waited {
		return until, false // it can't win
	}
	for _, o := range k.ahead() {
		if at, waiting := o.inAsks.when(); waiting && !o.parked && o.inLine() && at.After(until) {
			until, waits = at, true
		}
	}
	return until, waits
}

// asked removes at most limit of the ticks to claim now, the oldest first.
func (a *agenda) asked(now time.Time, limit int) []*tick {
	batch := a.asks.take(now, limit)
	slices.SortStableFunc(batch, func(x, y *tick) int { return x.at.Compare(y.at) })
	return batch
}

// newRunID makes an identity for a run: 16 characters, 80 random bits.
func newRunID() string { return strings.ToLower(rand.Text()[:16]) }
