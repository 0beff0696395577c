package agenda

import (
	"slices"
	"time"
)

// A Reason explains a tick that is missed if its deadline passes.
type Reason string

// The reasons.
const (
	Late     Reason = "late"     // it was claimed too late, for no known reason
	Down     Reason = "down"     // no replica was there
	Labels   Reason = "labels"   // no replica with the job's labels was there; the agenda uses Down for it
	Redis    Reason = "redis"    // the server did not answer
	Overload Reason = "overload" // this replica did not ask in time, or did not read the answer: it was too busy, or stood still
	Capacity Reason = "capacity" // no replica had a place for it
	Pool     Reason = "pool"     // its pool had no slot
	Slots    Reason = "slots"    // all slots of the job were held
	// CannotStart: it was granted and given back, because no replica could start the job's program.
	CannotStart Reason = "cannot_start"
)

// The triggers of runs that the agenda uses.
const (
	Scheduled = "schedule"
	CaughtUp  = "catch_up"
)

// A Standing is the reaction of a tick to slots that are held.
type Standing int

const (
	// Fresh ticks do not wait. If they find all slots held, the policy of their job decides them.
	Fresh Standing = iota
	// InLine ticks could not be decided in time by any replica, or their job makes them wait. They wait for their turn, and are not skipped.
	InLine
	// Contending ticks wait until the run that they replace is dead.
	Contending
	// Displaced ticks waited, and newer ticks need all the slots that will be free. They are skipped.
	Displaced
)

// An Answer is the answer to the last claim of a tick, as far as it matters later.
type Answer int

const (
	// Answered is any other answer, or no claim yet.
	Answered Answer = iota
	// Unanswered: the claim may have been granted.
	Unanswered
	// Shut: the lock grants nothing for now, because the server had forgotten it.
	Shut
)

// A Cause is a reason, and whether the tick has it from the older ticks that it waits behind.
type Cause struct {
	Reason   Reason
	Borrowed bool // it is not passed on, because the reason would outlive its cause
}

// A Tick is an open tick of a job: due, and not yet known to be decided. Its [State] is its progress.
type Tick struct {
	Job *Job
	Instants
	Rules    *Rules    // the settings when the tick was opened: each claim of it is the same
	Due      time.Time // the earliest start, after the jitter
	Deadline time.Time // the latest start
	ID       string    // the id of its claims and of its run; empty until it is first claimed
	Trigger  string    // the trigger of its run
	Cause    Cause     // the reason if its deadline passes
	Trouble  Trouble   // the trouble with the server
	Standing Standing
	Placed   bool // it has a place on this replica: its claim is under way, or has an unknown outcome
	Doubted  bool // a claim of it was not answered, and may still be on its way
	Won      int  // the number of its grants on this replica

	state  State
	last   Answer
	nth    int           // the number of the tick, in the order in which the ticks of the job were opened
	opened time.Time     // the time at which it was opened
	held   time.Time     // the time since which it has found all slots held; zero if that was not the last answer
	pause  time.Duration // the pause before it is claimed again: see AskSoon

	inAsks, inStarved Entry[*Tick]
}

// Waits reports whether the tick waits for its turn, so that it is not skipped.
func (k *Tick) Waits() bool { return k.Standing != Fresh }

func (k *Tick) waitInLine() {
	if k.Standing == Fresh {
		k.Standing = InLine
	}
}

// Wait makes a tick wait for its turn.
func (k *Tick) Wait(why Cause) {
	k.waitInLine()
	k.Cause = why
}

// WaitAnew is [Tick.Wait] for a tick that may no longer find the slots held. A contending tick waits with the others.
func (k *Tick) WaitAnew(why Cause) {
	if k.Standing == Contending {
		k.Standing = InLine
	}
	k.held = time.Time{}
	k.Wait(why)
}

// inLine reports whether a tick waits to be granted here.
func (k *Tick) inLine() bool {
	return (k.Standing == InLine || k.Standing == Contending) && k.Won < k.Job.PerReplica
}

// Unanswered reports whether the last claim of the tick had no answer.
func (k *Tick) Unanswered() bool { return k.last == Unanswered }

// NoteAnswer records the answer to the claim that is under way. The caller then changes the state of the tick as the answer requires.
func (k *Tick) NoteAnswer(a Answer, now time.Time) {
	k.last = a
	k.Doubted = k.Doubted || a == Unanswered
	if a == Unanswered {
		return
	}
	for _, o := range k.Job.Open { // also for the ticks behind it, which are claimed when it is decided
		o.Trouble.noteAnswered(now)
	}
}

// HeldFor records that the tick has found all slots held, and returns the time for which that has been so.
func (k *Tick) HeldFor(now time.Time) time.Duration {
	if k.held.IsZero() {
		k.held = now
	}
	return now.Sub(k.held)
}

// olderTicks returns the open ticks of the job before this one.
func (k *Tick) olderTicks() []*Tick {
	i, _ := k.Job.Find(k.Name)
	return k.Job.Open[:i]
}

// StandAside sets the cause of a tick that is claimed but cannot be granted here: it is behind a backlog, or this replica has no place for it.
func (k *Tick) StandAside() {
	k.Cause = Cause{Reason: Capacity}
	for _, o := range k.olderTicks() {
		if o.inLine() && !o.Cause.Borrowed {
			k.Cause = Cause{o.Cause.Reason, true}
			k.shareTrouble(o.Trouble)
			return
		}
	}
}

// Unstartable replaces a lack of places, as the cause of a tick, by the fact that this replica cannot start the job's program.
func (k *Tick) Unstartable(why string) {
	if k.Cause.Reason == Capacity {
		k.Cause.Reason, k.Trouble = CannotStart, Trouble{Detail: why}
	}
}

// shareTrouble takes over the trouble of an earlier tick, unless the tick has one of its own.
func (k *Tick) shareTrouble(t Trouble) {
	if k.Trouble.isNone() {
		k.Trouble = t
	}
}

// Find returns the index of a tick among the open ticks of a job, or the index at which it belongs.
func (j *Job) Find(name time.Time) (i int, open bool) {
	return slices.BinarySearchFunc(j.Open, name, func(k *Tick, name time.Time) int { return k.Name.Compare(name) })
}

func (k *Tick) afterDeadline() time.Time {
	return k.LastChance().Add(k.Job.settleDelay() + time.Millisecond)
}

// Late reports whether a tick can only be settled.
func (k *Tick) Late(now time.Time) bool { return now.After(k.LastChance().Add(k.Job.settleDelay())) }

// isOldest reports whether a tick is the first open one of its job.
func (k *Tick) isOldest() bool { return k == k.Job.Open[0] }

// MustWait reports whether a tick is not to be claimed yet. A tick that comes due behind a backlog is claimed once, though it can't win: it is
// skipped if all slots are held, and waits with the others if not. Ticks that are too late are settled one after the other: the server remembers the
// decision on the last tick of a job, so a lost reply costs no record.
func (k *Tick) MustWait(now time.Time) bool {
	// A claim without an answer may have decided the tick. The server forgets that decision when the ticks before it are decided.
	if k.Standing == Displaced || k.Placed || k.Unanswered() {
		return false
	}
	if k.Late(now) {
		return !k.isOldest()
	}
	return !k.MayWin() && (k.Waits() || k.Won >= k.Job.PerReplica || k.Job.Behind != "")
}

// MayWin reports whether a tick may be granted on this replica, as far as its job is concerned. This replica must have the job's labels, and must not
// run the job more often than it may. Of the ticks that wait only the oldest may win, so that they are granted in order, and a tick that does not
// wait only if none waits. None may win while ticks before the open ones may be undecided, because these would stay in the ledger as a gap.
func (k *Tick) MayWin() bool {
	places := k.Job.PerReplica
	if k.Job.Elsewhere || k.Standing == Displaced || k.Won >= places || k.Job.Behind != "" {
		return false
	}
	if !k.Waits() {
		return !slices.ContainsFunc(k.olderTicks(), (*Tick).inLine)
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

// WhyUnanswered returns the reason for a tick whose claim was not answered. stoodStill is true if this process did not run meanwhile. Once the server
// was the reason, it remains the reason.
func (k *Tick) WhyUnanswered(stoodStill bool) Reason {
	if stoodStill && k.Cause.Reason != Redis {
		return Overload
	}
	return Redis
}

// Silent records that the server has not answered a claim. sent is the time of the claim. The outage in which the deadline passed remains the one
// that counts.
func (k *Tick) Silent(sent time.Time) {
	if t := k.Trouble; t.Since.IsZero() || !t.Until.IsZero() && !k.Late(t.Until) {
		k.Trouble = Trouble{Since: sent}
	}
}

// Undecided records that the server answers and cannot decide a tick. If the deadline had passed before, the earlier outage remains the one that
// counts.
func (k *Tick) Undecided(detail string, now time.Time) {
	if k.Trouble.Since.IsZero() || !k.Late(now) {
		k.Trouble = Trouble{Detail: detail}
	}
}
