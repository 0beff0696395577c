package agenda

import (
	"slices"
	"time"
)

// Reason is why a tick is missed if its deadline passes.
type Reason string

// The reasons.
const (
	Late     Reason = "late"     // it was claimed too late, for no known reason
	Down     Reason = "down"     // no replica was there
	Labels   Reason = "labels"   // no replica was there that has the labels of the job: a case of Down, which it is in the agenda
	Redis    Reason = "redis"    // the server did not answer
	Overload Reason = "overload" // this replica did not ask in time, or did not take in the answer: it was too busy, or stood still
	Capacity Reason = "capacity" // no replica had a place for it
	Pool     Reason = "pool"     // its pool had no slot
	Slots    Reason = "slots"    // all slots of the job were held
	// CannotStart ticks were granted, and given back: no replica was able to start the job's program.
	CannotStart Reason = "cannot_start"
)

// The triggers of runs that an agenda knows of.
const (
	Scheduled = "schedule"
	CaughtUp  = "catch_up"
)

// Standing is how a tick reacts to slots that are held.
type Standing int

const (
	// Fresh ticks do not wait: the policy of their job decides them when they find all slots held.
	Fresh Standing = iota
	// InLine is a tick that no replica could decide in time, or that its job has wait: it waits for its turn, and does not skip.
	InLine
	// Contending ticks wait until the run that they replace is dead.
	Contending
	// Displaced ticks waited, and newer ones need all the slots that there will be. They are skipped.
	Displaced
)

// Answer is the answer to the last claim of a tick, as far as it matters later.
type Answer int

const (
	// Answered is any other answer, or none needed yet.
	Answered Answer = iota
	// Unanswered claims may have been granted.
	Unanswered
	// Shut locks grant nothing for now: the server had forgotten them.
	Shut
)

// Cause is a reason, and whether it is that of the older ticks that this one waits behind.
type Cause struct {
	Reason   Reason
	Borrowed bool // so it is not handed on: else the reason would outlive its cause
}

// Tick is an open tick of a job: due, and not yet known to be decided. Its [State] is where it is on the way.
type Tick struct {
	Job *Job
	Instants
	Rules    *Rules    // as they were when the tick was opened: it is claimed in the same way each time
	Due      time.Time // from when it may start: its jitter later
	Deadline time.Time // until when it may start
	ID       string    // of its claim, the same each time, and of its run; empty until it is first claimed
	Trigger  string    // of its run
	Cause    Cause     // if its deadline passes
	Trouble  Trouble   // with the server
	Standing Standing
	Placed   bool // it has a place on this replica: its claim is under way, or has an unknown outcome
	Doubted  bool // some claim of it was not answered, and may still be on its way
	Won      int  // how often it was granted here

	state  State
	last   Answer
	nth    int           // of the ticks of its job that were opened
	opened time.Time     // when that was
	held   time.Time     // since when it finds all slots held; zero if that was not the last answer
	pause  time.Duration // before it is claimed again: see AskSoon

	inAsks, inStarved Entry[*Tick]
}

// Waits returns whether the tick waits for its turn, and does not skip.
func (k *Tick) Waits() bool { return k.Standing != Fresh }

func (k *Tick) wait() {
	if k.Standing == Fresh {
		k.Standing = InLine
	}
}

// Wait has a tick wait for its turn.
func (k *Tick) Wait(why Cause) {
	k.wait()
	k.Cause = why
}

// WaitAnew is Wait for a tick of which it is unknown whether it finds slots held. One that contended waits with the others.
func (k *Tick) WaitAnew(why Cause) {
	if k.Standing == Contending {
		k.Standing = InLine
	}
	k.held = time.Time{}
	k.Wait(why)
}

// inLine returns whether a tick waits to be granted here.
func (k *Tick) inLine() bool {
	return (k.Standing == InLine || k.Standing == Contending) && k.Won < k.Job.PerReplica
}

// Unanswered returns whether the last claim of the tick had no answer.
func (k *Tick) Unanswered() bool { return k.last == Unanswered }

// NoteAnswer notes the answer to the claim that is under way. The caller then still moves the tick on, as the answer demands.
func (k *Tick) NoteAnswer(a Answer, now time.Time) {
	k.last = a
	k.Doubted = k.Doubted || a == Unanswered
	if a == Unanswered {
		return
	}
	for _, o := range k.Job.Open { // also those behind it, which are claimed when it is decided
		o.Trouble.answered(now)
	}
}

// HeldFor is for how long the tick has found all slots held, as it does now.
func (k *Tick) HeldFor(now time.Time) time.Duration {
	if k.held.IsZero() {
		k.held = now
	}
	return now.Sub(k.held)
}

// ahead is the open ticks of its job before one.
func (k *Tick) ahead() []*Tick {
	i, _ := k.Job.Find(k.Name)
	return k.Job.Open[:i]
}

// StandAside sets the cause of a tick that is not claimed to be granted here: it is behind a backlog, or this replica has no place for it.
func (k *Tick) StandAside() {
	k.Cause = Cause{Reason: Capacity}
	for _, o := range k.ahead() {
		if o.inLine() && !o.Cause.Borrowed {
			k.Cause = Cause{o.Cause.Reason, true}
			k.shares(o.Trouble)
			return
		}
	}
}

// Unstartable has a tick blame, in place of a want of room, that the job's program can't be started here.
func (k *Tick) Unstartable(why string) {
	if k.Cause.Reason == Capacity {
		k.Cause.Reason, k.Trouble = CannotStart, Trouble{Detail: why}
	}
}

// shares has a tick that has met no trouble itself take that of one before it.
func (k *Tick) shares(t Trouble) {
	if k.Trouble.none() {
		k.Trouble = t
	}
}

// Find returns where among the open ticks of a job one is, or belongs.
func (j *Job) Find(name time.Time) (i int, open bool) {
	return slices.BinarySearchFunc(j.Open, name, func(k *Tick, name time.Time) int { return k.Name.Compare(name) })
}

func (k *Tick) afterDeadline() time.Time { return k.LastChance().Add(k.Job.lag() + time.Millisecond) }

// Late returns whether a tick can only be settled any more.
func (k *Tick) Late(now time.Time) bool { return now.After(k.LastChance().Add(k.Job.lag())) }

// oldest returns whether a tick is the first open one of its job.
func (k *Tick) oldest() bool { return k == k.Job.Open[0] }

// MustWait returns whether a tick is not to be claimed yet. One that comes due behind a backlog is claimed, once, though it can't win:
// it is skipped if all slots are held, and else waits with the others. Ticks that are too late are settled one after the other: the
// server remembers how it decided the last tick of a job, so a lost reply costs no record.
func (k *Tick) MustWait(now time.Time) bool {
	if k.Standing == Displaced || k.Placed || k.Unanswered() { // a claim without an answer may have decided it: the server forgets how, once those before it are decided
		return false
	}
	if k.Late(now) {
		return !k.oldest()
	}
	return !k.MayWin() && (k.Waits() || k.Won >= k.Job.PerReplica || k.Job.Behind != "")
}

// MayWin returns whether a tick may be granted on this replica, as far as its job is concerned: only if it has the job's labels, and not more
// often than the job may run here at once; of the ticks that wait only the oldest, so that they are granted in order, and one that does not wait only
// when there are none; and none while there may be undecided ones before the open ones, which would stay in the ledger as a gap.
func (k *Tick) MayWin() bool {
	places := k.Job.PerReplica
	if k.Job.Elsewhere || k.Standing == Displaced || k.Won >= places || k.Job.Behind != "" {
		return false
	}
	if !k.Waits() {
		return !slices.ContainsFunc(k.ahead(), (*Tick).inLine)
	}
	ahead := 0
	for _, o := range k.Job.Open {
		if o == k || ahead >= places {
			break
		}
		if o.inLine() {
			ahead++
		}
	}
	return ahead < places
}

// NotAsked sets the reason of a tick that is past its deadline when it is first claimed.
func (k *Tick) NotAsked(now time.Time) {
	if k.ID == "" && k.Cause.Reason == Late && k.Late(now) {
		k.Cause.Reason = Overload
	}
}

// WhyUnanswered returns why a tick is undecided whose claim was not answered; stoodStill is true if this process did not run meanwhile. Once the server
// was the reason, it stays the reason.
func (k *Tick) WhyUnanswered(stoodStill bool) Reason {
	if stoodStill && k.Cause.Reason != Redis {
		return Overload
	}
	return Redis
}

// Silent notes that the server has not answered a claim that was sent at an instant. The outage in which the deadline has passed stays the one that counts.
func (k *Tick) Silent(sent time.Time) {
	if t := k.Trouble; t.Since.IsZero() || !t.Until.IsZero() && !k.Late(t.Until) {
		k.Trouble = Trouble{Since: sent}
	}
}

// Undecided notes that the server answers and cannot decide a tick. If the deadline was over before, the outage before remains what missed it.
func (k *Tick) Undecided(detail string, now time.Time) {
	if k.Trouble.Since.IsZero() || !k.Late(now) {
		k.Trouble = Trouble{Detail: detail}
	}
}
