package agenda

import (
	"fmt"
	"slices"
	"time"

	"github.com/cronclave/cronclave/scheduler/run"
)

// A Standing determines what happens to a tick that finds all slots held.
type Standing int

const (
	// Fresh ticks do not wait: if they find all slots held, the Overlap policy of their job applies.
	Fresh Standing = iota
	// InLine ticks wait for a slot after the older ticks of their job, and are not skipped. No replica could decide them in time, or the policy of their
	// job lets them wait.
	InLine
	// Contending ticks wait until the run that they replace has ended.
	Contending
	// Displaced ticks are skipped, because newer ticks need all the slots.
	Displaced
)

// A Cause is the reason that is recorded if a tick is missed. Borrowed is true if the tick has copied the reason from an older tick.
type Cause struct {
	Reason   run.Reason
	Borrowed bool // a borrowed reason is not copied again; otherwise ticks could pass it on after its cause is over
}

// A Tick is an open tick of a job. Its [State] shows its progress.
type Tick[T any] struct {
	Job *Job[T]
	Instants
	Rules    *Rules    // the settings from the time when the tick was opened, so that all its claims are equal
	Due      time.Time // the earliest start, including the jitter
	Deadline time.Time // the latest start
	ID       string    // the id of its claims and of its run; empty until it is first claimed
	Trigger  string    // the trigger of its run
	Cause    Cause     // the reason that is recorded if the tick is missed
	Trouble  Trouble   // the reason for which the server did not decide the tick
	Standing Standing
	Placed   bool // it occupies a place on this replica, because its claim is under way or has an unknown result
	Doubted  bool // a claim was not answered, and may still be under way
	Won      int  // the number of its grants on this replica

	state  State
	silent bool          // the last claim of the tick was not answered, or found the lock closed because the server lost its data
	nth    int           // the serial number of the tick among the opened ticks of the job
	opened time.Time     // the time at which the tick was opened
	held   time.Time     // the time since which the tick has found all slots held; zero if it has not
	pause  time.Duration // the last pause of AskSoon

	inAsks, inStarved Entry[*Tick[T]]
}

// Waits reports whether the tick waits for a slot instead of being skipped.
func (k *Tick[T]) Waits() bool { return k.Standing != Fresh }

func (k *Tick[T]) waitInLine() {
	if k.Standing == Fresh {
		k.Standing = InLine
	}
}

// Wait makes a tick wait for a slot instead of being skipped.
func (k *Tick[T]) Wait(why Cause) {
	k.waitInLine()
	k.Cause = why
}

// WaitAnew is [Tick.Wait] after a claim that did not show whether the slots are still held. A contending tick becomes InLine again.
func (k *Tick[T]) WaitAnew(why Cause) {
	if k.Standing == Contending {
		k.Standing = InLine
	}
	k.held = time.Time{}
	k.Wait(why)
}

// inLine reports whether a tick waits for a grant on this replica.
func (k *Tick[T]) inLine() bool {
	return (k.Standing == InLine || k.Standing == Contending) && k.Won < k.Job.PerReplica
}

// NoteSilence records that the claim that was under way was not answered. The caller then changes the state of the tick.
func (k *Tick[T]) NoteSilence() { k.silent, k.Doubted = true, true }

// NoteAnswer records that the claim that was under way was answered. closed is true if the lock grants nothing for now, because the server lost its
// data. The caller then changes the state of the tick.
func (k *Tick[T]) NoteAnswer(closed bool, now time.Time) {
	k.silent = closed
	for _, o := range k.Job.Open { // the outage is over for the other open ticks of the job, too
		if t := &o.Trouble; !t.Since.IsZero() && t.Until.IsZero() {
			t.Until = now
		}
	}
}

// HeldFor records that the tick has found all slots held, and returns the time since it first found them held.
func (k *Tick[T]) HeldFor(now time.Time) time.Duration {
	if k.held.IsZero() {
		k.held = now
	}
	return now.Sub(k.held)
}

func (k *Tick[T]) olderTicks() []*Tick[T] {
	i, _ := k.Job.Find(k.Name)
	return k.Job.Open[:i]
}

// StandAside sets the cause of a tick whose claim abstains: the cause of an older waiting tick, or a lack of places if no older tick waits.
func (k *Tick[T]) StandAside() {
	k.Cause = Cause{Reason: run.ReasonCapacity}
	for _, o := range k.olderTicks() {
		if o.inLine() && !o.Cause.Borrowed {
			k.Cause = Cause{o.Cause.Reason, true}
			k.shareTrouble(o.Trouble)
			return
		}
	}
}

// Unstartable replaces the reason capacity by cannot_start. why is the error of the last start of the job's program.
func (k *Tick[T]) Unstartable(why string) {
	if k.Cause.Reason == run.ReasonCapacity {
		k.Cause.Reason, k.Trouble = run.ReasonCannotStart, Trouble{Detail: why}
	}
}

func (k *Tick[T]) shareTrouble(t Trouble) {
	if k.Trouble == (Trouble{}) {
		k.Trouble = t
	}
}

// Find returns the index in Open of the tick with this name. If the tick is not open, it returns the index at which to insert it.
func (j *Job[T]) Find(name time.Time) (i int, open bool) {
	return slices.BinarySearchFunc(j.Open, name, func(k *Tick[T], name time.Time) int { return k.Name.Compare(name) })
}

func (k *Tick[T]) afterDeadline() time.Time {
	return k.LastChance().Add(k.Job.settleDelay() + time.Millisecond)
}

// Late reports whether it is too late to start a tick, so that it can only be settled.
func (k *Tick[T]) Late(now time.Time) bool { return now.After(k.LastChance().Add(k.Job.settleDelay())) }

func (k *Tick[T]) isOldest() bool { return k == k.Job.Open[0] }

// MustWait reports whether a tick must wait for older ticks of its job before it is claimed:
//   - A new tick is claimed once at its time, so that the server skips it if all slots are held. If a slot is free, the tick then waits for the older ticks.
//   - Late ticks are settled one at a time, the oldest first. If a reply is lost, the server can repeat only its last decision on the job.
func (k *Tick[T]) MustWait(now time.Time) bool {
	// An unanswered claim may have decided the tick. The claim must be repeated at once, because the server forgets this decision when the older ticks
	// are decided.
	if k.Standing == Displaced || k.Placed || k.IsUnsure() {
		return false
	}
	if k.Late(now) {
		return !k.isOldest()
	}
	return !k.MayWin() && (k.Waits() || k.Won >= k.Job.PerReplica || k.Job.Behind != "")
}

// MayWin reports whether the state of its job permits a grant of the tick on this replica. This replica must have the job's labels, and the tick must
// have fewer than PerReplica grants on this replica. Waiting ticks may win only in order, the oldest first, and a new tick only if no older tick
// waits. No tick may win while Behind is set, because the undecided older ticks would stay as a gap in the job's ledger on the server.
func (k *Tick[T]) MayWin() bool {
	places := k.Job.PerReplica
	if k.Job.Elsewhere || k.Standing == Displaced || k.Won >= places || k.Job.Behind != "" {
		return false
	}
	if !k.Waits() {
		return !slices.ContainsFunc(k.olderTicks(), (*Tick[T]).inLine)
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

// NotAsked sets the reason overload for a tick whose first claim comes after its deadline.
func (k *Tick[T]) NotAsked(now time.Time) {
	if k.ID == "" && k.Cause.Reason == run.ReasonLate && k.Late(now) {
		k.Cause.Reason = run.ReasonOverload
	}
}

// WhyUnanswered returns the reason for a tick whose claim was not answered: overload if this process stood still during the claim, otherwise redis.
// If the reason was redis before, it remains redis.
func (k *Tick[T]) WhyUnanswered(stoodStill bool) run.Reason {
	if stoodStill && k.Cause.Reason != run.ReasonRedis {
		return run.ReasonOverload
	}
	return run.ReasonRedis
}

// Silent records that the server has not answered a claim. sent is the time of the claim. A later outage replaces an earlier one, unless the deadline
// passed during the earlier outage.
func (k *Tick[T]) Silent(sent time.Time) {
	if t := k.Trouble; t.Since.IsZero() || !t.Until.IsZero() && !k.Late(t.Until) {
		k.Trouble = Trouble{Since: sent}
	}
}

// Undecided records that the server answered but could not decide a tick. If the deadline has passed, an earlier outage remains recorded instead.
func (k *Tick[T]) Undecided(detail string, now time.Time) {
	if k.Trouble.Since.IsZero() || !k.Late(now) {
		k.Trouble = Trouble{Detail: detail}
	}
}

// A State is the state of a tick, with the data of that state. The transitions are:
//
//	from       to                                              by
//	due        due, asking, parked, closed                     Ask, Send, Park, Close
//	waiting    waiting, asking, parked, closed                 Ask, Send, Park, Close
//	asking     waiting, unsure, parked                         an answer that does not decide the tick
//	           running, returning, closed                      an answer that decides it
//	           givenUp                                         GiveUp, before the answer
//	unsure     unsure, asking, closed                          Ask, Send, Close; never Park, because it may have been granted
//	parked     waiting, parked, asking, closed                 Ask (a place is free), Park, Send (to settle it), Close
//	returning  waiting, closed                                 Ask (the grant was given back), Close
//	givenUp    running, closed                                 the answer
//	running    -                                               the tick has left the agenda
//	closed     -                                               the tick has left the agenda
type State struct {
	name    stateName
	since   time.Time // in due, waiting, asking, unsure and parked: the time since which the tick has been waiting for a claim or for its answer
	full    bool      // in asking: this replica had no free place for any job, so the claim abstains
	dropped bool      // in givenUp: the schedule of the tick was replaced
}

type stateName int

const (
	due       stateName = iota // opened and not claimed yet; in the queue Asks, like waiting and unsure ticks
	waiting                    // claimed or parked before, and to be claimed again
	asking                     // its claim is under way
	unsure                     // its last claim has no answer; it is claimed again with the same id
	parked                     // it waits for a place on this replica, or for older ticks of its job, at most until its deadline
	returning                  // its grant arrived too late and is being given back; then it is claimed again
	givenUp                    // given up while its claim was under way
	running                    // granted to this replica; it has left the agenda
	closed                     // decided or given up; it has left the agenda
)

func (n stateName) String() string {
	return [...]string{"due", "waiting", "asking", "unsure", "parked", "returning", "given up", "running", "closed"}[n]
}

var transitions = map[stateName][]stateName{
	due:       {due, asking, parked, closed},
	waiting:   {waiting, asking, parked, closed},
	asking:    {waiting, unsure, parked, running, returning, givenUp, closed},
	unsure:    {unsure, asking, closed},
	parked:    {waiting, parked, asking, closed},
	returning: {waiting, closed},
	givenUp:   {running, closed},
}

// moveTo changes the state of a tick. An invalid transition is a bug of this program: moveTo then keeps the state and calls Refused.
func (a *Agenda[T]) moveTo(k *Tick[T], next State) {
	if slices.Contains(transitions[k.state.name], next.name) {
		k.state = next
		return
	}
	a.refusals++
	if a.Refused != nil {
		a.Refused(fmt.Errorf("tick %s of job %s cannot go from %v to %v", k.At.Format(time.RFC3339), k.Job.Name, k.state.name, next.name))
	}
}

// Refusals returns the number of invalid transitions so far.
func (a *Agenda[T]) Refusals() int { return a.refusals }

func (k *Tick[T]) isIn(states ...stateName) bool { return slices.Contains(states, k.state.name) }

func (k *Tick[T]) queuedState(since time.Time) State {
	if k.isIn(due, unsure) {
		return State{name: k.state.name, since: since}
	}
	return State{name: waiting, since: since}
}

// IsUnsure reports whether the last claim of a tick had no answer.
func (k *Tick[T]) IsUnsure() bool { return k.isIn(unsure) }

// IsAsking reports whether the claim of a tick is under way.
func (k *Tick[T]) IsAsking() bool { return k.isIn(asking, givenUp) }

// IsReturning reports whether the grant of a tick is being given back.
func (k *Tick[T]) IsReturning() bool { return k.isIn(returning) }

// canAsk returns false while a claim of the tick is under way, or its grant is being given back.
func (k *Tick[T]) canAsk() bool { return !k.isIn(asking, givenUp, returning) }

// Unwanted reports whether a tick was given up while its claim was under way, and whether this was because its schedule was replaced.
func (k *Tick[T]) Unwanted() (isGivenUp, dropped bool) { return k.isIn(givenUp), k.state.dropped }

// A Trouble describes why the server did not decide a tick: it did not answer for some time, or its answer was no decision. The zero value means no
// trouble.
type Trouble struct {
	// Since is the time at which the first unanswered claim was sent; zero if there was none.
	Since time.Time
	// Until is the time at which a claim of the job was answered again; zero until then.
	Until time.Time
	// Detail describes an answer that was no decision; "" if the server did not answer.
	Detail string
}

// At returns the text about the trouble for the record of a tick that is missed now, or "" if there was no trouble.
func (t *Trouble) At(now time.Time, replica string) string {
	if t.Since.IsZero() {
		return t.Detail
	}
	until := t.Until
	if until.IsZero() {
		until = now
	}
	return fmt.Sprintf("Redis did not answer replica %s from %s to %s", replica, t.Since.UTC().Format(time.RFC3339), until.UTC().Format(time.RFC3339))
}
