package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/cronclave/cronclave/election"
)

// claimedBatch is what became of the claims of some ticks.
type claimedBatch struct {
	ticks   []*tick
	claims  []election.Claim
	results []election.Result
	stood   time.Duration // for how long this process did not run meanwhile
}

// maxClaims bounds one batch: a claim waits for those before it on the server, and what others tell to have won meanwhile need not be
// asked for in the next.
const maxClaims = 250

// maxProbes bounds how many ticks find out whether a server that is away is back.
const maxProbes = 16

// claim sends the claims of the ticks that are to be asked for, all in one batch. Ticks that come due while it is under way
// go together in the next.
func (s *Scheduler) claim(ctx context.Context, now time.Time) {
	if s.claiming {
		return
	}
	probes, asked := 0, s.agenda.asked(now, maxClaims)
	if len(asked) == 0 {
		return
	}
	b := claimedBatch{claims: make([]election.Claim, 0, len(asked))}
	for _, k := range asked {
		if s.away && k.unsure {
			if probes++; probes > maxProbes {
				s.agenda.asks.set(&k.inAsks, now.Add(max(s.retry.pause/2, shortestPause))) // before those that are asked for now
				continue
			}
		}
		k.notAsked(now)
		k.catchUp(now)
		if k.mustWait(now) {
			k.full = false
			s.agenda.park(k, now)
			continue
		}
		if until, waits := s.agenda.behind(k); waits {
			s.agenda.ask(k, until, now)
			continue
		}
		s.agenda.unpark(k)
		k.asking, k.asked = true, now
		b.ticks = append(b.ticks, k)
		b.claims = append(b.claims, s.claimOf(k))
	}
	if len(b.ticks) == 0 {
		return
	}
	s.claiming = true
	go func() {
		// A claim that is under way when ctx ends is answered all the same: it is bounded by the claimer's time-out.
		running := startPulse()
		b.results = s.cfg.Claimer.Claim(context.WithoutCancel(ctx), b.claims)
		b.stood = running.end()
		s.claimed <- b
	}()
}

// claimOf makes a tick's claim. A replica that has no place for it abstains.
func (s *Scheduler) claimOf(k *tick) election.Claim {
	t := k.task
	k.full = !t.foreign && s.places() <= 0
	if !k.placed && !s.leaving && !k.full && k.mayWin() && t.running < t.PerReplica {
		s.place(k)
	}
	k.abstained = !k.placed || s.leaving
	if k.id == "" {
		k.id = newRunID()
	}
	if k.abstained && !k.waited {
		k.reason, k.follows = k.aside()
	}
	c := k.claim()
	c.Abstain, c.IfLate = k.abstained, string(Missed)+" "+k.reason
	if !k.waited {
		c.IfHeld, c.KeepFirst = string(Skipped)+" overlap", k.job.Overlap == OverlapQueue
	}
	k.contest(&c)
	return c
}

// claim is what is the same each time that a tick is asked for.
func (k *tick) claim() election.Claim {
	j := k.job
	return election.Claim{Job: j.Name, ID: k.id, Trigger: k.trigger, Tick: k.at, Previous: k.previous, Schedule: k.task.digest(),
		NotBefore: k.due, Deadline: k.lastChance(), Slots: j.Parallel, PerTick: j.PerTick, Lease: j.Lease, KeepOutcome: true}
}

// places is how many more runs this replica may start now.
func (s *Scheduler) places() int {
	if s.unready {
		return 0
	}
	return s.cfg.MaxRunning - s.running
}

// noticeReady asks for what was put aside while no run might be started.
func (s *Scheduler) noticeReady(now time.Time) {
	was := s.unready
	s.unready = s.cfg.Ready != nil && !s.cfg.Ready() || s.exec.breaker.why() != ""
	if was && !s.unready {
		s.wake(now)
	}
}

// place counts a run that a claim may start.
func (s *Scheduler) place(k *tick) {
	k.placed = true
	k.task.running++
	s.running++
}

func (s *Scheduler) unplace(k *tick) {
	if k.placed {
		k.placed = false
		k.task.running--
		s.running--
	}
}

// fallBehind makes the best of ticks that were given up: there were too many open ones.
func (s *Scheduler) fallBehind(given []*tick, now time.Time) {
	if len(given) == 0 {
		return
	}
	for _, k := range given {
		k.task.behind, k.task.why = true, orDefault(k.task.why, k.reason)
		s.watch(k.task, now)
		s.giveUp(k)
	}
	s.wake(now, given...)
}

// giveUp closes a tick that may be undecided. A claim that is under way keeps its place until it is answered: a withdrawal
// beside it might give back what it brings.
func (s *Scheduler) giveUp(k *tick) {
	s.agenda.close(k)
	if k.asking {
		return
	}
	s.withdraw(k)
	s.unplace(k)
}

// withdraw gives back what a claim may have been granted, or may yet be, of which nobody has heard.
func (s *Scheduler) withdraw(k *tick) {
	if k.doubted {
		s.cfg.Claimer.Withdraw(k.claim())
	}
}

// settleClaims deals with the results, in the order of the ticks.
func (s *Scheduler) settleClaims(b claimedBatch) {
	s.claiming = false
	now, unknown := s.now(), 0 // how many nobody has answered
	for i, k := range b.ticks {
		r := b.results[i]
		k.asking, k.unsure = false, r.Verdict == election.CannotTell
		k.shut = r.Verdict == election.Closed
		if k.unsure {
			k.doubted = true
			unknown++
		}
		if r.Orphans > s.heirsOf(k.task) { // else they are known, and wait for a slot
			s.watch(k.task, now)
		}
		switch {
		case r.Verdict == election.Granted:
			s.granted(k, r.Term, now)
			continue
		case r.Verdict == election.CannotTell && !k.closed: // it keeps its place: it may have been granted
		case r.Verdict == election.CannotTell: // it was given up meanwhile
			s.withdraw(k)
			s.unplace(k)
		default:
			s.unplace(k)
		}
		if !k.closed || r.Verdict == election.Settled || r.Verdict == election.Before { // given up meanwhile, and yet it has an outcome
			s.settleClaim(k, r, b.stood, now)
		} else if r.Verdict == election.Held {
			s.withdraw(k)
		}
	}
	if unknown == 0 && s.away {
		s.away = false
		s.retry.reset()
		s.log.Info("the server answers again")
	}
	s.wake(now, b.ticks...)
}

// wake asks for what was put aside, now that some ticks are decided or places are free.
func (s *Scheduler) wake(now time.Time, changed ...*tick) {
	if s.leaving {
		return
	}
	for _, k := range changed {
		s.agenda.wake(k.task, s.places(), now)
	}
	s.agenda.wakeStarved(s.places(), now)
}

// settleClaim deals with the result for an open tick that was not granted.
func (s *Scheduler) settleClaim(k *tick, r election.Result, stood time.Duration, now time.Time) {
	switch r.Verdict {
	case election.Taken:
		s.agenda.close(k)
		s.watchTaken(k, r.Until, now)
	case election.Settled, election.Before:
		s.agenda.close(k)
		failpoint("settled", &Run{Job: k.task.Name, Tick: k.at})
		if r.Outcome != "" {
			written, _ := s.exec.recorder.add(tickRecord(k.task.Name, k.at, r.Outcome, s.cfg.Replica, now))
			if r.Verdict == election.Settled {
				s.toTell(k.task, k.at, now, written)
			}
		}
		s.checkAfter(k.task, now) // what has ended after it may be due now
		if r.Verdict == election.Settled {
			s.tellVerdict(k, r.Outcome)
		}
	case election.CannotTell:
		s.cannotTell(k, r, stood, now)
	default:
		s.stillOpen(k, r, now)
	}
}

// stillOpen puts off a tick that is undecided. A replica that leaves has no interest in it any more.
func (s *Scheduler) stillOpen(k *tick, r election.Result, now time.Time) {
	switch {
	case s.leaving:
		s.agenda.close(k)
		s.withdraw(k)
	case r.Verdict == election.Early:
		s.agenda.askSoon(k, r.Until, now)
	case r.Verdict == election.Closed:
		k.waited, k.reason, k.follows = true, reasonRedis, false
		s.agenda.askSoon(k, r.Until, now)
	case k.abstained && !k.displaced && !k.replaces: // where one that replaces finds a slot free, others take it, and it may be this replica's run that is to stop then
		k.waited = true
		if k.job.Overlap == OverlapQueue && !r.Until.IsZero() { // which has it wait, more than this replica
			k.reason, k.follows = "slots", false
		}
		s.agenda.park(k, now)
	case !k.waited && k.job.Overlap == OverlapSkip && k.task.PerTick == 1: // nobody could decide it: the votes of a quorum were split, each time
		k.waited, k.reason, k.follows = true, "redis", false
		s.agenda.lineUp(k)
		s.agenda.ask(k, now.Add(s.heldPause(k, now)), now)
	default: // all slots are held, whatever it waited for before
		k.contend()
		k.waited = k.waited || k.job.Overlap == OverlapQueue
		k.reason, k.follows = "slots", false
		s.watch(k.task, r.Until)
		s.agenda.ask(k, now.Add(s.heldPause(k, now)), now)
	}
}

// cannotTell asks again, with the same id, after a pause that all ticks share: while the server is away, waiting ticks
// keep their order and do not skip each other.
func (s *Scheduler) cannotTell(k *tick, r election.Result, stood time.Duration, now time.Time) {
	if !errors.Is(r.Err, election.ErrUnknown) {
		s.log.Error("claim refused", "job", k.task.Name, "tick", k.at.Format(time.RFC3339), "error", r.Err)
		s.unplace(k)
		s.agenda.close(k)
		return
	}
	if damaged(r.Err) {
		s.postpone(k, r, now)
		return
	}
	k.contends, k.held = false, time.Time{}
	if !s.away {
		s.away = true
		s.sayUnanswered(r.Err, stood)
	}
	if !s.askAgain.After(now) {
		s.askAgain = now.Add(s.retry.next())
	}
	k.waited, k.reason, k.follows = true, k.unanswered(stood), false
	s.agenda.lineUp(k)
	s.agenda.asks.set(&k.inAsks, s.askAgain)
}

// sayUnanswered logs that claims are not answered: by a server that may be away, or by one whose answers this replica was too busy to hear.
func (s *Scheduler) sayUnanswered(err error, stood time.Duration) {
	if stood >= standstill {
		s.log.Warn("this replica stood still; due ticks are asked for again until their start deadline", "stood_still", stood.Round(time.Millisecond).String(), "error", err)
		return
	}
	s.log.Warn("the server does not answer; due ticks wait until their start deadline", "error", err)
}

// granted starts a run, unless the grant is known only now that it is too late to start: then it is given back, and the
// tick asked for again, so that the server settles it.
func (s *Scheduler) granted(k *tick, term *election.Term, now time.Time) {
	if !k.placed {
		s.place(k)
	}
	k.placed = false // from here on it is the run that has the place
	if k.waited && k.late(now) && !k.closed {
		s.giveBack(k, term)
		return
	}
	s.start(k, term, now)
	s.agenda.close(k)
	if s.cfg.Notices != nil && !s.leaving {
		s.begun = append(s.begun, term)
	}
	if k.task.PerTick > 1 && !s.leaving && !k.dropped { // it may be granted here again, or has to be settled at its deadline
		again := s.agenda.open(k.task, k.instants, now)
		again.won, again.nth = k.won+1, k.nth
	}
}

// start runs a granted tick in a goroutine of its own.
func (s *Scheduler) start(k *tick, term *election.Term, now time.Time) {
	run := &Run{ID: term.ID(), Job: k.job.Name, Tick: k.at, Due: k.due, Trigger: k.trigger, Slot: term.Slot(), Slots: k.job.Parallel,
		Attempt: term.Attempt(), Token: term.Token(), startBy: k.startBy(now), followed: k.task.follows(k.at)}
	s.active.add(k.job.Name, 1)
	k.term = term
	go func() {
		defer func() { s.finished <- k }()
		led := s.exec.execute(context.Background(), k.job, run, term)
		if k.unstarted = led.unstarted != nil; k.unstarted {
			s.exec.holdPlace(k.job, led)
		}
	}()
}

func (s *Scheduler) giveBack(k *tick, term *election.Term) {
	k.returned = true
	s.active.add(k.job.Name, 1)
	go func() {
		defer func() { s.finished <- k }()
		if err := term.Return(context.Background()); err != nil {
			s.log.Warn("a tick that was granted too late could not be given back", "job", k.task.Name, "error", err)
		}
	}()
}

// freed is told of a run that is over: what waited for a place on this replica is asked for at once.
func (s *Scheduler) freed(k *tick) {
	s.active.add(k.job.Name, -1)
	k.task.running--
	s.running--
	now := s.now()
	if k.job.Recover.Max > 0 { // it may have left an orphan, and there may be nobody else
		s.watch(k.task, now)
	}
	if k.returned && !k.closed {
		k.returned, k.id = false, ""
		s.agenda.ask(k, now, now)
	}
	if k.unstarted {
		s.restore(k, now)
	}
	s.roomFor(k.task, k.job, k.term, now)
	s.wake(now, k)
}

// roomFor has what waits for the end of a run, of a job as it was then, asked for here, and elsewhere.
func (s *Scheduler) roomFor(t *task, job *Job, term *election.Term, now time.Time) {
	s.checkAfter(t, now)
	if !s.leaving {
		s.hastenHeirs(t, now)
		s.agenda.hurry(t, now)
	}
	if term != nil && s.cfg.Notices != nil && (job.Overlap != OverlapSkip || len(t.children) > 0) {
		s.ended = append(s.ended, term)
	}
}
