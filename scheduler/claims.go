package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/scheduler/internal/agenda"
	"github.com/cronclave/cronclave/scheduler/internal/failpoint"
	"github.com/cronclave/cronclave/scheduler/run"
)

// claims sends the claims of due ticks to Redis, in batches.
type claims struct {
	*core
	lane[*tick, claimBatch]
	starts     *starts
	recoveries *recoveries
	away       bool // Redis does not answer
	retry      *backoff.Backoff
	askAgain   time.Time // the time of the next claims while Redis does not answer
}

type claimBatch struct {
	ticks   []*tick
	claims  []election.Claim
	results []election.Result
	sent    time.Time
	stood   time.Duration // the longest standstill of this process while the batch was under way
}

// maxProbes is the maximum number of unanswered claims that one batch repeats while Redis does not answer.
const maxProbes = 16

// claimDue claims all due ticks in one batch. Ticks that become due while the batch is under way are claimed in the next batch.
func (c *claims) claimDue(ctx context.Context, now time.Time) {
	if c.busy {
		return
	}
	probes, asked := 0, c.agenda.Take(now, maxClaims)
	if len(asked) == 0 {
		return
	}
	b := claimBatch{sent: now, claims: make([]election.Claim, 0, len(asked))}
	for _, k := range asked {
		if c.away && k.IsUnsure() {
			if probes++; probes > maxProbes {
				c.agenda.PutBack(k, now.Add(max(c.retry.Last()/2, shortestPause))) // retry this tick before the ticks of the batch, so that all ticks get a turn
				continue
			}
		}
		k.NotAsked(now)
		k.CatchUp(now)
		if k.MustWait(now) {
			c.agenda.Park(k, now)
			continue
		}
		if until, waits := c.agenda.Behind(k); waits {
			c.agenda.Ask(k, until, now)
			continue
		}
		b.ticks = append(b.ticks, k)
		b.claims = append(b.claims, c.claimOf(k, now))
	}
	if len(b.ticks) == 0 {
		return
	}
	c.sendBatch(b, func(b *claimBatch) {
		// The end of ctx does not cancel claims, because their answers are needed. The timeout of the Claimer bounds the call.
		endMeasure := measureStandstill()
		b.results = c.cfg.Claimer.Claim(context.WithoutCancel(ctx), b.claims)
		b.stood = endMeasure()
	})
}

// claimOf returns the claim of a tick, and reserves a place on this replica for its run. If it cannot reserve a place, the claim abstains: Redis does not
// grant the tick to this claim, but may settle the tick.
func (c *claims) claimOf(k *tick, now time.Time) election.Claim {
	t := k.Job.Of
	full := !t.Elsewhere && c.places.free() <= 0
	if !k.Placed && !c.leaving && !full && k.MayWin() && t.Running < t.PerReplica {
		k.Placed = true
		c.places.takePlace(t)
	}
	if k.ID == "" {
		k.ID = newRunID()
	}
	abstains := !k.Placed || c.leaving
	if abstains && !k.Waits() {
		k.StandAside()
	}
	if why := c.exec.StartFailure(t.Name); why != "" {
		k.Unstartable(why)
	}
	claim := c.claimFor(k)
	claim.Abstain, claim.Tick.Replace, claim.Tick.IfLate = abstains, k.Replaces(), missedBecause(c.cfg.missedReason(t, k.Cause.Reason))
	if !k.Waits() {
		claim.Tick.IfHeld, claim.Tick.KeepFirst = run.SkippedOverlap, k.Rules.Overlap == agenda.Queued
	}
	switch {
	case k.Standing == agenda.Displaced: // a displaced tick is skipped, and leaves free slots to the newer ticks
		claim.Abstain, claim.Tick.IfHeld, claim.Tick.IfLate = true, run.SkippedOverlap, run.SkippedOverlap
	case k.Rules.Overlap == agenda.Replace:
		claim.Tick.IfHeld = ""
	}
	c.agenda.Send(k, full, now)
	return claim
}

func (c *claims) settleClaims(b claimBatch) {
	c.busy = false
	now, unknown := c.now(), 0 // unknown is the number of claims without an answer
	for i, k := range b.ticks {
		r := b.results[i]
		if r.Verdict == election.CannotTell {
			unknown++
			k.NoteSilence()
		} else {
			k.NoteAnswer(r.Verdict == election.Closed, now)
		}
		if t := k.Job.Of; r.Orphans > 0 && r.Orphans > len(c.recoveries.known[t.Name]) { // there is an orphan that this replica has not seen yet
			c.inspectAt(t, now)
		}
		givenUp, _ := k.Unwanted()
		switch {
		case r.Verdict == election.Granted:
			c.startGranted(k, election.TermOf(r), now)
		case r.Verdict == election.CannotTell && !givenUp: // the tick keeps its place, because it may have been granted
			c.cannotTell(k, r, b, now)
		case r.Verdict == election.Unheard && !givenUp:
			c.withdrawUnheard(k)
		default:
			c.places.unplaceTick(k)
			c.settleClaim(k, &b.claims[i], r, now)
		}
	}
	if unknown == 0 && c.away {
		c.away = false
		c.retry.Reset()
		c.log.Info("Redis answers again")
	}
	c.wakeParked(now, tasksOf(b.ticks)...)
}

// settleClaim handles an answer that is not a grant. If the tick is closed, and was not settled by this claim, settleClaim also withdraws an earlier,
// unanswered claim of the tick. The earlier claim may still be on its way, and Redis would grant it if the tick became undecided again.
func (c *claims) settleClaim(k *tick, claim *election.Claim, r election.Result, now time.Time) {
	givenUp, _ := k.Unwanted()
	switch {
	case r.Verdict == election.Settled:
		c.closeSettled(k, r, now)
	case r.Verdict == election.Before:
		c.withdrawClaim(k)
		c.closeSettled(k, r, now)
	case givenUp, c.leaving, r.Verdict == election.Taken:
		c.agenda.Close(k)
		c.withdrawClaim(k)
		if r.Verdict == election.Taken && !givenUp {
			c.inspectTaken(k, r.Until, now)
		}
	default:
		c.stillOpen(k, claim, r, now)
	}
}

func (c *claims) closeSettled(k *tick, r election.Result, now time.Time) {
	t := k.Job.Of
	c.agenda.Close(k)
	failpoint.Reach("settled", t.Name, k.At)
	verdict := run.ParseVerdict(r.Outcome)
	if r.Outcome != "" {
		rec := tickRecord(t.Name, named{k.Name, k.At}, verdict, c.cfg.Replica, now)
		if rec.Reason == run.ReasonRedis || rec.Reason == run.ReasonCannotStart {
			rec.Detail = k.Trouble.At(now, c.cfg.Replica)
		}
		written := c.exec.Recorder().Add(rec)
		if r.Verdict == election.Settled {
			c.ackWhenWritten(t, k.Name, now, written)
		}
	}
	c.checkAfter(t, now) // ticks of the children may be due now
	if r.Verdict == election.Settled {
		c.log.Log(verdict.LogLevel(false), "tick not run", "job", t.Name, "tick", k.At.Format(time.RFC3339), "outcome", r.Outcome)
	}
}

// stillOpen schedules the next claim of an undecided tick.
func (c *claims) stillOpen(k *tick, claim *election.Claim, r election.Result, now time.Time) {
	t := k.Job.Of
	switch {
	case r.Verdict == election.Early:
		c.agenda.AskSoon(k, r.Until, now)
	case r.Verdict == election.Closed:
		k.Undecided("Redis had lost its data, and the job's lock was closed until "+r.Until.UTC().Format(time.RFC3339), now)
		k.Wait(agenda.Cause{Reason: run.ReasonRedis})
		c.agenda.AskSoon(k, r.Until, now)
	// A tick that replaces a run is not parked: the replaced run may be on this replica, and its end then frees a place.
	case claim.Abstain && k.Standing != agenda.Displaced && !claim.Tick.Replace:
		cause := k.Cause
		if k.Rules.Overlap == agenda.Queued && !r.Until.IsZero() { // r.Until is set if all slots are held: the held slots are the reason, not the missing place
			cause = agenda.Cause{Reason: run.ReasonSlots}
		}
		k.Wait(cause)
		c.agenda.Park(k, now)
	case !k.Waits() && k.Rules.Overlap == agenda.Skip && t.PerTick == 1: // Redis grants or skips such a tick, unless the votes of the quorum were split
		k.Undecided("no majority of the quorum agreed: its votes were split", now)
		k.Wait(agenda.Cause{Reason: run.ReasonRedis})
		c.agenda.LineUp(k)
		c.agenda.Ask(k, now.Add(c.pauseHeld(k, now)), now)
	default: // all slots are held: the tick is claimed again after a pause
		if claim.Tick.Replace {
			k.Contend()
		}
		k.Cause = agenda.Cause{Reason: run.ReasonSlots}
		if k.Rules.Overlap == agenda.Queued {
			k.Wait(k.Cause)
		}
		c.inspectAt(t, r.Until)
		c.agenda.Ask(k, now.Add(c.pauseHeld(k, now)), now)
	}
}

// pauseHeld returns the pause before a tick that found all slots held is claimed again. Unless Overlap is Skip, replicas publish an event
// (Config.GrantEvents) when a slot becomes free, and claims guard only against lost events. The pause then grows to a sixteenth of the time since the tick
// first found all slots held.
func (c *claims) pauseHeld(k *tick, now time.Time) time.Duration {
	held := k.HeldFor(now)
	if c.cfg.GrantEvents == nil || k.Rules.Overlap == agenda.Skip {
		return heldPause
	}
	return min(max(held/16, heldPause), longestHeldPause)
}

// cannotTell handles an unknown result: the tick is claimed again with the same id. All ticks share one pause, so waiting ticks keep their order while Redis
// does not answer. The later ticks of the job wait, too. Otherwise one of them could run, and the others would be skipped because of its run.
func (c *claims) cannotTell(k *tick, r election.Result, b claimBatch, now time.Time) {
	if !errors.Is(r.Err, election.ErrUnknown) {
		c.log.Error("claim refused", "job", k.Job.Name, "tick", k.At.Format(time.RFC3339), "error", r.Err)
		c.places.unplaceTick(k)
		c.agenda.Close(k)
		return
	}
	if isDamaged(r.Err) {
		c.postponeDamaged(k, r, now)
		return
	}
	if !c.away {
		c.away = true
		if b.stood >= standstill {
			c.log.Warn("this replica stood still; due ticks are claimed again until their start deadline", "stood_still", b.stood.Round(time.Millisecond).String(), "error", r.Err)
		} else {
			c.log.Warn("Redis does not answer; due ticks wait until their start deadline", "error", r.Err)
		}
	}
	if !c.askAgain.After(now) {
		c.askAgain = now.Add(c.retry.Next())
	}
	reason := k.WhyUnanswered(b.stood >= standstill)
	if reason == run.ReasonRedis {
		k.Silent(b.sent)
	}
	k.WaitAnew(agenda.Cause{Reason: reason})
	c.agenda.LineUp(k)
	c.agenda.Doubt(k, c.askAgain)
}

// withdrawUnheard withdraws a claim whose grant arrived only after its lease had ended. The tick is then claimed under a new id, so that a late reply
// to the old claim starts nothing.
func (c *claims) withdrawUnheard(k *tick) {
	c.log.Warn("a claim was granted, and its answer came only after the lease; the claim is withdrawn, and the tick is claimed anew", "job", k.Job.Name,
		"tick", k.At.Format(time.RFC3339), "run_id", k.ID)
	if !k.Placed {
		c.places.takePlace(k.Job.Of)
	}
	k.Placed = false // the withdrawal keeps the place until it is finished
	c.agenda.Return(k)
	c.starts.withdrawForGood(&grant{task: k.Job.Of, rules: k.Rules, of: named{k.Name, k.At}, due: k.Due, trigger: k.Trigger, returned: k}, c.claimFor(k))
}

// postponeDamaged postpones the claim of a tick if the data of the job's lock is damaged. Other jobs are not affected.
func (c *claims) postponeDamaged(k *tick, r election.Result, now time.Time) {
	c.logRefused(k.Job.Of, r.Err, now)
	k.Undecided("the data of the job's lock in Redis is damaged; the log names the key", now)
	k.WaitAnew(agenda.Cause{Reason: run.ReasonRedis})
	c.agenda.Doubt(k, now)
	c.agenda.Ask(k, now.Add(damagePause), now) // Ask may choose an earlier time, just after the tick's deadline; the tick stays in the state unsure
}

// damagePause is the pause before a tick of a job with a damaged lock is claimed again. A person has to repair the data.
const damagePause = 5 * time.Second

// startGranted starts the run of a granted tick. If a waiting tick is granted after its start deadline, startGranted gives the grant back and claims the
// tick again, so that Redis settles the tick.
func (c *claims) startGranted(k *tick, term *election.Term, now time.Time) {
	if !k.Placed {
		c.places.takePlace(k.Job.Of)
	}
	k.Placed = false // from here on the run holds the place
	givenUp, dropped := k.Unwanted()
	g := &grant{task: k.Job.Of, rules: k.Rules, term: term, of: named{k.Name, k.At}, due: k.Due, trigger: k.Trigger, startBy: startBy(k, now)}
	if k.Waits() && k.Late(now) && !givenUp {
		c.agenda.Return(k)
		g.returned, g.term = k, nil
		c.starts.giveBack(g, term)
		return
	}
	c.agenda.Grant(k)
	c.starts.startGrant(g)
	if c.leaving {
		return
	}
	c.published.begun = append(c.published.begun, term)
	if g.task.PerTick > 1 && !dropped { // the tick can have more grants, and is settled at its deadline if it does not get them
		c.agenda.OpenAgain(k, now)
	}
}

// poolMargin applies to a run whose start deadline is the next tick: the run stops waiting for its pool this long before the next tick. Otherwise it would
// still hold the slot of the job, and the next tick would be skipped.
const poolMargin = 50 * time.Millisecond

// startBy returns the instant until which the run of a tick that is granted now may wait for a slot of its pool. The deadline of a caught-up tick may be a
// day away, so its run waits for at most PoolWait.
func startBy(k *tick, now time.Time) time.Time {
	if k.Trigger == run.CaughtUp {
		return earlier(k.Deadline, now.Add(k.Rules.Runs.PoolWait))
	}
	if own := k.Deadline.Sub(k.Due); k.Rules.StartDeadline == 0 && own < agenda.LongestAuto && own > 2*poolMargin {
		return k.Deadline.Add(-poolMargin)
	}
	return k.Deadline
}

const (
	// standstill is the shortest pause of this process that counts as the cause of late claims and unread answers. After a shorter pause, Redis is blamed. A
	// process pauses if it is stopped or gets no CPU time.
	standstill = 250 * time.Millisecond
	// measureEvery is the interval at which measureStandstill wakes up.
	measureEvery = 50 * time.Millisecond
)

// measureStandstill measures the longest pause of this process, until end is called.
func measureStandstill() (end func() time.Duration) {
	over, longest := make(chan struct{}), make(chan time.Duration, 1)
	go func() {
		ticker := time.NewTicker(measureEvery)
		defer ticker.Stop()
		most := time.Duration(0)
		for last := time.Now(); ; last = time.Now() {
			select {
			case <-ticker.C:
				most = max(most, time.Since(last)-measureEvery)
			case <-over:
				longest <- max(most, time.Since(last)-measureEvery)
				return
			}
		}
	}()
	return func() time.Duration {
		close(over)
		return <-longest
	}
}
